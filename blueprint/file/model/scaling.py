"""Scaling as data: one rule is one metric, one alarm and one step policy."""

from enum import StrEnum
from typing import Annotated

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
    """One band of a step policy, in the metric's unit, measured away from the threshold."""

    beyond: float = Field(default=0, ge=0)
    """The band starts this far past the threshold, in the direction of the breach."""
    change: int
    """Hosts to add (positive) or remove (negative); in every availability zone for the VAD fleet."""


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
    """Length of one datapoint, seconds."""
    breaching_datapoints: int = Field(gt=0)
    """M of M-of-N: so many datapoints must breach ..."""
    evaluated_datapoints: int = Field(gt=0)
    """... among the last N."""
    missing_data: MissingData
    steps: tuple[Step, ...] = Field(min_length=1)
    """Bands in rising order of ``beyond``; the first starts at 0."""

    @model_validator(mode="after")
    def _datapoints_and_steps(self) -> "ScalingRule":
        if self.breaching_datapoints > self.evaluated_datapoints:
            raise ValueError(
                f"breaching_datapoints {self.breaching_datapoints} is more than "
                f"evaluated_datapoints {self.evaluated_datapoints}: the alarm could never fire"
            )
        starts = [step.beyond for step in self.steps]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"steps must start at beyond: 0 and rise strictly, not {starts}")
        signs = {step.change > 0 for step in self.steps}
        if 0 in (step.change for step in self.steps) or len(signs) > 1:
            raise ValueError("the steps of one rule either all add hosts or all remove hosts")
        return self

    @property
    def adds_hosts(self) -> bool:
        """Whether the rule scales out (otherwise in)."""
        return self.steps[0].change > 0

    def change_at(self, value: float) -> int:
        """Return the hosts to add or remove for a breaching datapoint; 0 when ``value`` does not breach."""
        distance = value - self.threshold if self.comparison is Comparison.ABOVE else self.threshold - value
        if distance <= 0:
            return 0
        return next(step.change for step in reversed(self.steps) if distance >= step.beyond)


def _names_differ(rules: tuple[ScalingRule, ...]) -> tuple[ScalingRule, ...]:
    names = [rule.name for rule in rules]
    if len(set(names)) != len(names):
        raise ValueError(f"two rules of one fleet have the same name: {', '.join(names)}")
    return rules


ScalingRules = Annotated[tuple[ScalingRule, ...], AfterValidator(_names_differ)]
"""The rules of one fleet; a rule's name becomes its alarm's."""
