"""Fleets during a simulation: hosts that boot, warm up, accept calls, drain and terminate."""

import heapq
from collections import OrderedDict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from typing import Protocol

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import Event

from voice_blueprint.aws.autoscaling import GroupSize
from voice_blueprint.file.model.aws import Rollout
from voice_blueprint.observability.aws.rollouts import calculate_surge_size
from voice_ops.simulate.account import SimulatedAccount
from voice_ops.simulate.capacity import FleetPlan, GroupPlan

ProcessGenerator = Generator[Event, None, None]
"""A simpy process."""

LAUNCH_RETRY_INTERVAL_S = 60.0
"""Time until Auto Scaling retries a failed launch, and until it detects a failed host. ASSUMED."""
DRAIN_POLL_INTERVAL_S = 5.0
"""Interval at which userdata/voice_userdata/steps/drain.sh checks whether its containers have ended."""
SPOT_DRAIN_TIMEOUT_S = 100.0
"""Maximum drain time of an interrupted spot host, which terminates two minutes after the notice
(userdata/voice_userdata/steps/drain.sh)."""


class HostState(Enum):
    """State in a host's lifecycle."""

    BOOTING = auto()
    WARMING = auto()
    """The host accepts calls, but Auto Scaling does not count it as capacity yet."""
    IN_SERVICE = auto()
    DRAINING = auto()
    TERMINATED = auto()


@dataclass(eq=False)
class Host:
    """A simulated host in a fleet.

    Attributes:
        number: Position in the order of its group's launches.
        index: Position in its fleet's arrays, valid from its first call to its last.
    """

    group: "Group"
    zone: str
    number: int
    state: HostState = HostState.BOOTING
    index: int = -1


class GroupHosts:
    """Hosts that count towards a group's capacity. Iteration starts with the oldest host.

    All operations take constant time: Auto Scaling adds and removes hosts one at a time, and a group can have
    thousands.
    """

    def __init__(self) -> None:
        # Reading the first key takes constant time after any number of removals in an `OrderedDict`, but not in a
        # `dict`.
        self._by_zone: dict[str, OrderedDict[Host, None]] = {}
        self.in_service = 0

    def add(self, host: Host) -> None:
        """Add the newest host."""
        self._by_zone.setdefault(host.zone, OrderedDict())[host] = None

    def mark_in_service(self, host: Host) -> None:
        """Count a host as in service."""
        host.state = HostState.IN_SERVICE
        self.in_service += 1

    def remove(self, host: Host) -> None:
        """Remove a host.

        Raises:
            KeyError: The host is not a member.
        """
        del self._by_zone[host.zone][host]
        self.in_service -= host.state is HostState.IN_SERVICE

    def count_in_zone(self, zone: str) -> int:
        """Return the number of hosts in a zone."""
        return len(self._by_zone.get(zone, ()))

    def select_termination_candidate(self) -> Host:
        """Return the host that Auto Scaling's default termination policy selects first."""
        max_hosts = max(map(len, self._by_zone.values()))
        oldest = (next(iter(hosts)) for hosts in self._by_zone.values() if len(hosts) == max_hosts)
        return min(oldest, key=lambda host: host.number)

    def __len__(self) -> int:
        return sum(map(len, self._by_zone.values()))

    def __contains__(self, host: Host) -> bool:
        return host in self._by_zone.get(host.zone, ())

    def __iter__(self) -> Iterator[Host]:
        yield from heapq.merge(*self._by_zone.values(), key=lambda host: host.number)


