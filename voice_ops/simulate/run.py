"""A simulation of a deployment's fleets with a trace and a policy."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import simpy
from numpy.typing import NDArray

from voice_blueprint.file.model.aws import Rollout
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.simulate.account import SimulatedAccount
from voice_ops.simulate.alerts import UNHEALTHY_HOST_DURATION_S, AlertReplay, FiredAlert, list_replayable_alerts
from voice_ops.simulate.calls import CallResults, CallSimulator
from voice_ops.simulate.capacity import TRANSCRIBING_KINDS, FleetPlan
from voice_ops.simulate.fleet import Fleet, Group, Host, HostState, ProcessGenerator
from voice_ops.simulate.policies import Policy, create_fleet_scalers
from voice_ops.simulate.traces import LoadTrace, Outage, SpotWave

LEAD_IN_S = 1_800
"""Duration of the lead-in, s, which the results exclude. The load remains at the trace's first value while each policy
adjusts the sizes of fleets."""
INITIAL_UTILIZATION = 0.7
"""Initial utilization, if the file's bounds allow it."""
SHORT_TRACE_S, SHORT_TRACE_TICK_S, DAY_TICK_S = 6 * 3600, 1, 10
"""Traces of up to six hours are simulated in ticks of one second; longer traces, and cells, in ticks of the minimum
period of an alarm."""

VAD_INTERRUPTION_S = 20.0
"""Interruption of a call when a VAD host fails: two health checks by the load balancer, 10 s apart."""
ASR_INTERRUPTION_S = 5.0
"""Interruption of a call when an ASR host fails: time from its last heartbeat until the shipper treats it as dead
(ship/host_registry.hpp)."""


class Watcher(Protocol):
    """A scaler or an alert, which reads metrics during the simulation."""

    def sample(self) -> None:
        """Record the samples of a tick."""

    def evaluate_periodically(self) -> ProcessGenerator:
        """Evaluate the samples after each period."""


@dataclass(frozen=True)
class SimulationSettings:
    """Inputs that are the same for every policy.

    Attributes:
        zones: Availability zones of the deployment.
        mean_call_s: Mean length of a call.
        cross_zone: Whether the load balancer balances across zones.
        quotas: Quotas in vCPUs by quota code.
        interruptions_per_day: Interruptions of each spot host per day.
        rolled_fleets: Fleets whose hosts are replaced from the start of the trace, one group after another.
        rollout: Settings of the replacement.
        busy_at_full: Utilization of an ASR host with all slots used.
        silent_metrics: Metrics that no host publishes from the start of the trace.
        store_call_limit: Maximum number of calls of the state store, or ``None`` without a state store.
        redial_share: Share of refused or cut-off callers who call again.
    """

    zones: tuple[str, ...]
    mean_call_s: float
    cross_zone: bool
    seed: int
    quotas: Mapping[str, int] = field(default_factory=dict)
    interruptions_per_day: float = 0.0
    rolled_fleets: frozenset[str] = frozenset()
    rollout: Rollout = field(default_factory=Rollout)
    busy_at_full: float = 1.0
    silent_metrics: frozenset[str] = frozenset()
    store_call_limit: int | None = None
    redial_share: float = 0.0
    tick_s: int | None = None
    lead_in_s: int = LEAD_IN_S


@dataclass
class TimeSeries:
    """Time series of a simulation, one value per tick.

    Attributes:
        second: End of the tick.
        wanted: Requested calls.
        carried: Active calls.
        places: Maximum number of calls of the smallest tier in service.
        refused: Cumulative number of refused callers and cut-off calls.
        hosts: Charged hosts by fleet.
        stopped: Hosts in warm pools, by fleet.
    """

    second: NDArray[np.float64]
    wanted: NDArray[np.float64]
    carried: NDArray[np.int64]
    places: NDArray[np.int64]
    refused: NDArray[np.int64]
    hosts: dict[str, NDArray[np.int64]]
    stopped: dict[str, NDArray[np.int64]]

    @classmethod
    def zeros(cls, ticks: int, fleets: list[str]) -> Self:
        """Create time series of zeros."""
        hosts, stopped = ({name: np.zeros(ticks, np.int64) for name in fleets} for _ in range(2))
        carried, places, refused = (np.zeros(ticks, np.int64) for _ in range(3))
        return cls(np.zeros(ticks), np.zeros(ticks), carried, places, refused, hosts, stopped)


