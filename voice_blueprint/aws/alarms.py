"""CloudWatch's alarm evaluation, shared by the sandbox's drill and the simulator.

Rules: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from voice_blueprint.file.model.scaling import Comparison, MissingData

COMPARISON_OPERATORS = {Comparison.ABOVE: "GreaterThanThreshold", Comparison.BELOW: "LessThanThreshold"}
"""CloudWatch's names for the comparisons."""

MISSING_DATA_TREATMENTS = {
    MissingData.NOT_BREACHING: "notBreaching",
    MissingData.BREACHING: "breaching",
    MissingData.IGNORE: "ignore",
    MissingData.MISSING: "missing",
}
"""CloudWatch's names for the missing-data rules."""


class AlarmState(StrEnum):
    """State of a CloudWatch alarm, spelled as in its API."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True)
class AlarmRule:
    """Rule that determines the state of an alarm.

    Attributes:
        datapoints_to_alarm: M, the number of datapoints that must breach.
        evaluation_periods: N, the number of datapoints that are evaluated.
    """

    comparison: Comparison
    threshold: float
    datapoints_to_alarm: int
    evaluation_periods: int
    missing_data: MissingData

    def is_breached_by(self, value: float) -> bool:
        """Return True if a datapoint is strictly beyond the threshold."""
        return value > self.threshold if self.comparison is Comparison.ABOVE else value < self.threshold


def count_evaluated_periods(rule: AlarmRule) -> int:
    """Return the number of periods that are evaluated: N plus two, as in CloudWatch's examples."""
    return rule.evaluation_periods + 2


def evaluate_alarm(rule: AlarmRule, datapoints: Sequence[float | None], current: AlarmState) -> AlarmState:
    """Return the alarm's state after the newest period.

    CloudWatch retrieves more periods than N (the evaluation range) and falls back to the missing-data rule
    only if the range contains fewer than N real datapoints.

    Args:
        rule: The alarm.
        datapoints: The evaluation range, oldest first; ``None`` for a period without samples.
        current: The previous state.
    """
    present = [value for value in datapoints if value is not None]
    if not present:
        return _resolve_state_without_data(rule.missing_data, current)
    window = present[-rule.evaluation_periods :]
    breaching = sum(map(rule.is_breached_by, window))
    if breaching >= rule.datapoints_to_alarm:
        return AlarmState.ALARM
    missing_datapoints = rule.evaluation_periods - len(window)
    if missing_datapoints == 0 or rule.missing_data is MissingData.NOT_BREACHING:
        return AlarmState.OK
    if rule.missing_data is MissingData.BREACHING:
        return AlarmState.ALARM if breaching + missing_datapoints >= rule.datapoints_to_alarm else AlarmState.OK
    if breaching < len(window):
        return AlarmState.OK
    # All datapoints breach, but there are too few of them.
    if rule.missing_data is MissingData.MISSING:
        oldest = next(index for index, value in enumerate(datapoints) if value is not None)
        age = len(datapoints) - oldest
        return AlarmState.ALARM if age >= rule.datapoints_to_alarm else current
    return current


def _resolve_state_without_data(missing_data: MissingData, current: AlarmState) -> AlarmState:
    return {
        MissingData.MISSING: AlarmState.INSUFFICIENT_DATA,
        MissingData.IGNORE: current,
        MissingData.BREACHING: AlarmState.ALARM,
        MissingData.NOT_BREACHING: AlarmState.OK,
    }[missing_data]


_IN_ALARM_PATTERN = re.compile(r'ALARM\("?([^")]+)"?\)')


def is_composite_in_alarm(rule: str, states: Mapping[str, AlarmState]) -> bool:
    """Return True if the rule of a composite alarm evaluates to true.

    Args:
        rule: ``ALARM("a") OR ALARM("b") ...``, the only form that this product deploys.
        states: State of each alarm by name.

    Raises:
        ValueError: The rule has another form.
        KeyError: The rule names an alarm that does not exist.
    """
    children = _IN_ALARM_PATTERN.findall(rule)
    if " OR ".join(f'ALARM("{name}")' for name in children) != rule:
        raise ValueError(f"not a plain OR of alarms: {rule}")
    return any(states[name] is AlarmState.ALARM for name in children)
