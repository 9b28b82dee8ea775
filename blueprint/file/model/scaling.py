"""Scaling as data: one rule is one metric, one alarm and one step policy."""

import math
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from blueprint.base import Model
from blueprint.file.model.base import Name


class Statistic(StrEnum):
    """How CloudWatch folds the samples of one period into a datapoint."""

    AVERAGE = "average"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    SUM = "sum"


class Comparison(StrEnum):
    """On which side of the threshold a datapoint breaches; the threshold itself never does."""

    ABOVE = "above"
    BELOW = "below"


class MissingData(StrEnum):
    """What a period without samples counts as (CloudWatch's ``TreatMissingData``)."""

    NOT_BREACHING = "not-breaching"
    BREACHING = "breaching"
    IGNORE = "ignore"
    MISSING = "missing"


class Step(Model):
    """One step adjustment, in EC2 Auto Scaling's words; a bound is the metric's value minus the threshold.

    A step has the bound that lies nearer to the threshold, and ends where the next one begins.
    """

    adjustment: int
    """Hosts to add (positive) or remove (negative); in every availability zone for the VAD fleet."""
    lower_bound: float | None = Field(default=None, ge=0)
    """Where a step above the threshold begins, in the metric's unit; the first begins at 0."""
    upper_bound: float | None = Field(default=None, le=0)
    """Where a step below the threshold begins, in the metric's unit; the first begins at 0."""


class Band(NamedTuple):
    """What a step covers: metric values minus the threshold, infinite where nothing ends it."""

    lower: float
    upper: float
    adjustment: int


class ScalingRule(Model):
    """When a metric crosses a threshold, the fleet changes by a number of hosts."""

    name: Name
    """Unique in its fleet; it becomes the alarm's name."""
    metric: str
    """A metric of ``blueprint.contract`` that the fleet's hosts publish."""
    statistic: Statistic
    comparison: Comparison
    threshold: float
    """Value that a datapoint is compared with, in the metric's unit."""
    period_s: int = Field(gt=0)
    """Length of one period, seconds."""
    datapoints_to_alarm: int = Field(gt=0)
    """M of M-of-N: so many periods must breach ..."""
    evaluation_periods: int = Field(gt=0)
    """... among the last N."""
    missing_data: MissingData
    steps: tuple[Step, ...] = Field(min_length=1)
    """In the order in which they lead away from the threshold."""

    @model_validator(mode="after")
    def _datapoints_and_steps(self) -> "ScalingRule":
        if self.datapoints_to_alarm > self.evaluation_periods:
            raise ValueError(
                f"datapoints_to_alarm {self.datapoints_to_alarm} is more than "
                f"evaluation_periods {self.evaluation_periods}: the alarm could never fire"
            )
        near, other = ("lower_bound", "upper_bound") if self._rises else ("upper_bound", "lower_bound")
        if any(getattr(step, other) is not None for step in self.steps):
            raise ValueError(f"a step {self.comparison} the threshold has its {near}; it ends where the next begins")
        starts = [abs(getattr(step, near) or 0) for step in self.steps]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"the steps' {near} must start at 0 and lead away from it, not {starts}")
        signs = {step.adjustment > 0 for step in self.steps}
        if 0 in (step.adjustment for step in self.steps) or len(signs) > 1:
            raise ValueError("the steps of one rule either all add hosts or all remove hosts")
        return self

    @property
    def _rises(self) -> bool:
        return self.comparison is Comparison.ABOVE

    @property
    def adds_hosts(self) -> bool:
        """Whether the rule scales out (otherwise in)."""
        return self.steps[0].adjustment > 0

    @property
    def bands(self) -> tuple[Band, ...]:
        """What each step covers, as a step policy has them."""
        if self._rises:
            ends = pairwise((*(step.lower_bound or 0 for step in self.steps), math.inf))
            return tuple(Band(near, far, step.adjustment) for step, (near, far) in zip(self.steps, ends, strict=True))
        ends = pairwise((*(step.upper_bound or 0 for step in self.steps), -math.inf))
        return tuple(Band(far, near, step.adjustment) for step, (near, far) in zip(self.steps, ends, strict=True))


def _names_differ(rules: tuple[ScalingRule, ...]) -> tuple[ScalingRule, ...]:
    names = [rule.name for rule in rules]
    if len(set(names)) != len(names):
        raise ValueError(f"two rules of one fleet have the same name: {', '.join(names)}")
    return rules


ScalingRules = Annotated[tuple[ScalingRule, ...], AfterValidator(_names_differ)]
"""The rules of one fleet; a rule's name becomes its alarm's."""
