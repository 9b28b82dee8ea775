"""CloudWatch's alarm evaluation, in one place for the sandbox's drill and the simulator.

Rules: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from blueprint.file.model.scaling import Comparison, MissingData

COMPARISON_OPERATOR = {Comparison.ABOVE: "GreaterThanThreshold", Comparison.BELOW: "LessThanThreshold"}
"""CloudWatch's words for our comparisons."""

TREAT_MISSING_DATA = {
    MissingData.NOT_BREACHING: "notBreaching",
    MissingData.BREACHING: "breaching",
    MissingData.IGNORE: "ignore",
    MissingData.MISSING: "missing",
}
"""CloudWatch's words for our missing-data rules."""


class AlarmState(StrEnum):
    """The three states of a CloudWatch alarm, spelt as its API does."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True)
class AlarmRule:
    """The part of an alarm that decides its state.

    Attributes:
        datapoints_to_alarm: M, how many datapoints must breach.
        evaluation_periods: N, among how many.
    """

    comparison: Comparison
    threshold: float
    datapoints_to_alarm: int
    evaluation_periods: int
    missing_data: MissingData

    def breaches(self, value: float) -> bool:
        """Whether one datapoint lies strictly beyond the threshold."""
        return value > self.threshold if self.comparison is Comparison.ABOVE else value < self.threshold


def evaluation_range(rule: AlarmRule) -> int:
    """Return how many periods to hand to ``evaluate``: N and two more, as in CloudWatch's own examples."""
    return rule.evaluation_periods + 2


def evaluate(rule: AlarmRule, datapoints: Sequence[float | None], current: AlarmState) -> AlarmState:
    """Return the alarm's state after the newest period.

    CloudWatch retrieves more periods than N (the evaluation range) and falls back on the missing-data rule
    only when the range holds fewer than N real datapoints.

    Args:
        rule: The alarm.
        datapoints: The evaluation range, oldest first, ``None`` for a period without samples.
        current: The state before.
    """
    present = [value for value in datapoints if value is not None]
    if not present:
        return _without_data(rule.missing_data, current)
    window = present[-rule.evaluation_periods :]
    breaching = sum(map(rule.breaches, window))
    if breaching >= rule.datapoints_to_alarm:
        return AlarmState.ALARM
    gaps = rule.evaluation_periods - len(window)
    if gaps == 0 or rule.missing_data is MissingData.NOT_BREACHING:
        return AlarmState.OK
    if rule.missing_data is MissingData.BREACHING:
        return AlarmState.ALARM if breaching + gaps >= rule.datapoints_to_alarm else AlarmState.OK
    if breaching < len(window):
        return AlarmState.OK
    # Nothing but breaching datapoints, and too few of them.
    if rule.missing_data is MissingData.MISSING:
        oldest = next(index for index, value in enumerate(datapoints) if value is not None)
        age = len(datapoints) - oldest
        return AlarmState.ALARM if age >= rule.datapoints_to_alarm else current
    return current


def _without_data(missing_data: MissingData, current: AlarmState) -> AlarmState:
    return {
        MissingData.MISSING: AlarmState.INSUFFICIENT_DATA,
        MissingData.IGNORE: current,
        MissingData.BREACHING: AlarmState.ALARM,
        MissingData.NOT_BREACHING: AlarmState.OK,
    }[missing_data]


_IN_ALARM = re.compile(r'ALARM\("?([^")]+)"?\)')


def any_in_alarm(rule: str, states: Mapping[str, AlarmState]) -> bool:
    """Return whether a composite alarm's rule holds.

    Args:
        rule: ``ALARM("a") OR ALARM("b") ...``, the only form that this product deploys.
        states: State of each alarm by name.

    Raises:
        ValueError: The rule has another form.
        KeyError: The rule names an alarm that does not exist.
    """
    children = _IN_ALARM.findall(rule)
    if " OR ".join(f'ALARM("{name}")' for name in children) != rule:
        raise ValueError(f"not a plain OR of alarms: {rule}")
    return any(states[name] is AlarmState.ALARM for name in children)
