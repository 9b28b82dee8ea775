"""Scalers for a fleet: step policies, target tracking on CPU, replicas by queue length."""

import math
from abc import ABC, abstractmethod
from collections import deque

import numpy as np
import simpy

from voice_blueprint.aws.alarms import AlarmRule, AlarmState, count_evaluated_periods, evaluate_alarm
from voice_blueprint.aws.autoscaling import (
    ACTION_REPEAT_INTERVAL_S,
    GroupSize,
    adjust_desired_capacity,
    build_alarm_rule,
    find_step_adjustment,
)
from voice_blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic
from voice_blueprint.observability.azure.scaling import REPLICA_TARGET_UTILIZATION, ScalingBehavior
from voice_ops.simulate.calls import CallSimulator
from voice_ops.simulate.fleet import Fleet, Group, ProcessGenerator
from voice_ops.simulate.metrics import METRIC_MODELS, MetricPeriod, calculate_load_percent


class Scaler(ABC):
    """Base class for scalers, which change the size of a fleet.

    Attributes:
        action_count: Number of actions.
    """

    action_count = 0

    @abstractmethod
    def sample(self) -> None:
        """Record the current metrics of the hosts."""

    @abstractmethod
    def evaluate_periodically(self) -> ProcessGenerator:
        """Evaluate the samples periodically."""


class AlarmScaler(Scaler):
    """Base class for scalers that execute the action of an alarm."""

    def __init__(self, env: simpy.Environment, alarm: AlarmRule, period_s: int, statistic: Statistic) -> None:
        self._env, self._alarm, self._period_s = env, alarm, period_s
        self._period = MetricPeriod(statistic)

    @abstractmethod
    def execute_action(self, value: float) -> None:
        """Execute the action of the alarm for the latest datapoint."""

    def evaluate_periodically(self) -> ProcessGenerator:
        """Evaluate the alarm after each period; in ALARM, act immediately and then every minute."""
        window: deque[float | None] = deque(maxlen=count_evaluated_periods(self._alarm))
        state, acted_at = AlarmState.OK, -math.inf
        while True:
            yield self._env.timeout(self._period_s)
            newest = self._period.close()
            window.append(newest)
            before, state = state, evaluate_alarm(self._alarm, tuple(window), state)
            entered = state is AlarmState.ALARM and before is not AlarmState.ALARM
            due = state is AlarmState.ALARM and self._env.now - acted_at >= ACTION_REPEAT_INTERVAL_S
            if newest is not None and (entered or due):
                acted_at = self._env.now
                self.action_count += 1
                self.execute_action(newest)


class StepScaler(AlarmScaler):
    """Scaler for a scaling rule, with an alarm on the whole fleet and a step policy for each group."""

    def __init__(self, env: simpy.Environment, fleet: Fleet, rule: ScalingRule) -> None:
        super().__init__(env, build_alarm_rule(rule), rule.period_s, rule.statistic)
        self._fleet, self._rule, self._bands = fleet, rule, rule.step_adjustments

    def sample(self) -> None:
        """Record the current values of the metric in the rule."""
        if self._rule.metric not in self._fleet.silent_metrics:
            self._period.add(METRIC_MODELS[self._rule.metric](self._fleet)[self._fleet.live])

    def execute_action(self, value: float) -> None:
        """Adjust every group by the step that matches the datapoint."""
        adjustment = find_step_adjustment(self._bands, value - self._rule.threshold)
        for group in self._fleet.groups if adjustment else ():
            group.resize(adjust_desired_capacity(group.size, adjustment))


CPU_TARGET_PERCENT = 50.0
"""Target in percent: the value in AWS's examples of target tracking on ``ASGAverageCPUUtilization``."""
_TRACKING_PERIOD_S = 60


class TargetTrackingScaler(AlarmScaler):
    """Scaler for one of the two alarms of a target tracking policy on the utilization of the slots in a group.

    The alarms are those that AWS creates: three minutes above the target, and fifteen minutes below 90 % of the target.
    The capacity is proportional to the metric, rounded up to whole hosts:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-target-tracking.html. Only hosts that have
    completed their warm-up count for the metric, hosts are not removed while others warm up, and draining hosts count
    as capacity until they terminate.

    For a service of tasks, the tracked metric is sockets or conversations. For hosts, CPU utilization is assumed to
    equal the utilization of slots. This favours target tracking on CPU, since a VAD host's polled cores are always
    busy, and the CPU of an accelerator host does not reflect the load of the accelerator.

    Args:
        target: Target, percent.
    """

    def __init__(self, env: simpy.Environment, group: Group, target: float, *, grows: bool) -> None:
        alarm = (
            AlarmRule(Comparison.ABOVE, target, 3, 3, MissingData.MISSING)
            if grows
            else AlarmRule(Comparison.BELOW, 0.9 * target, 15, 15, MissingData.MISSING)
        )
        super().__init__(env, alarm, _TRACKING_PERIOD_S, Statistic.AVERAGE)
        self._target = target
        self._group, self._group_index, self._grows = group, group.fleet.groups.index(group), grows

    def sample(self) -> None:
        """Record the current utilization of the hosts in the group."""
        fleet = self._group.fleet
        counted = fleet.settled & (fleet.group == self._group_index)
        if self._grows:
            counted &= fleet.open
        self._period.add(np.minimum(100.0, calculate_load_percent(fleet)[counted]))

    def execute_action(self, value: float) -> None:
        """Set the group's size so that the metric reaches the target."""
        self._group.resize(calculate_capacity_for_target(self._group.size, value, self._target, grows=self._grows))


