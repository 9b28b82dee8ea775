"""Rules of EC2 Auto Scaling, shared by the sandbox's drill and the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass

from voice_blueprint.aws.alarms import AlarmRule
from voice_blueprint.file.model.scaling import ScalingRule, StepAdjustment

ACTION_REPEAT_INTERVAL_S = 60
"""Interval at which the Auto Scaling actions of an alarm in ALARM are repeated.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-actions.html"""


def find_step_adjustment(step_adjustments: Sequence[StepAdjustment], distance: float) -> int:
    """Return the adjustment of the step that matches a breach, or 0.

    Above the threshold, the lower bound of a step is inclusive; below the threshold, the upper bound is:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html

    Args:
        step_adjustments: Ranges of the policy's steps.
        distance: Metric value minus alarm threshold.
    """
    for band in step_adjustments:
        if band.lower <= distance < band.upper if distance > 0 else band.lower < distance <= band.upper:
            return band.adjustment
    return 0


def build_alarm_rule(rule: ScalingRule) -> AlarmRule:
    return AlarmRule(
        comparison=rule.comparison,
        threshold=rule.threshold,
        datapoints_to_alarm=rule.datapoints_to_alarm,
        evaluation_periods=rule.evaluation_periods,
        missing_data=rule.missing_data,
    )


@dataclass(frozen=True)
class GroupSize:
    """Size of an Auto Scaling group.

    Attributes:
        desired: Desired capacity.
        in_service_host_count: Hosts that have completed their instance warm-up.
        warming_host_count: Hosts that have been launched but have not completed their instance warm-up.
        terminating_host_count: Hosts that are being terminated; neither of the other counts includes them.
    """

    desired: int
    minimum: int
    maximum: int
    in_service_host_count: int
    warming_host_count: int = 0
    terminating_host_count: int = 0

    def clamp(self, hosts: int) -> int:
        """Return the nearest permitted number of hosts."""
        return min(max(hosts, self.minimum), self.maximum)


def adjust_desired_capacity(size: GroupSize, adjustment: int) -> int:
    """Return the desired capacity after a ``ChangeInCapacity`` step adjustment.

    A scale-out adjustment is added to the number of hosts that have completed their warm-up. A breach that continues
    while hosts warm up therefore does not add more hosts. Scale-in also counts terminating hosts, and waits until no
    host is warming up: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html ("Instance
    warmup").
    """
    if adjustment > 0:
        return size.clamp(max(size.desired, size.in_service_host_count + adjustment))
    if size.warming_host_count:
        return size.desired
    return size.clamp(min(size.desired, size.in_service_host_count + size.terminating_host_count + adjustment))
