"""An alert, and the ids that are no single alarm."""

from dataclasses import dataclass
from typing import Literal

from blueprint.aws import names
from blueprint.aws.alarms import AlarmRule
from blueprint.aws.series import Series
from blueprint.contract.network import Tier
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import Comparison, MissingData

FLEET_GROWS = "fleet-grows"
"""Runbook of the scaling rules that add hosts."""
FLEET_SHRINKS = "fleet-shrinks"
"""Runbook of the scaling rules that remove hosts."""
CALLERS_AFFECTED = "callers-affected"
"""The composite alarm: any alert that callers notice."""
BUDGET = "budget"
"""AWS Budgets' notification."""

MINUTE_S = 60


@dataclass(frozen=True)
class Alert:
    """One alarm.

    Attributes:
        id: Kind of alert; the runbook is ``docs/runbooks/<id>.md``.
        meaning: One sentence for the person who is woken.
        series: What is watched, with one statistic.
        period_s: Seconds a datapoint, 10 at least.
        callers_affected: Whether callers notice while it lasts.
        target: Which one, where several things can raise the same alert.
        fold: How several series become one value; one without data in a period does not count.
    """

    id: str
    tier: Tier
    meaning: str
    series: tuple[Series, ...]
    rule: AlarmRule
    period_s: int
    callers_affected: bool = False
    target: str | None = None
    fold: Literal["MAX", "MIN"] = "MAX"

    def alarm_name(self, deployment: Deployment) -> str:
        return names.alert_alarm(deployment, self.id, self.target)


def above(threshold: float, breaching: int, evaluated: int) -> AlarmRule:
    """Fire when M of N datapoints exceed a threshold; silence is no breach, ``telemetry-silent`` tells of it."""
    return AlarmRule(Comparison.ABOVE, threshold, breaching, evaluated, MissingData.NOT_BREACHING)


def below(
    threshold: float, breaching: int, evaluated: int, missing: MissingData = MissingData.NOT_BREACHING
) -> AlarmRule:
    """Fire when M of N datapoints are less than a threshold."""
    return AlarmRule(Comparison.BELOW, threshold, breaching, evaluated, missing)