class CallMover(Protocol):
    """Moves the calls of a leaving host to other hosts."""

    def move_calls(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that accepts no more calls; each call is degraded for ``gap_s``."""


class Fleet:
    """The hosts in a fleet as arrays, with one entry for each host that can have calls.

    Attributes:
        calls: Number of calls per host.
        open: Whether the host accepts new calls.
        live: Whether the host runs and publishes metrics.
        zone: Index of the host's zone in the deployment.
        group: Index of the host's group in the fleet.
        settled: Whether the host has completed its instance warm-up.
        busy_at_full: Utilization of a host's accelerator if all slots are used; above 1, the accelerator is overloaded.
        silent_metrics: Metrics that the hosts have stopped publishing.
    """

    def __init__(self, plan: FleetPlan, zones: tuple[str, ...], busy_at_full: float = 1.0) -> None:
        self.plan, self.busy_at_full = plan, busy_at_full
        self.zones = zones
        self.silent_metrics: frozenset[str] = frozenset()
        self.groups: list[Group] = []
        self._free: list[int] = []
        self.calls: NDArray[np.int64] = np.zeros(0, np.int64)
        self.open, self.live, self.settled = (np.zeros(0, bool) for _ in range(3))
        self.zone, self.group = (np.zeros(0, np.int64) for _ in range(2))

    def add_host(self, host: Host) -> None:
        """Add a host that has booted to the arrays."""
        if not self._free:
            self._grow_arrays()
        host.index = heapq.heappop(self._free)
        self.open[host.index] = self.live[host.index] = True
        self.settled[host.index] = False
        self.zone[host.index] = self.zones.index(host.zone)
        self.group[host.index] = self.groups.index(host.group)

    def remove_host(self, host: Host) -> None:
        """Remove a host without calls from the arrays."""
        if host.index >= 0:
            self.open[host.index] = self.live[host.index] = self.settled[host.index] = False
            heapq.heappush(self._free, host.index)
            host.index = -1

    def _grow_arrays(self) -> None:
        old, added = len(self.calls), max(8, len(self.calls) // 2)
        for name in ("calls", "open", "live", "settled", "zone", "group"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros(added, array.dtype)]))
        self._free.extend(range(old, old + added))

    @property
    def slots(self) -> int:
        """Maximum number of calls on all hosts in service."""
        return int(np.count_nonzero(self.open)) * self.plan.slots

    @property
    def running_hosts(self) -> int:
        """Number of hosts that are charged by the hour."""
        return sum(len(group.hosts) + len(group.draining_hosts) + group.preparing_hosts for group in self.groups)

    @property
    def stopped_hosts(self) -> int:
        """Number of hosts in the warm pools."""
        return sum(len(group.pool) for group in self.groups)


class Group:
    """An Auto Scaling group.

    Attributes:
        hosts: Hosts that count as the group's capacity.
        draining_hosts: Draining hosts.
        pool: Zone of each host in the warm pool.
        preparing_hosts: Number of hosts that are being prepared for the pool.
    """

    def __init__(  # noqa: PLR0917  one caller
        self,
        env: simpy.Environment,
        fleet: Fleet,
        plan: GroupPlan,
        account: SimulatedAccount,
        mover: CallMover,
        warm_hosts: int,
    ) -> None:
        self._env, self.fleet, self.plan, self._account, self._mover = env, fleet, plan, account, mover
        self._warm = warm_hosts
        self.desired = plan.min_hosts
        self.hosts = GroupHosts()
        self.draining_hosts: dict[Host, None] = {}
        self.pool: list[str] = []
        self.preparing_hosts = 0
        self._spare_launches = self._launches = 0
        fleet.groups.append(self)

    def start(self, hosts: int) -> None:
        """Put the initial hosts into service immediately, and fill the warm pool."""
        self.desired = hosts
        for _ in range(hosts):
            host = self._launch_host()
            if host is None:
                break
            self._start_warm_up(host)
            self._finish_warm_up(host)
        zones = self._list_available_zones()
        self.pool = [zones[n % len(zones)] for n in range(self._warm)]
        self._env.process(self._replace_lost_hosts())

    @property
    def size(self) -> GroupSize:
        """Size of the group from the perspective of Auto Scaling."""
        in_service = self.hosts.in_service
        return GroupSize(
            self.desired,
            self.plan.min_hosts,
            self.plan.max_hosts,
            in_service_host_count=in_service,
            warming_host_count=len(self.hosts) - in_service,
            terminating_host_count=len(self.draining_hosts),
        )

    def resize(self, desired: int) -> None:
        """Set the desired capacity."""
        if desired != self.desired:
            self.desired = desired
            self.reconcile()

    def reconcile(self) -> None:
        """Launch or drain until the group has the desired number of hosts."""
        while len(self.hosts) < self.desired + self._spare_launches and self._has_reserved_capacity():
            # During a rollout, hosts in the pool belong to the previous release.
            warm = None if self._spare_launches else self._start_warm_host()
            host = self._launch_host(warm)
            if host is None:
                if warm:
                    self.pool.append(warm)
                break
            boot = self.fleet.plan.boot
            self._env.process(self._boot(host, boot.warm_s if warm else boot.cold_s))
        while len(self.hosts) > self.desired + self._spare_launches:
            self.retire(self.hosts.select_termination_candidate(), self.fleet.plan.drain_timeout_s)
        self._fill_pool()

    def replace_hosts(self, rollout: Rollout) -> ProcessGenerator:
        """Replace the current hosts as an instance refresh does.

        If the fleet can exceed its maximum, new hosts start before old hosts drain.
        """
        old = set(self.hosts)
        marks = [len(old) * (100 - mark) / 100 for mark in rollout.checkpoint_percentages]
        while outdated_hosts := [host for host in self.hosts if host in old]:
            while marks and len(outdated_hosts) <= marks[0]:
                marks = [mark for mark in marks if mark < len(outdated_hosts)]
                yield self._env.timeout(rollout.checkpoint_pause_s)
            at_a_time = min(calculate_surge_size(rollout.surge_percent, self.desired), len(outdated_hosts))
            if self.fleet.plan.can_surge:
                self._spare_launches = at_a_time
                self.reconcile()
            yield self._env.timeout(DRAIN_POLL_INTERVAL_S)
            beyond = self.size.in_service_host_count - self.desired
            removable = beyond if self.fleet.plan.can_surge else at_a_time * (beyond >= 0)
            for host in outdated_hosts[: max(0, removable)]:
                if host in self.hosts:
                    self._spare_launches = max(0, self._spare_launches - 1)
                    self.retire(host, self.fleet.plan.drain_timeout_s)
            self.reconcile()
        self._spare_launches = 0

    def _has_reserved_capacity(self) -> bool:
        """Return True if the reservation has capacity for another host. Draining hosts still use the reservation."""
        return self.fleet.plan.can_surge or len(self.hosts) + len(self.draining_hosts) < self.plan.max_hosts

    def retire(self, host: Host, budget_s: float) -> None:
        """Stop accepting calls, wait for existing calls to end, and move the remaining ones to other hosts."""
        self.hosts.remove(host)
        self.draining_hosts[host] = None
        booted, host.state = host.state is not HostState.BOOTING, HostState.DRAINING
        if booted:
            self.fleet.open[host.index] = False
            self._env.process(self._drain(host, budget_s))
        else:
            self.record_termination(host)

    def _drain(self, host: Host, budget_s: float) -> ProcessGenerator:
        fleet, waited_s = self.fleet, 0.0
        # The load balancer moves a VAD host's flows as soon as it leaves the target group.
        while fleet.plan.kind != "vad" and waited_s < budget_s and fleet.calls[host.index]:
            yield self._env.timeout(DRAIN_POLL_INTERVAL_S)
            waited_s += DRAIN_POLL_INTERVAL_S
            if host.state is HostState.TERMINATED:
                return
        self._mover.move_calls(host, 0.0)
        self.record_termination(host)

    def record_termination(self, host: Host) -> None:
        """Remove a host without calls."""
        if host in self.draining_hosts:
            del self.draining_hosts[host]
        else:
            self.hosts.remove(host)
        host.state = HostState.TERMINATED
        self.fleet.remove_host(host)
        self._account.release_host(self.fleet.plan)

    def interrupt(self, host: Host) -> None:
        """Send a spot host the two-minute interruption notice, and launch another host."""
        if host in self.hosts:
            self.retire(host, min(SPOT_DRAIN_TIMEOUT_S, self.fleet.plan.drain_timeout_s))
            self.reconcile()

    def iter_hosts_in_zone(self, zone: str) -> Iterator[Host]:
        yield from (host for host in chain(self.hosts, self.draining_hosts) if host.zone == zone)

    def clear_pool_in_zone(self, zone: str) -> None:
        """Remove the warm pool hosts in a lost zone."""
        self.pool = [other for other in self.pool if other != zone]

    def _list_available_zones(self) -> list[str]:
        return [zone for zone in self.plan.zones if zone not in self._account.lost_zones]

    def _launch_host(self, zone: str | None = None) -> Host | None:
        """Launch a host in the zone with the fewest hosts, or start one from the warm pool."""
        zones = [zone] if zone else self._list_available_zones()
        if not zones or not self._account.reserve_host(self.fleet.plan):
            return None
        self._launches += 1
        host = Host(self, min(zones, key=self.hosts.count_in_zone), self._launches)
        self.hosts.add(host)
        return host

    def _start_warm_host(self) -> str | None:
        zone = next((zone for zone in self.pool if zone not in self._account.lost_zones), None)
        if zone:
            self.pool.remove(zone)
        return zone

    def _boot(self, host: Host, seconds: float) -> ProcessGenerator:
        yield self._env.timeout(seconds)
        if host.state is HostState.BOOTING:
            self._start_warm_up(host)
            yield self._env.timeout(self.fleet.plan.warm_up_s)
            self._finish_warm_up(host)

    def _start_warm_up(self, host: Host) -> None:
        host.state = HostState.WARMING
        self.fleet.add_host(host)

    def _finish_warm_up(self, host: Host) -> None:
        if host.state is HostState.WARMING:
            self.hosts.mark_in_service(host)
            self.fleet.settled[host.index] = True

    def _fill_pool(self) -> None:
        while (
            len(self.pool) + self.preparing_hosts < self._warm
            and self._list_available_zones()
            and self._account.reserve_host(self.fleet.plan)
        ):
            self.preparing_hosts += 1
            self._env.process(
                self._prepare_warm_host(
                    self._list_available_zones()[len(self.pool) % len(self._list_available_zones())]
                )
            )

    def _prepare_warm_host(self, zone: str) -> ProcessGenerator:
        yield self._env.timeout(self.fleet.plan.boot.preparation_s)
        self.preparing_hosts -= 1
        self._account.release_host(self.fleet.plan)
        if zone not in self._account.lost_zones:
            self.pool.append(zone)

    def _replace_lost_hosts(self) -> ProcessGenerator:
        # Traces change at full minutes; on average, Auto Scaling reacts half a minute later.
        yield self._env.timeout(LAUNCH_RETRY_INTERVAL_S / 2)
        while True:
            yield self._env.timeout(LAUNCH_RETRY_INTERVAL_S)
            self.reconcile()
