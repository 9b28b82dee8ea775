"""Scaling rules. Each has a metric, an alarm and a step policy."""

import math
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from voice_blueprint.base import Model
from voice_blueprint.file.errors import SettingError
from voice_blueprint.file.model.base import check_unique_ids, find_first_duplicate_index
from voice_blueprint.file.model.known import MetricName
from voice_blueprint.file.model.text import Name


class Statistic(StrEnum):
    """CloudWatch statistic over the samples of one period."""

    AVERAGE = "average"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    SUM = "sum"


class Comparison(StrEnum):
    """Side of the threshold on which a datapoint breaches. A value equal to the threshold does not breach."""

    ABOVE = "above"
    BELOW = "below"


class MissingData(StrEnum):
    """Treatment of a period without samples (CloudWatch's ``TreatMissingData``)."""

    NOT_BREACHING = "not-breaching"
    BREACHING = "breaching"
    IGNORE = "ignore"
    MISSING = "missing"


class Step(Model):
    """A step adjustment of EC2 Auto Scaling. Bounds are relative to the threshold.

    A step specifies the bound nearer to the threshold, and ends where the next step begins.
    """

    adjustment: int
    """Hosts to add (positive) or remove (negative). For the VAD fleet, the number applies to each availability zone."""
    lower_bound: float | None = Field(default=None, ge=0)
    """Lower bound of a step above the threshold, in the metric's unit. The first step begins at 0."""
    upper_bound: float | None = Field(default=None, le=0)
    """Upper bound of a step below the threshold, in the metric's unit. The first step begins at 0."""


class StepAdjustment(NamedTuple):
    """Range of a step: metric values minus the threshold, infinite on an open side."""

    lower: float
    upper: float
    adjustment: int


class ScalingRule(Model):
    """A step scaling rule, which adds or removes hosts when a metric crosses the threshold."""

    name: Name
    """Name of the rule, unique in the fleet. The name of its alarm contains it."""
    metric: MetricName
    """Name of a metric that the fleet's hosts publish."""
    statistic: Statistic
    comparison: Comparison
    threshold: float
    """Threshold of the alarm, in the metric's unit."""
    period_s: int = Field(gt=0)
    """Length of one period, seconds."""
    datapoints_to_alarm: int = Field(gt=0)
    """Periods that must breach the threshold (M of "M out of N")."""
    evaluation_periods: int = Field(gt=0)
    """Periods to evaluate (N of "M out of N")."""
    missing_data: MissingData
    steps: tuple[Step, ...] = Field(min_length=1)
    """Step adjustments, ordered by increasing distance from the threshold."""

    @model_validator(mode="after")
    def _check_datapoints_and_steps(self) -> "ScalingRule":
        if self.datapoints_to_alarm > self.evaluation_periods:
            raise ValueError(
                f"datapoints_to_alarm {self.datapoints_to_alarm} is more than "
                f"evaluation_periods {self.evaluation_periods}: the alarm could never fire"
            )
        near, other = (
            ("lower_bound", "upper_bound") if self._breaches_above_threshold else ("upper_bound", "lower_bound")
        )
        if any(getattr(step, other) is not None for step in self.steps):
            raise ValueError(f"a step {self.comparison} the threshold has its {near}; it ends where the next begins")
        starts = [abs(getattr(step, near) or 0) for step in self.steps]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"the steps' {near} must start at 0 and move away from it, not {starts}")
        directions = {step.adjustment > 0 for step in self.steps}
        if 0 in (step.adjustment for step in self.steps) or len(directions) > 1:
            raise ValueError("the steps of one rule either all add hosts or all remove hosts")
        return self

    @property
    def _breaches_above_threshold(self) -> bool:
        return self.comparison is Comparison.ABOVE

    @property
    def construct_id(self) -> str:
        """Id of the rule's construct."""
        return "Scaling" + self.name.title().replace("-", "")

    @property
    def adds_hosts(self) -> bool:
        """Whether the rule scales out (otherwise in)."""
        return self.steps[0].adjustment > 0

    @property
    def step_adjustments(self) -> tuple[StepAdjustment, ...]:
        """The steps as ranges, as a step scaling policy defines them."""
        if self._breaches_above_threshold:
            bounds = pairwise((*(step.lower_bound or 0 for step in self.steps), math.inf))
            return tuple(
                StepAdjustment(near, far, step.adjustment) for step, (near, far) in zip(self.steps, bounds, strict=True)
            )
        bounds = pairwise((*(step.upper_bound or 0 for step in self.steps), -math.inf))
        return tuple(
            StepAdjustment(far, near, step.adjustment) for step, (near, far) in zip(self.steps, bounds, strict=True)
        )


def _check_unique_names(rules: tuple[ScalingRule, ...]) -> tuple[ScalingRule, ...]:
    if (duplicate := find_first_duplicate_index([rule.name for rule in rules])) is not None:
        raise SettingError(
            (duplicate, "name"),
            f"{rules[duplicate].name} is the name of an earlier rule of the fleet; use another name",
        )
    check_unique_ids((), [rule.name for rule in rules], [rule.construct_id for rule in rules])
    return rules


ScalingRules = Annotated[tuple[ScalingRule, ...], AfterValidator(_check_unique_names)]
"""The scaling rules of one fleet. Names of alarms contain the rules' names."""
