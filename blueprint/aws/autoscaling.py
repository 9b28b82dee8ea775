"""EC2 Auto Scaling's rules, in one place for the sandbox's drill and the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass

from blueprint.aws.alarms import AlarmRule
from blueprint.file.model.scaling import Band, ScalingRule

ACTION_REPEAT_S = 60
"""While an alarm stays in ALARM its Auto Scaling actions are repeated so often.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-actions.html"""


def step_adjustment(bands: Sequence[Band], distance: float) -> int:
    """Return the adjustment of the step that a breach falls into; 0 where none does.

    Past the threshold upwards the lower bound belongs to a step, past it downwards the upper one:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html

    Args:
        bands: What the steps of the policy cover.
        distance: Metric value minus alarm threshold.
    """
    for band in bands:
        if band.lower <= distance < band.upper if distance > 0 else band.lower < distance <= band.upper:
            return band.adjustment
    return 0


def alarm_of(rule: ScalingRule) -> AlarmRule:
    return AlarmRule(
        comparison=rule.comparison,
        threshold=rule.threshold,
        datapoints_to_alarm=rule.datapoints_to_alarm,
        evaluation_periods=rule.evaluation_periods,
        missing_data=rule.missing_data,
    )


@dataclass(frozen=True)
class GroupSize:
    """Hosts of one Auto Scaling group.

    Attributes:
        desired: Hosts that the group is to have.
        in_service: Hosts that are through their instance warm-up.
        warming: Hosts that have been launched and are not.
        terminating: Hosts on their way out, which count as neither.
    """

    desired: int
    minimum: int
    maximum: int
    in_service: int
    warming: int = 0
    terminating: int = 0

    def clamp(self, hosts: int) -> int:
        """Return the nearest number of hosts that the group may have."""
        return min(max(hosts, self.minimum), self.maximum)


def desired_after(size: GroupSize, adjustment: int) -> int:
    """Return the desired capacity after a step adjustment of the type ``ChangeInCapacity``.

    Scaling out starts from the hosts that are through their warm-up, so that a breach that lasts while they warm up
    does not add them again; scaling in counts terminating hosts as still there, and waits until nothing warms up:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html ("Instance warmup").
    """
    if adjustment > 0:
        return size.clamp(max(size.desired, size.in_service + adjustment))
    if size.warming:
        return size.desired
    return size.clamp(min(size.desired, size.in_service + size.terminating + adjustment))
