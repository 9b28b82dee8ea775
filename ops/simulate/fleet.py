"""Fleets while the simulation runs: hosts that boot, warm up, take calls, drain and die."""

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import Event

from blueprint.aws.autoscaling import GroupSize
from blueprint.aws.rollouts import surge
from blueprint.file.model.aws import Rollout
from ops.simulate.account import Account
from ops.simulate.capacity import FleetPlan, GroupPlan

Steps = Generator[Event, None, None]
"""A simpy process."""

RETRY_S = 60.0
"""How soon Auto Scaling tries again what it could not launch, and notices a host that has died. ASSUMED."""
DRAIN_POLL_S = 5.0
"""userdata/steps/drain.sh looks so often whether its containers have ended."""
SPOT_DRAIN_S = 100.0
"""Of the two minutes after a spot notice, what a host may drain in (userdata/steps/drain.sh)."""


class State(Enum):
    """A host's life."""

    BOOTING = auto()
    WARMING = auto()
    """Takes calls; Auto Scaling does not count it as capacity yet."""
    IN_SERVICE = auto()
    DRAINING = auto()
    GONE = auto()


@dataclass(eq=False)
class Host:
    """One host; ``index`` is its place in its fleet's arrays, valid from its first call to its last."""

    group: "Group"
    zone: str
    state: State = State.BOOTING
    index: int = -1


