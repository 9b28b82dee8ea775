"""Alerts on the objectives of the deployment file, which fire if an error budget is spent too fast."""

from collections.abc import Iterator, Mapping

from voice_blueprint.aws import names
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.alerting import ERROR_BUDGET_ALERT, WINDOWS, objectives
from voice_blueprint.observability.aws.alerts.base import Alert, rule_above
from voice_blueprint.observability.aws.series import fleet_series

_LATENCIES: Mapping[str, tuple[Tier, str, str]] = {
    "transcript": (Tier.GATEWAY, names.GATEWAY_FLEET, "TimeToFinal"),
    "turn": (Tier.AGENT, names.AGENT_FLEET, "TurnLatency"),
}
"""Tier, fleet and metric of each latency objective."""


def objective_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield an alert for each objective and pair of windows."""
    aws = deployment.aws
    for objective in objectives(aws.observability.objectives, agents=aws.agents is not None):
        if objective.within_ms is None:
            tier, fleet, metrics = Tier.GATEWAY, names.GATEWAY_FLEET, ("SessionsRefused", "SessionsCreated")
            series = tuple(fleet_series(deployment, fleet, metric, "Sum") for metric in metrics)
        else:
            tier, fleet, metric = _LATENCIES[objective.id]
            statistics = (f"PR(:{objective.within_ms})", "SampleCount")
            series = tuple(fleet_series(deployment, fleet, metric, statistic) for statistic in statistics)
        for windows in WINDOWS:
            yield Alert(
                ERROR_BUDGET_ALERT,
                tier,
                objective.meaning(windows),
                series,
                rule_above(objective.threshold(windows), 1, 1),
                windows.long_s,
                callers_affected=windows.pages_operators,
                target=f"{objective.id}-{windows.name}",
                aggregation="SHARE" if objective.within_ms is None else "LATE",
                confirm_s=windows.short_s,
            )