@dataclass(frozen=True)
class PolicyResult:
    """Result of a policy with a trace."""

    policy: str
    plans: tuple[FleetPlan, ...]
    time_series: TimeSeries
    call_results: CallResults
    tick_s: int
    mean_call_s: float
    refused_launches: int
    scaling_actions: int
    firings: tuple[FiredAlert, ...] = ()


class Simulation:
    """The simulated fleets of a deployment.

    Args:
        progress: Function that is called periodically with the simulated seconds.
        alert_deployment: File whose alerts are replayed, or ``None``.
    """

    def __init__(  # noqa: PLR0917  all parameters are required
        self,
        plans: tuple[FleetPlan, ...],
        policy: Policy,
        trace: LoadTrace,
        settings: SimulationSettings,
        progress: Callable[[float], None] = lambda _: None,
        alert_deployment: Deployment | None = None,
    ) -> None:
        self._plans, self._policy, self._trace = plans, policy, trace
        self._settings, self._progress = settings, progress
        self.tick_s = settings.tick_s or (SHORT_TRACE_TICK_S if trace.duration_s <= SHORT_TRACE_S else DAY_TICK_S)
        self.env = simpy.Environment(initial_time=-settings.lead_in_s)
        self.account = SimulatedAccount(dict(settings.quotas))
        self.fleets = [Fleet(plan, settings.zones, settings.busy_at_full) for plan in plans]
        self.calls = self.create_call_simulator()
        for fleet in self.fleets:
            warm = fleet.plan.warm_hosts if policy.uses_warm_pools else 0
            for group in fleet.plan.groups:
                Group(self.env, fleet, group, self.account, self.calls, warm)
        self.scalers = [
            each for fleet in self.fleets for each in create_fleet_scalers(policy, self.env, fleet, self.calls)
        ]
        self._failed_hosts: list[tuple[str, float]] = []
        rules = list_replayable_alerts(alert_deployment, self) if alert_deployment else ()
        self.replays = [AlertReplay(self, alert) for alert in rules]
        self._watchers: tuple[Watcher, ...] = (*self.scalers, *self.replays)
        self._random = np.random.default_rng(settings.seed + 1)
        ticks = math.ceil(trace.duration_s / self.tick_s)
        self._series = TimeSeries.zeros(ticks, [plan.name for plan in plans])

    def create_call_simulator(self) -> CallSimulator:
        """Create the callers for all fleets."""
        fronts = [fleet for fleet in self.fleets if fleet.plan.kind not in TRANSCRIBING_KINDS]
        asr = [fleet for kind in TRANSCRIBING_KINDS for fleet in self.fleets if fleet.plan.kind == kind]
        settings = self._settings
        return CallSimulator(
            fronts,
            asr,
            self._trace,
            settings.mean_call_s,
            cross_zone=settings.cross_zone,
            seed=settings.seed,
            store_call_limit=settings.store_call_limit,
            redial_share=settings.redial_share,
        )

    def begin(self) -> None:
        """Place the initial hosts and calls, and start all processes."""
        self._start_fleets()
        self.env.process(self._run_ticks())
        for watcher in self._watchers:
            self.env.process(watcher.evaluate_periodically())
        for outage in self._trace.outages:
            self.env.process(self._run_outage(outage))
        for wave in self._trace.spot_waves:
            self.env.process(self._run_spot_wave(wave))
        for fleet in self.fleets:
            if fleet.plan.name in self._settings.rolled_fleets:
                self.env.process(self._replace_fleet_hosts(fleet))
        if self._settings.interruptions_per_day and any(plan.is_spot for plan in self._plans):
            self.env.process(self._interrupt_spot_hosts())

    def run(self) -> PolicyResult:
        """Simulate the lead-in and the trace, and return the results of the trace."""
        self.begin()
        self.env.run(until=len(self._series.second) * self.tick_s + self.tick_s / 2)
        return PolicyResult(
            policy=self._policy.name,
            plans=self._plans,
            time_series=self._series,
            call_results=self.calls.call_results,
            tick_s=self.tick_s,
            mean_call_s=self._settings.mean_call_s,
            refused_launches=self.account.refused_launches,
            scaling_actions=sum(scaler.action_count for scaler in self.scalers),
            firings=tuple(
                sorted((each for replay in self.replays for each in replay.firings), key=lambda one: one.at_s)
            ),
        )

    def count_unhealthy_hosts(self, kind: str) -> int:
        """Return the number of failed hosts of a kind that a load balancer still lists."""
        return sum(1 for each, until in self._failed_hosts if each == kind and until > self.env.now)

    def _start_fleets(self) -> None:
        first = self._trace.interpolate_calls(0)
        remaining = first
        for fleet in [*self.calls.fronts, *self.calls.asr]:
            for group in fleet.groups:
                share = first * fleet.plan.call_share / len(fleet.groups) if fleet in self.calls.fronts else remaining
                plan = group.plan
                hosts = math.ceil(share / (fleet.plan.slots * INITIAL_UTILIZATION)) if fleet.plan.slots else 0
                group.start(min(max(hosts, plan.min_hosts), plan.max_hosts))
            if fleet in self.calls.asr:
                remaining = max(0.0, remaining - INITIAL_UTILIZATION * fleet.slots)
        self.calls.populate(round(first))

    def _replace_fleet_hosts(self, fleet: Fleet) -> ProcessGenerator:
        yield self.env.timeout(-self.env.now)
        for group in fleet.groups:
            yield self.env.process(group.replace_hosts(self._settings.rollout))

    def _run_ticks(self) -> ProcessGenerator:
        while True:
            if self.env.now == 0:
                self.calls.call_results = CallResults()
                self.account.refused_launches = 0
                for fleet in self.fleets:
                    fleet.silent_metrics = self._settings.silent_metrics
            self.calls.advance(self.env.now, self.tick_s)
            yield self.env.timeout(self.tick_s)
            for watcher in self._watchers:
                watcher.sample()
            if self.env.now > 0:
                self._record(round(self.env.now / self.tick_s) - 1)

    def _record(self, tick: int) -> None:
        course, call_results = self._series, self.calls.call_results
        course.second[tick] = self.env.now
        course.wanted[tick] = self._trace.interpolate_calls(self.env.now)
        course.carried[tick] = self.calls.active_calls
        front_slots = [front.slots for front in self.calls.fronts if front.plan.call_share == 1]
        store = [] if self.calls.store_call_limit is None else [self.calls.store_call_limit]
        course.places[tick] = min([sum(fleet.slots for fleet in self.calls.asr), *front_slots, *store])
        course.refused[tick] = call_results.refused + call_results.cut
        for fleet in self.fleets:
            course.hosts[fleet.plan.name][tick] = fleet.running_hosts
            course.stopped[fleet.plan.name][tick] = fleet.stopped_hosts
            if fleet.plan.kind == "gpu":
                call_results.gpu_s += float(fleet.calls.sum()) * self.tick_s
        if not tick % 64:
            self._progress(self.env.now)

    def _run_outage(self, outage: Outage) -> ProcessGenerator:
        zone = self._settings.zones[outage.zone]
        yield self.env.timeout(outage.start_s - self.env.now)
        self.account.lost_zones.add(zone)
        lost = [host for fleet in self.fleets for group in fleet.groups for host in group.iter_hosts_in_zone(zone)]
        for host in lost:
            if host.index >= 0:
                host.group.fleet.open[host.index] = False
        for host in lost:
            self._fail_host(host)
        for fleet in self.fleets:
            for group in fleet.groups:
                group.clear_pool_in_zone(zone)
        yield self.env.timeout(outage.end_s - outage.start_s)
        self.account.lost_zones.remove(zone)

    def _run_spot_wave(self, wave: SpotWave) -> ProcessGenerator:
        yield self.env.timeout(wave.start_s - self.env.now)
        self.account.is_spot_sold_out = True
        for group in self._iter_spot_groups():
            for host in tuple(group.hosts):
                group.interrupt(host)
        yield self.env.timeout(wave.end_s - wave.start_s)
        self.account.is_spot_sold_out = False

    def _iter_spot_groups(self) -> Iterator[Group]:
        return (group for fleet in self.fleets if fleet.plan.is_spot for group in fleet.groups)

    def _fail_host(self, host: Host) -> None:
        if host.index >= 0:
            gap_s = VAD_INTERRUPTION_S if host.group.fleet.plan.kind == "vad" else ASR_INTERRUPTION_S
            self.calls.move_calls(host, gap_s)
            self._failed_hosts.append((host.group.fleet.plan.kind, self.env.now + UNHEALTHY_HOST_DURATION_S))
        host.group.record_termination(host)

    def _interrupt_spot_hosts(self) -> ProcessGenerator:
        """Interrupt spot hosts, each with the same probability every minute."""
        interruption_rate = self._settings.interruptions_per_day / (24 * 60)
        while True:
            yield self.env.timeout(60)
            for group in self._iter_spot_groups():
                for host in tuple(group.hosts):
                    if host.state is not HostState.BOOTING and self._random.random() < interruption_rate:
                        group.interrupt(host)
