"""Scaling rules: bands relative to the threshold in both directions, and invalid rules."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from voice_blueprint.aws.alarms import AlarmRule
from voice_blueprint.aws.autoscaling import build_alarm_rule, find_step_adjustment
from voice_blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic, Step

ONE_STEP = (Step(adjustment=1),)


def rule(
    comparison: Comparison = Comparison.ABOVE,
    steps: tuple[Step, ...] = ONE_STEP,
    threshold: float = 80,
    breaching: int = 2,
    evaluated: int = 3,
) -> ScalingRule:
    return ScalingRule(
        name="rule",
        metric="GpuBusy",
        statistic=Statistic.AVERAGE,
        comparison=comparison,
        threshold=threshold,
        period_s=10,
        datapoints_to_alarm=breaching,
        evaluation_periods=evaluated,
        missing_data=MissingData.NOT_BREACHING,
        steps=steps,
    )


SCALE_OUT = rule(
    Comparison.ABOVE, (Step(adjustment=1), Step(lower_bound=5, adjustment=2), Step(lower_bound=15, adjustment=4))
)
SCALE_IN = rule(Comparison.BELOW, (Step(adjustment=-1), Step(upper_bound=-10, adjustment=-2)), 30)


def adjustment_at(scaling: ScalingRule, value: float) -> int:
    if not build_alarm_rule(scaling).is_breached_by(value):
        return 0
    return find_step_adjustment(scaling.step_adjustments, value - scaling.threshold)


@pytest.mark.parametrize(
    ("value", "change"),
    [(0, 0), (79.9, 0), (80, 0), (80.1, 1), (84.9, 1), (85, 2), (94.9, 2), (95, 4), (100, 4), (1e9, 4)],
)
def test_bands_above_the_threshold(value: float, change: int) -> None:
    # In Auto Scaling, bands above the threshold include their lower bound and exclude their upper bound.
    assert adjustment_at(SCALE_OUT, value) == change


@pytest.mark.parametrize(
    ("value", "change"), [(100, 0), (30.1, 0), (30, 0), (29.9, -1), (20.1, -1), (20, -2), (19.9, -2), (-1e9, -2)]
)
def test_bands_below_the_threshold(value: float, change: int) -> None:
    # Bands below the threshold include their upper bound and exclude their lower bound.
    assert adjustment_at(SCALE_IN, value) == change


def test_direction_follows_from_the_adjustments() -> None:
    assert SCALE_OUT.adds_hosts
    assert not SCALE_IN.adds_hosts
    # A falling metric, such as headroom, adds hosts below its threshold.
    headroom = rule(Comparison.BELOW, (Step(adjustment=1), Step(upper_bound=-10, adjustment=3)), 20)
    assert headroom.adds_hosts
    assert [adjustment_at(headroom, value) for value in (25, 20, 15, 10, 0)] == [0, 0, 1, 3, 3]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "at least 1"),
        ((Step(lower_bound=5, adjustment=1),), "lower_bound must start at 0"),
        ((Step(adjustment=1), Step(adjustment=2)), "move away from it"),
        (
            (Step(adjustment=1), Step(lower_bound=9, adjustment=2), Step(lower_bound=5, adjustment=3)),
            "move away from it",
        ),
        ((Step(adjustment=1), Step(upper_bound=-5, adjustment=2)), "above the threshold has its lower_bound"),
        ((Step(adjustment=0),), "either all add hosts or all remove"),
        ((Step(adjustment=1), Step(lower_bound=5, adjustment=-1)), "either all add hosts or all remove"),
        ((Step(adjustment=-1), Step(lower_bound=5, adjustment=0)), "either all add hosts or all remove"),
    ],
)
def test_invalid_steps_are_refused(steps: tuple[Step, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        rule(steps=steps)


def test_a_band_starts_in_the_direction_of_the_breach() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Step(lower_bound=-1, adjustment=1)
    with pytest.raises(ValidationError, match="less than or equal to 0"):
        Step(upper_bound=1, adjustment=1)


@pytest.mark.parametrize(("breaching", "evaluated"), [(4, 3), (0, 3), (1, 0), (-1, -1)])
def test_invalid_datapoints_are_refused(breaching: int, evaluated: int) -> None:
    with pytest.raises(ValidationError):
        rule(breaching=breaching, evaluated=evaluated)


@pytest.mark.parametrize(("breaching", "evaluated"), [(3, 3), (1, 3), (1, 1)])
def test_valid_datapoints_are_accepted(breaching: int, evaluated: int) -> None:
    assert rule(breaching=breaching, evaluated=evaluated).datapoints_to_alarm == breaching


finite = st.floats(-1e6, 1e6)


@st.composite
def rules(draw: st.DrawFn) -> ScalingRule:
    """Draw realistic rules, whose adjustments grow with the distance from the threshold."""
    starts = sorted(draw(st.sets(st.integers(1, 100), max_size=4)))
    sign = draw(st.sampled_from([1, -1]))
    comparison = draw(st.sampled_from(Comparison))
    changes = sorted(draw(st.lists(st.integers(1, 9), min_size=len(starts) + 1, max_size=len(starts) + 1)))
    bound, away = ("lower_bound", 1) if comparison is Comparison.ABOVE else ("upper_bound", -1)
    steps = tuple(
        Step.model_validate({bound: float(away * start), "adjustment": sign * change})
        for start, change in zip([0, *starts], changes, strict=True)
    )
    return rule(comparison, steps, draw(finite))


@given(one=rules(), value=finite)
def test_hosts_change_exactly_when_the_alarm_breaches(one: ScalingRule, value: float) -> None:
    alarm = AlarmRule(one.comparison, one.threshold, 1, 1, one.missing_data)
    assert (adjustment_at(one, value) != 0) == alarm.is_breached_by(value)


@given(one=rules(), distances=st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)))
def test_a_greater_distance_from_the_threshold_never_changes_fewer_hosts(
    one: ScalingRule, distances: tuple[float, float]
) -> None:
    sign = 1 if one.comparison is Comparison.ABOVE else -1
    near, far = (abs(adjustment_at(one, one.threshold + sign * distance)) for distance in sorted(distances))
    assert near <= far
    assert far <= abs(one.steps[-1].adjustment)


@given(one=rules(), value=finite)
def test_every_change_matches_one_of_the_steps(one: ScalingRule, value: float) -> None:
    change = adjustment_at(one, value)
    assert change in {0, *(step.adjustment for step in one.steps)}
    assert change == 0 or math.copysign(1, change) == math.copysign(1, one.steps[0].adjustment)