class Mover(Protocol):
    """Whoever knows the calls: finds another host for those of a host that leaves."""

    def vacate(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that takes none any more; each is disturbed for ``gap_s``."""


class Fleet:
    """The hosts of one fleet as arrays, one entry a host that can have calls.

    Attributes:
        calls: Calls of each host.
        open: Whether it takes new ones.
        live: Whether it runs, and publishes metrics.
        zone: Position of its zone among the deployment's.
        group: Position of its group among the fleet's.
        settled: Whether it is through its instance warm-up.
        busy_at_full: How busy its accelerator is when all of its places are taken; above 1 it is overloaded.
        silent: Metrics that its hosts do not publish any more.
    """

    def __init__(self, plan: FleetPlan, zones: tuple[str, ...], busy_at_full: float = 1.0) -> None:
        self.plan, self.busy_at_full = plan, busy_at_full
        self.zones = zones
        self.silent: frozenset[str] = frozenset()
        self.groups: list[Group] = []
        self._free: list[int] = []
        self.calls: NDArray[np.int64] = np.zeros(0, np.int64)
        self.open, self.live, self.settled = (np.zeros(0, bool) for _ in range(3))
        self.zone, self.group = (np.zeros(0, np.int64) for _ in range(2))

    def enter(self, host: Host) -> None:
        """Give a host that has booted its place in the arrays."""
        if not self._free:
            self._grow()
        host.index = heapq.heappop(self._free)
        self.open[host.index] = self.live[host.index] = True
        self.settled[host.index] = False
        self.zone[host.index] = self.zones.index(host.zone)
        self.group[host.index] = self.groups.index(host.group)

    def leave(self, host: Host) -> None:
        """Free the place of a host without calls."""
        if host.index >= 0:
            self.open[host.index] = self.live[host.index] = self.settled[host.index] = False
            heapq.heappush(self._free, host.index)
            host.index = -1

    def _grow(self) -> None:
        old, more = len(self.calls), max(8, len(self.calls) // 2)
        for name in ("calls", "open", "live", "settled", "zone", "group"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros(more, array.dtype)]))
        self._free.extend(range(old, old + more))

    @property
    def places(self) -> int:
        """Calls that the hosts in service can have."""
        return int(np.count_nonzero(self.open)) * self.plan.places

    @property
    def running(self) -> int:
        """Hosts that are paid for by the hour."""
        return sum(len(group.hosts) + len(group.leaving) + group.preparing for group in self.groups)

    @property
    def stopped(self) -> int:
        """Hosts that wait in the warm pools."""
        return sum(len(group.pool) for group in self.groups)


class Group:
    """One Auto Scaling group.

    Attributes:
        hosts: Those that count as its capacity, oldest first.
        leaving: Those that drain.
        pool: Zones of the hosts that wait in its warm pool.
        preparing: Hosts that are being made ready for the pool.
    """

    def __init__(  # noqa: PLR0917  one place calls it
        self, env: simpy.Environment, fleet: Fleet, plan: GroupPlan, account: Account, mover: Mover, warm: int
    ) -> None:
        self._env, self.fleet, self.plan, self._account, self._mover = env, fleet, plan, account, mover
        self._warm = warm
        self.desired = plan.min_hosts
        self.hosts: list[Host] = []
        self.leaving: list[Host] = []
        self.pool: list[str] = []
        self.preparing = 0
        self._spare = 0
        fleet.groups.append(self)

    def start(self, hosts: int) -> None:
        """Put the first hosts into service at once, and fill the warm pool."""
        self.desired = hosts
        for _ in range(hosts):
            host = self._new_host()
            if host is None:
                break
            self._open(host)
            self._settle(host)
        zones = self._zones()
        self.pool = [zones[n % len(zones)] for n in range(self._warm)]
        self._env.process(self._keep())

    @property
    def size(self) -> GroupSize:
        """The group as Auto Scaling sees it."""
        in_service = sum(host.state is State.IN_SERVICE for host in self.hosts)
        return GroupSize(
            self.desired,
            self.plan.min_hosts,
            self.plan.max_hosts,
            in_service=in_service,
            warming=len(self.hosts) - in_service,
            terminating=len(self.leaving),
        )

    def resize(self, desired: int) -> None:
        """Set the desired capacity."""
        if desired != self.desired:
            self.desired = desired
            self.reconcile()

    def reconcile(self) -> None:
        """Launch or drain until the group has as many hosts as it should."""
        while len(self.hosts) < self.desired + self._spare and self._has_room():
            # What waits in the pool during a rollout is of the release before.
            warm = None if self._spare else self._take_warm()
            host = self._new_host(warm)
            if host is None:
                if warm:
                    self.pool.append(warm)
                break
            boot = self.fleet.plan.boot
            self._env.process(self._boot(host, boot.warm_s if warm else boot.cold_s))
        while len(self.hosts) > self.desired + self._spare:
            self.retire(self._oldest_of_fullest_zone(), self.fleet.plan.drain_timeout_s)
        self._fill_pool()

    def roll(self, rollout: Rollout) -> Steps:
        """Replace the hosts that are there now, as an instance refresh does: new ones first where they fit."""
        old = list(self.hosts)
        marks = [len(old) * (100 - mark) / 100 for mark in rollout.checkpoint_percentages]
        while stale := [host for host in self.hosts if host in old]:
            while marks and len(stale) <= marks[0]:
                marks = [mark for mark in marks if mark < len(stale)]
                yield self._env.timeout(rollout.checkpoint_pause_s)
            at_a_time = min(surge(rollout.surge_percent, self.desired), len(stale))
            if self.fleet.plan.surges:
                self._spare = at_a_time
                self.reconcile()
            yield self._env.timeout(DRAIN_POLL_S)
            beyond = self.size.in_service - self.desired
            leave = beyond if self.fleet.plan.surges else at_a_time * (beyond >= 0)
            for host in stale[: max(0, leave)]:
                if host in self.hosts:
                    self._spare = max(0, self._spare - 1)
                    self.retire(host, self.fleet.plan.drain_timeout_s)
            self.reconcile()
        self._spare = 0

    def _has_room(self) -> bool:
        """Whether a reservation has room; while they drain, hosts take theirs."""
        return self.fleet.plan.surges or len(self.hosts) + len(self.leaving) < self.plan.max_hosts

    def retire(self, host: Host, budget_s: float) -> None:
        """Take no new calls, wait for the others to end, hand over what is left."""
        self.hosts.remove(host)
        self.leaving.append(host)
        booted, host.state = host.state is not State.BOOTING, State.DRAINING
        if booted:
            self.fleet.open[host.index] = False
            self._env.process(self._drain(host, budget_s))
        else:
            self.bury(host)

    def _drain(self, host: Host, budget_s: float) -> Steps:
        fleet, waited_s = self.fleet, 0.0
        # The load balancer moves a VAD host's flows as soon as it leaves the target group.
        while fleet.plan.kind != "vad" and waited_s < budget_s and fleet.calls[host.index]:
            yield self._env.timeout(DRAIN_POLL_S)
            waited_s += DRAIN_POLL_S
            if host.state is State.GONE:
                return
        self._mover.vacate(host, 0.0)
        self.bury(host)

    def bury(self, host: Host) -> None:
        """Remove a host whose calls have gone."""
        (self.leaving if host in self.leaving else self.hosts).remove(host)
        host.state = State.GONE
        self.fleet.leave(host)
        self._account.give_back(self.fleet.plan)

    def interrupt(self, host: Host) -> None:
        """Give a spot host its two minutes' notice; another one is launched."""
        if host in self.hosts:
            self.retire(host, min(SPOT_DRAIN_S, self.fleet.plan.drain_timeout_s))
            self.reconcile()

    def in_zone(self, zone: str) -> Iterator[Host]:
        yield from (host for host in (*self.hosts, *self.leaving) if host.zone == zone)

    def lose_pool(self, zone: str) -> None:
        """Forget what waits in a zone that is lost."""
        self.pool = [where for where in self.pool if where != zone]

    def _zones(self) -> list[str]:
        return [zone for zone in self.plan.zones if zone not in self._account.lost_zones]

    def _new_host(self, zone: str | None = None) -> Host | None:
        """Launch in the zone that has fewest, or in the one where a warm host waits."""
        zones = [zone] if zone else self._zones()
        if not zones or not self._account.take(self.fleet.plan):
            return None
        there = [host.zone for host in self.hosts]
        host = Host(self, min(zones, key=there.count))
        self.hosts.append(host)
        return host

    def _take_warm(self) -> str | None:
        zone = next((zone for zone in self.pool if zone not in self._account.lost_zones), None)
        if zone:
            self.pool.remove(zone)
        return zone

    def _boot(self, host: Host, seconds: float) -> Steps:
        yield self._env.timeout(seconds)
        if host.state is State.BOOTING:
            self._open(host)
            yield self._env.timeout(self.fleet.plan.warm_up_s)
            self._settle(host)

    def _open(self, host: Host) -> None:
        host.state = State.WARMING
        self.fleet.enter(host)

    def _settle(self, host: Host) -> None:
        if host.state is State.WARMING:
            host.state = State.IN_SERVICE
            self.fleet.settled[host.index] = True

    def _oldest_of_fullest_zone(self) -> Host:
        there = [host.zone for host in self.hosts]
        return max(self.hosts, key=lambda host: there.count(host.zone))

    def _fill_pool(self) -> None:
        while len(self.pool) + self.preparing < self._warm and self._zones() and self._account.take(self.fleet.plan):
            self.preparing += 1
            self._env.process(self._prepare(self._zones()[len(self.pool) % len(self._zones())]))

    def _prepare(self, zone: str) -> Steps:
        yield self._env.timeout(self.fleet.plan.boot.prepare_s)
        self.preparing -= 1
        self._account.give_back(self.fleet.plan)
        if zone not in self._account.lost_zones:
            self.pool.append(zone)

    def _keep(self) -> Steps:
        # Traces change on the minute; on average Auto Scaling notices half a minute later.
        yield self._env.timeout(RETRY_S / 2)
        while True:
            yield self._env.timeout(RETRY_S)
            self.reconcile()