def calculate_capacity_for_target(
    size: GroupSize, value: float, target: float = CPU_TARGET_PERCENT, *, grows: bool
) -> int:
    """Return the desired capacity that brings a metric to its target.

    Args:
        size: The group.
        value: Value of the metric, percent.
        target: Target value, percent.
        grows: Whether the policy may only add hosts; otherwise, it may only remove them.
    """
    if grows:
        return max(size.desired, size.clamp(math.ceil(size.in_service_host_count * value / target)))
    if size.warming_host_count:
        return size.desired
    return min(
        size.desired, size.clamp(math.ceil((size.in_service_host_count + size.terminating_host_count) * value / target))
    )


_SYNC_S, _TOLERANCE = 15, 0.1
DEFAULT_SCALE_UP = ScalingBehavior(pods=4, percent=100, period_s=15, stabilization_window_s=0)
DEFAULT_SCALE_DOWN = ScalingBehavior(pods=0, percent=100, period_s=15, stabilization_window_s=300)
"""Default rate limits in Kubernetes:
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#default-behavior"""


class QueueScaler(Scaler):
    """Scaler for a group by running and waiting requests, like KEDA with a Kubernetes autoscaler.

    Every 15 s, the scaler sets the number of hosts that these requests need at the target utilization, with a tolerance
    of 10 % and rate limits. A refused caller counts as waiting, which favours this policy, since callers do not wait
    here.

    Args:
        share: The group's share of waiting calls.
        up: Rate limits of scale-out; the defaults are those of Kubernetes.
        down: Rate limits of scale-in.
        target: Target utilization of the group's slots.
    """

    def __init__(  # noqa: PLR0917
        self,
        env: simpy.Environment,
        group: Group,
        calls: CallSimulator,
        share: float,
        up: ScalingBehavior = DEFAULT_SCALE_UP,
        down: ScalingBehavior = DEFAULT_SCALE_DOWN,
        target: float = REPLICA_TARGET_UTILIZATION,
    ) -> None:
        self._env, self._group, self._calls, self._share, self._target = env, group, calls, share, target
        self._scale_up_policy, self._scale_down_policy = up, down
        self._group_index = group.fleet.groups.index(group)
        self._requested_counts: deque[int] = deque(maxlen=down.stabilization_window_s // _SYNC_S)
        self._host_counts: deque[int] = deque(maxlen=max(up.period_s, down.period_s) // _SYNC_S)

    def sample(self) -> None:
        """Do nothing, since only the current values matter at each evaluation."""

    def evaluate_periodically(self) -> ProcessGenerator:
        """Evaluate every 15 s."""
        while True:
            yield self._env.timeout(_SYNC_S)
            fleet, size = self._group.fleet, self._group.size
            in_flight = int(
                fleet.calls[fleet.group == self._group_index].sum()
            ) + self._share * self._calls.calculate_waiting_calls(self._env.now)
            self._requested_counts.append(
                calculate_capacity_for_queue(size, in_flight / (fleet.plan.slots * self._target))
            )
            self._host_counts.append(size.desired)
            low, high = self._calculate_host_bounds()
            desired = size.clamp(
                min(max(self._requested_counts), high)
                if self._requested_counts[-1] > size.desired
                else max(*self._requested_counts, low)
            )
            if desired != size.desired:
                self.action_count += 1
                self._group.resize(desired)

    def _calculate_host_bounds(self) -> tuple[int, int]:
        """Return the minimum and maximum number of hosts that the rate limits allow after the latest changes."""
        host_counts = list(self._host_counts)
        max_hosts = min(host_counts[-self._scale_up_policy.period_s // _SYNC_S :])
        min_hosts = max(host_counts[-self._scale_down_policy.period_s // _SYNC_S :])
        max_removed = max(self._scale_down_policy.pods, math.floor(min_hosts * self._scale_down_policy.percent / 100))
        return min_hosts - max_removed, max_hosts + max(
            self._scale_up_policy.pods, math.floor(max_hosts * self._scale_up_policy.percent / 100)
        )


def calculate_capacity_for_queue(size: GroupSize, hosts: float) -> int:
    """Return the desired number of hosts for a queue.

    Args:
        size: The group.
        hosts: Number of hosts that the queue requires. Within the tolerance, the current number is kept.
    """
    is_within_tolerance = abs(hosts - size.desired) <= _TOLERANCE * size.desired
    return size.desired if is_within_tolerance else math.ceil(hosts)
