"""The model of Auto Scaling reproduces the examples of its user guide."""

import pytest

from voice_blueprint.aws.alarms import AlarmState, evaluate_alarm
from voice_blueprint.aws.autoscaling import GroupSize, adjust_desired_capacity, build_alarm_rule, find_step_adjustment
from voice_blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic, Step, StepAdjustment


def rule(comparison: Comparison, threshold: float, *steps: Step) -> ScalingRule:
    return ScalingRule(
        name="rule",
        metric="GpuBusy",
        statistic=Statistic.AVERAGE,
        comparison=comparison,
        threshold=threshold,
        period_s=10,
        datapoints_to_alarm=2,
        evaluation_periods=3,
        missing_data=MissingData.NOT_BREACHING,
        steps=steps,
    )


HIGH = rule(Comparison.ABOVE, 80, Step(adjustment=1), Step(lower_bound=5, adjustment=3))
LOW = rule(Comparison.BELOW, 20, Step(adjustment=1), Step(upper_bound=-10, adjustment=3))


def test_bands_are_relative_to_the_threshold_and_contiguous() -> None:
    assert HIGH.step_adjustments == (StepAdjustment(0, 5, 1), StepAdjustment(5, float("inf"), 3))
    assert LOW.step_adjustments == (StepAdjustment(-10, 0, 1), StepAdjustment(float("-inf"), -10, 3))


def test_a_value_on_the_other_side_changes_nothing() -> None:
    assert find_step_adjustment(HIGH.step_adjustments, -1) == 0
    assert find_step_adjustment(LOW.step_adjustments, 1) == 0


def test_the_alarm_matches_the_rule() -> None:
    alarm = build_alarm_rule(HIGH)
    assert evaluate_alarm(alarm, (None, None, 90, 70, 90), AlarmState.OK) is AlarmState.ALARM
    assert evaluate_alarm(alarm, (None, None, 70, 70, 90), AlarmState.OK) is AlarmState.OK


def test_a_breach_during_warm_up_does_not_scale_out_twice() -> None:
    # The guide's example: 10 hosts and one starting; the same step adds none, the step of 3 adds 2.
    size = GroupSize(desired=11, minimum=10, maximum=20, in_service_host_count=10, warming_host_count=1)
    assert adjust_desired_capacity(size, 1) == 11
    assert adjust_desired_capacity(size, 3) == 13


def test_scale_in_waits_for_warm_up_and_counts_terminating_hosts() -> None:
    assert adjust_desired_capacity(GroupSize(5, 1, 9, in_service_host_count=4, warming_host_count=1), -1) == 5
    assert adjust_desired_capacity(GroupSize(5, 1, 9, in_service_host_count=5), -1) == 4
    assert adjust_desired_capacity(GroupSize(4, 1, 9, in_service_host_count=4, terminating_host_count=1), -1) == 4


@pytest.mark.parametrize(("change", "desired"), [(9, 6), (-9, 2)])
def test_desired_hosts_stay_within_the_bounds(change: int, desired: int) -> None:
    assert adjust_desired_capacity(GroupSize(4, 2, 6, in_service_host_count=4), change) == desired
