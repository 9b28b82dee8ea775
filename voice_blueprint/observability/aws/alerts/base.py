"""Definition of an alert, and ids that represent several alarms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from voice_blueprint.aws import names
from voice_blueprint.aws.alarms import AlarmRule
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison, MissingData
from voice_blueprint.observability.alerting import ALERT_CONDITION_BY_ID, MIN_REFUSALS
from voice_blueprint.observability.aws.series import Series

FLEET_GROWS_RUNBOOK = "fleet-grows"
"""Runbook for scaling rules that add hosts."""
FLEET_SHRINKS_RUNBOOK = "fleet-shrinks"
"""Runbook for scaling rules that remove hosts."""
CALLERS_AFFECTED_ALARM = "callers-affected"
"""The composite alarm for all alerts that affect callers."""
BUDGET_RUNBOOK = "budget"
"""The notification from AWS Budgets."""

MINUTE_S = 60


@dataclass(frozen=True)
class Alert:
    """An alert, which becomes a CloudWatch alarm.

    Attributes:
        id: Kind of alert; the runbook is ``docs/runbooks/<id>.md``.
        meaning: Sentence for the operator who is paged.
        series: Metrics that the alarm reads, all with the same statistic.
        period_s: Seconds per datapoint, at least 10.
        affects_callers: Whether callers are affected; such an alert pages an operator.
        target: The affected part, if several parts can raise the same alert.
        aggregation: Aggregation of several series into one value; a series without data in a period is ignored.
            ``SHARE`` is the first series as a percentage of the sum of all. ``LATE`` is 100 % minus the first series;
            the second is the number of samples. Both aggregations are 0 if the series cover fewer than ``MIN_REFUSALS``
            calls.
        short_window_s: Period in seconds of another, shorter window that must breach as well, or ``None``. Such an
            alert is a composite alarm of two alarms.
    """

    id: str
    tier: Tier
    meaning: str
    series: tuple[Series, ...]
    rule: AlarmRule
    period_s: int
    affects_callers: bool = False
    target: str | None = None
    aggregation: Literal["MAX", "MIN", "SHARE", "LATE"] = "MAX"
    short_window_s: int | None = None

    def format_expression(self, ids: Sequence[str]) -> str:
        """Return the metric math expression over the series with these ids."""
        if self.aggregation == "SHARE":
            return f"IF({ids[0]}>={MIN_REFUSALS},100*{ids[0]}/SUM([{','.join(ids)}]),0)"
        if self.aggregation == "LATE":
            on_time_percent, samples = ids
            return f"IF({samples}*(100-{on_time_percent})/100>={MIN_REFUSALS},100-{on_time_percent},0)"
        return f"{self.aggregation}([{','.join(ids)}])"

    def aggregate(self, values: Sequence[float | None]) -> float | None:
        """Return the value of the metric math expression for one period."""
        present = [value for value in values if value is not None]
        if not present or (self.aggregation in {"SHARE", "LATE"} and values[0] is None):
            return None
        match self.aggregation:
            case "SHARE":
                return 100 * present[0] / sum(present) if present[0] >= MIN_REFUSALS else 0.0
            case "LATE":
                on_time_percent, samples = present
                return 100 - on_time_percent if samples * (100 - on_time_percent) / 100 >= MIN_REFUSALS else 0.0
            case "MAX":
                return max(present)
            case "MIN":
                return min(present)

    def format_alarm_name(self, deployment: Deployment) -> str:
        """Return the name of the operator-facing alarm."""
        return names.build_alert_alarm_name(deployment, self.id, self.target)

    @property
    def period_s_by_window(self) -> dict[str, int]:
        """Period in seconds of each window that must breach, by the suffix of the alarm's name."""
        return (
            {"": self.period_s}
            if self.short_window_s is None
            else {"long": self.period_s, "short": self.short_window_s}
        )


def build_shared_alert(
    id_: str,
    tier: Tier,
    series: tuple[Series, ...],
    breaching: int,
    evaluation_periods: int,
    *,
    period_s: int = MINUTE_S,
) -> Alert:
    """Return an alert that exists on both clouds, for M of N datapoints."""
    condition = ALERT_CONDITION_BY_ID[id_]
    rule = AlarmRule(
        condition.comparison, condition.threshold, breaching, evaluation_periods, MissingData.NOT_BREACHING
    )
    return Alert(id_, tier, condition.meaning, series, rule, period_s, affects_callers=condition.affects_callers)


def build_above_threshold_rule(threshold: float, breaching: int, evaluation_periods: int) -> AlarmRule:
    """Return a rule that fires if M of N datapoints exceed a threshold.

    Missing data does not breach; ``telemetry-silent`` reports it.
    """
    return AlarmRule(Comparison.ABOVE, threshold, breaching, evaluation_periods, MissingData.NOT_BREACHING)


def build_below_threshold_rule(
    threshold: float, breaching: int, evaluation_periods: int, missing: MissingData = MissingData.NOT_BREACHING
) -> AlarmRule:
    """Return a rule that fires if M of N datapoints are below a threshold."""
    return AlarmRule(Comparison.BELOW, threshold, breaching, evaluation_periods, missing)
