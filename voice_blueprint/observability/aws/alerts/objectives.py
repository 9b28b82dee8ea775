"""Alerts on the objectives in the deployment file, which fire if an error budget is spent too fast."""

from collections.abc import Iterator, Mapping

from voice_blueprint.aws import names
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.alerting import BURN_RATE_WINDOWS, ERROR_BUDGET_ALERT_ID, build_objectives
from voice_blueprint.observability.aws.alerts.base import Alert, build_above_threshold_rule
from voice_blueprint.observability.aws.series import build_fleet_series

_LATENCY_METRIC_BY_OBJECTIVE: Mapping[str, tuple[Tier, str, str]] = {
    "transcript": (Tier.GATEWAY, names.GATEWAY_FLEET, "TimeToFinal"),
    "turn": (Tier.AGENT, names.AGENT_FLEET, "TurnLatency"),
}
"""Tier, fleet and metric of each latency objective."""


def build_objective_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield an alert for each objective and pair of windows."""
    aws = deployment.aws
    for objective in build_objectives(aws.observability.objectives, agents=aws.agents is not None):
        if objective.within_ms is None:
            tier, fleet, metrics = Tier.GATEWAY, names.GATEWAY_FLEET, ("SessionsRefused", "SessionsCreated")
            series = tuple(build_fleet_series(deployment, fleet, metric, "Sum") for metric in metrics)
        else:
            tier, fleet, metric = _LATENCY_METRIC_BY_OBJECTIVE[objective.id]
            statistics = (f"PR(:{objective.within_ms})", "SampleCount")
            series = tuple(build_fleet_series(deployment, fleet, metric, statistic) for statistic in statistics)
        for windows in BURN_RATE_WINDOWS:
            yield Alert(
                ERROR_BUDGET_ALERT_ID,
                tier,
                objective.format_meaning(windows),
                series,
                build_above_threshold_rule(objective.calculate_threshold_percent(windows), 1, 1),
                windows.long_s,
                affects_callers=windows.pages_operators,
                target=f"{objective.id}-{windows.name}",
                aggregation="SHARE" if objective.within_ms is None else "LATE",
                short_window_s=windows.short_s,
            )
