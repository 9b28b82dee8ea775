"""Who changes the size of a fleet: step policies from scaling rules, target tracking on CPU, replicas by a queue."""

import math
from abc import ABC, abstractmethod
from collections import deque

import numpy as np
import simpy

from blueprint.aws.alarms import AlarmRule, AlarmState, evaluate, evaluation_range
from blueprint.aws.autoscaling import ACTION_REPEAT_S, GroupSize, alarm_of, desired_after, step_adjustment
from blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic
from ops.simulate.calls import Calls
from ops.simulate.fleet import Fleet, Group, Steps
from ops.simulate.metrics import MODELS, Period, load_percent


class Scaler(ABC):
    """Whatever changes the size of a fleet.

    Attributes:
        actions: How often it has acted.
    """

    actions = 0

    @abstractmethod
    def sample(self) -> None:
        """Take what the hosts publish now."""

    @abstractmethod
    def watch(self) -> Steps:
        """Judge what was taken, for ever."""


class AlarmScaler(Scaler):
    """One alarm and its action."""

    def __init__(self, env: simpy.Environment, alarm: AlarmRule, period_s: int, statistic: Statistic) -> None:
        self._env, self._alarm, self._period_s = env, alarm, period_s
        self._period = Period(statistic)

    @abstractmethod
    def act(self, value: float) -> None:
        """Do what the alarm's action says, for its newest datapoint."""

    def watch(self) -> Steps:
        """Judge the alarm after each period; while it is in ALARM, act at once and every minute from then on."""
        window: deque[float | None] = deque(maxlen=evaluation_range(self._alarm))
        state, acted_at = AlarmState.OK, -math.inf
        while True:
            yield self._env.timeout(self._period_s)
            newest = self._period.close()
            window.append(newest)
            before, state = state, evaluate(self._alarm, tuple(window), state)
            entered = state is AlarmState.ALARM and before is not AlarmState.ALARM
            due = state is AlarmState.ALARM and self._env.now - acted_at >= ACTION_REPEAT_S
            if newest is not None and (entered or due):
                acted_at = self._env.now
                self.actions += 1
                self.act(newest)


class StepScaler(AlarmScaler):
    """A scaling rule: its alarm on the whole fleet, its step policy on each of the fleet's groups."""

    def __init__(self, env: simpy.Environment, fleet: Fleet, rule: ScalingRule) -> None:
        super().__init__(env, alarm_of(rule), rule.period_s, rule.statistic)
        self._fleet, self._rule, self._bands = fleet, rule, rule.bands

    def sample(self) -> None:
        """Take what the hosts publish now."""
        if self._rule.metric not in self._fleet.silent:
            self._period.add(MODELS[self._rule.metric](self._fleet)[self._fleet.live])

    def act(self, value: float) -> None:
        """Change every group by the step that the value falls into."""
        adjustment = step_adjustment(self._bands, value - self._rule.threshold)
        for group in self._fleet.groups if adjustment else ():
            group.resize(desired_after(group.size, adjustment))


CPU_TARGET = 50.0
"""Percent; the value of AWS's own examples of target tracking on ``ASGAverageCPUUtilization``."""
_TRACKING_PERIOD_S = 60
_HIGH = AlarmRule(Comparison.ABOVE, CPU_TARGET, 3, 3, MissingData.MISSING)
_LOW = AlarmRule(Comparison.BELOW, 0.9 * CPU_TARGET, 15, 15, MissingData.MISSING)


class CpuTracker(AlarmScaler):
    """One of the two alarms of a target-tracking policy on a group's CPU.

    The alarms are those that AWS makes: three minutes above the target, fifteen below nine tenths of it. The capacity
    is proportional to the metric, in whole hosts upwards:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-target-tracking.html. Only hosts through their
    warm-up count for the metric, nothing is taken away while others warm up, and hosts that drain count as capacity
    until they have gone.

    CPU is taken to be the share of a host's places that is in use. That flatters this policy: a VAD host's polled cores
    are always busy, and an accelerator host's CPU says little of its accelerator.
    """

    def __init__(self, env: simpy.Environment, group: Group, *, grows: bool) -> None:
        super().__init__(env, _HIGH if grows else _LOW, _TRACKING_PERIOD_S, Statistic.AVERAGE)
        self._group, self._number, self._grows = group, group.fleet.groups.index(group), grows

    def sample(self) -> None:
        """Take the CPU of the group's hosts now."""
        fleet = self._group.fleet
        counted = fleet.settled & (fleet.group == self._number)
        if self._grows:
            counted &= fleet.open
        self._period.add(np.minimum(100.0, load_percent(fleet)[counted]))

    def act(self, value: float) -> None:
        """Size the group so that its CPU would be at the target."""
        self._group.resize(tracked(self._group.size, value, grows=self._grows))


def tracked(size: GroupSize, value: float, *, grows: bool) -> int:
    """Return the desired capacity that brings a metric to its target.

    Args:
        size: The group.
        value: The metric, percent.
        grows: Whether it may only add hosts, or only remove them.
    """
    if grows:
        return max(size.desired, size.clamp(math.ceil(size.in_service * value / CPU_TARGET)))
    if size.warming:
        return size.desired
    return min(size.desired, size.clamp(math.ceil((size.in_service + size.terminating) * value / CPU_TARGET)))


QUEUE_TARGET = 0.8
"""Share of a host's places, in calls that it has and that wait, at which the next host is asked for; that of our own
KEDA triggers on Azure (constructs/voice_constructs/azure/kubernetes/scaling.py)."""
_SYNC_S, _TOLERANCE, _SETTLE_S = 15, 0.1, 300
_DOUBLE, _FOUR = 2, 4


class QueueScaler(Scaler):
    """KEDA's scaling of a group on the requests that run and wait, through a Kubernetes autoscaler with its defaults.

    Every 15 s: hosts for all of them, ``QUEUE_TARGET`` filled; nothing within a tenth of that; at most twice the hosts,
    or four more; fewer only when nothing in 5 minutes has asked for more:
    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#default-behavior. A caller who is refused
    counts as one who waits, which flatters this policy: here nobody does.

    Args:
        share: The group's part of the calls that wait.
    """

    def __init__(self, env: simpy.Environment, group: Group, calls: Calls, share: float) -> None:
        self._env, self._group, self._calls, self._share = env, group, calls, share
        self._number = group.fleet.groups.index(group)
        self._asked: deque[int] = deque(maxlen=_SETTLE_S // _SYNC_S)

    def sample(self) -> None:
        """Nothing: what counts is what there is when it looks."""

    def watch(self) -> Steps:
        """Look every 15 s."""
        while True:
            yield self._env.timeout(_SYNC_S)
            fleet, size = self._group.fleet, self._group.size
            in_flight = int(fleet.calls[fleet.group == self._number].sum()) + self._share * self._calls.waiting(
                self._env.now
            )
            self._asked.append(queued(size, in_flight / (fleet.plan.places * QUEUE_TARGET)))
            wanted = size.clamp(min(max(self._asked), max(size.desired * _DOUBLE, size.desired + _FOUR)))
            if wanted != size.desired:
                self.actions += 1
                self._group.resize(wanted)


def queued(size: GroupSize, hosts: float) -> int:
    """Return the hosts that a queue asks for: as many as it fills to the target, or those that are nearly enough."""
    near = abs(hosts - size.desired) <= _TOLERANCE * size.desired
    return size.desired if near else math.ceil(hosts)
