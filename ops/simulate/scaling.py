"""Who changes the size of a fleet: step policies from scaling rules, target tracking on CPU, replicas by a queue."""

import math
from abc import ABC, abstractmethod
from collections import deque

import numpy as np
import simpy

from blueprint.aws.alarms import AlarmRule, AlarmState, evaluate, evaluation_range
from blueprint.aws.autoscaling import ACTION_REPEAT_S, GroupSize, alarm_of, desired_after, step_adjustment
from blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic
from blueprint.observability.azure_scaling import TARGET_SHARE, Pace
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


class Tracker(AlarmScaler):
    """One of the two alarms of a target-tracking policy on the share of a group's places that is in use.

    The alarms are those that AWS makes: three minutes above the target, fifteen below nine tenths of it. The capacity
    is proportional to the metric, in whole hosts upwards:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-target-tracking.html. Only hosts through their
    warm-up count for the metric, nothing is taken away while others warm up, and hosts that drain count as capacity
    until they have gone.

    Of a service of tasks that is what it tracks, its sockets or conversations. CPU is taken to be the same, which
    flatters that policy: a VAD host's polled cores are always busy, and an accelerator host's CPU says little of its
    accelerator.

    Args:
        target: Percent.
    """

    def __init__(self, env: simpy.Environment, group: Group, target: float, *, grows: bool) -> None:
        alarm = (
            AlarmRule(Comparison.ABOVE, target, 3, 3, MissingData.MISSING)
            if grows
            else AlarmRule(Comparison.BELOW, 0.9 * target, 15, 15, MissingData.MISSING)
        )
        super().__init__(env, alarm, _TRACKING_PERIOD_S, Statistic.AVERAGE)
        self._target = target
        self._group, self._number, self._grows = group, group.fleet.groups.index(group), grows

    def sample(self) -> None:
        """Take what the group's hosts have in use now."""
        fleet = self._group.fleet
        counted = fleet.settled & (fleet.group == self._number)
        if self._grows:
            counted &= fleet.open
        self._period.add(np.minimum(100.0, load_percent(fleet)[counted]))

    def act(self, value: float) -> None:
        """Size the group so that it would be at the target."""
        self._group.resize(tracked(self._group.size, value, self._target, grows=self._grows))


def tracked(size: GroupSize, value: float, target: float = CPU_TARGET, *, grows: bool) -> int:
    """Return the desired capacity that brings a metric to its target.

    Args:
        size: The group.
        value: The metric, percent.
        target: What it is to be, percent.
        grows: Whether it may only add hosts, or only remove them.
    """
    if grows:
        return max(size.desired, size.clamp(math.ceil(size.in_service * value / target)))
    if size.warming:
        return size.desired
    return min(size.desired, size.clamp(math.ceil((size.in_service + size.terminating) * value / target)))


_SYNC_S, _TOLERANCE = 15, 0.1
DEFAULT_UP = Pace(pods=4, percent=100, period_s=15, settle_s=0)
DEFAULT_DOWN = Pace(pods=0, percent=100, period_s=15, settle_s=300)
"""https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#default-behavior"""


class QueueScaler(Scaler):
    """KEDA's scaling of a group on the requests that run and wait, through a Kubernetes autoscaler.

    Every 15 s: hosts for all of them, filled to a target; nothing within a tenth of that; no faster than it may. A
    caller who is refused counts as one who waits, which flatters this policy: here nobody does.

    Args:
        share: The group's part of the calls that wait.
        up: How fast it may grow; the defaults are Kubernetes' own.
        down: How fast it may shrink.
        target: Share of its places that is to be filled.
    """

    def __init__(  # noqa: PLR0917
        self,
        env: simpy.Environment,
        group: Group,
        calls: Calls,
        share: float,
        up: Pace = DEFAULT_UP,
        down: Pace = DEFAULT_DOWN,
        target: float = TARGET_SHARE,
    ) -> None:
        self._env, self._group, self._calls, self._share, self._target = env, group, calls, share, target
        self._up, self._down = up, down
        self._number = group.fleet.groups.index(group)
        self._asked: deque[int] = deque(maxlen=down.settle_s // _SYNC_S)
        self._had: deque[int] = deque(maxlen=max(up.period_s, down.period_s) // _SYNC_S)

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
            self._asked.append(queued(size, in_flight / (fleet.plan.places * self._target)))
            self._had.append(size.desired)
            low, high = self._reach()
            wanted = size.clamp(
                min(max(self._asked), high) if self._asked[-1] > size.desired else max(*self._asked, low)
            )
            if wanted != size.desired:
                self.actions += 1
                self._group.resize(wanted)

    def _reach(self) -> tuple[int, int]:
        """Return the fewest and the most hosts that it may go to from those of the last periods."""
        had = list(self._had)
        most = min(had[-self._up.period_s // _SYNC_S :])
        least = max(had[-self._down.period_s // _SYNC_S :])
        fewer = max(self._down.pods, math.floor(least * self._down.percent / 100))
        return least - fewer, most + max(self._up.pods, math.floor(most * self._up.percent / 100))


def queued(size: GroupSize, hosts: float) -> int:
    """Return the hosts that a queue asks for: as many as it fills to the target, or those that are nearly enough."""
    near = abs(hosts - size.desired) <= _TOLERANCE * size.desired
    return size.desired if near else math.ceil(hosts)
