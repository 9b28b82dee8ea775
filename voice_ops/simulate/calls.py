"""Aggregated calls: the number of calls on each host, and the numbers of new and ended calls per tick.

A call occupies a slot at each front (a gateway task and a VAD host, if there are any) and one on an ASR host. On a
cluster, the ASR pods are a front of the replicas that they call. A conversation also occupies a slot at an agent. If
the agent's language model accepts audio, the conversation is still assumed to occupy all of these slots, which
overestimates its use.

* The load balancer selects a call's zone and its slot at a front evenly and randomly. The call stays there until the
  call or the host ends, so new VAD hosts do not relieve others.
* A full host refuses calls, but the load balancer still sends callers to it.
* A full agent forwards callers to an agent with free capacity, and refuses them if there is none
  (images/agent/src/voice_agent/siblings.py).
* ASR pods fill evenly, since the data plane skips full ones.
* The ASR host of a call is the one with the most free slots; Neuron hosts are preferred to GPU hosts
  (images/vad-dataplane/src/ship/pinning.hpp).
* A full state store refuses a call before any host is selected.
* A caller who is refused, or whose call is cut off, calls again within seconds, or gives up.

Calls end independently of each other and of their hosts, so they need no identity: the number of calls that end on a
host in a tick is binomial, and the distribution of that number over VAD hosts is hypergeometric.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voice_ops.simulate.capacity import TRANSCRIBING_KINDS
from voice_ops.simulate.fleet import Fleet, Host
from voice_ops.simulate.traces import LoadTrace

IntArray = NDArray[np.int64]

REDIAL_FRACTION = 0.8
"""Share of refused or cut-off callers who call again. After each failed call, one in five gives up. ASSUMED."""
MEAN_REDIAL_DELAY_S = 15.0
"""Mean time until refused or cut-off callers call again. ASSUMED."""


@dataclass
class CallResults:
    """Results for callers, in calls and call-seconds.

    Attributes:
        offered: Number of callers, each counted once regardless of repeated calls.
        attempts: Number of calls, including repeated ones.
        rejected_attempts: Attempts without a free slot.
        refused: Callers without a free slot who gave up.
        cut: Calls whose host failed without a replacement.
        degraded_s: Call-seconds during a change of hosts.
        gpu_s: Call-seconds on GPUs.
        conversations: Callers with a slot in all other tiers who request an agent.
        conversations_refused: Subset of these callers without a free agent, who also count as refused.
    """

    offered: int = 0
    attempts: int = 0
    rejected_attempts: int = 0
    refused: int = 0
    cut: int = 0
    degraded_s: float = 0.0
    gpu_s: float = 0.0
    conversations: int = 0
    conversations_refused: int = 0

    @property
    def admitted(self) -> int:
        """Attempts with a free slot."""
        return self.attempts - self.rejected_attempts


class CallSimulator:
    """The callers in a simulation.

    Args:
        fronts: Fleets over which the load balancer spreads callers: VAD hosts, gateway tasks, agents last.
        asr: The ASR fleets, Neuron hosts first.
        trace: Requested calls.
        mean_s: Mean length of a call; lengths are exponentially distributed.
        cross_zone: Whether the load balancer distributes callers over all zones.
        seed: Seed of new callers, which do not depend on the fleets.
        store_call_limit: Maximum number of calls of the state store, or ``None`` without a state store.
        redial_share: Share of refused or cut-off callers who call again.
    """

    def __init__(
        self,
        fronts: Sequence[Fleet],
        asr: Sequence[Fleet],
        trace: LoadTrace,
        mean_s: float,
        *,
        cross_zone: bool,
        seed: int,
        store_call_limit: int | None = None,
        redial_share: float = 0.0,
    ) -> None:
        self.store_call_limit, self.redial_share = store_call_limit, redial_share
        self.waiting_to_redial = 0
        self.fronts, self.asr, self.trace, self.mean_s, self.cross_zone = fronts, asr, trace, mean_s, cross_zone
        self.call_results = CallResults()
        arrival_seed, leaving_seed = np.random.SeedSequence(seed).spawn(2)
        self.arrival_random, self.random = np.random.default_rng(arrival_seed), np.random.default_rng(leaving_seed)

    def draw_arrivals(self, now: float, tick_s: float) -> int:
        """Draw the number of new callers in a tick.

        New callers raise the number of calls to that of the trace, and replace ended calls.
        """
        requested, later = self.trace.interpolate_calls(now), self.trace.interpolate_calls(now + tick_s)
        arrived = int(
            self.arrival_random.poisson(max(0.0, later - requested + (requested + later) / 2 * tick_s / self.mean_s))
        )
        self.call_results.offered += arrived
        return arrived

    def populate(self, count: int) -> None:
        """Assign slots to the initial callers."""
        self._admit_calls(count)

    def advance(self, now: float, tick_s: float) -> None:
        """Start and end calls until ``now + tick_s``."""
        remaining_share = math.exp(-tick_s / self.mean_s)
        self._end_calls(1 - remaining_share)
        arrived = self.draw_arrivals(now, tick_s) + self._draw_redials(tick_s)
        self.call_results.attempts += arrived
        # Some of the new calls end within the tick, and never reach the fleets.
        short_calls = int(self.random.binomial(arrived, 1 - self.mean_s / tick_s * (1 - remaining_share)))
        admitted = self._admit_calls(arrived - short_calls)
        full = arrived - short_calls - admitted
        if full:
            full += int(self.random.binomial(short_calls, full / (arrived - short_calls)))
            self._refuse_calls(full)

    def _draw_redials(self, tick_s: float) -> int:
        """Draw the number of callers who call again within a tick."""
        if not self.waiting_to_redial:
            return 0
        redials = int(self.random.binomial(self.waiting_to_redial, 1 - math.exp(-tick_s / MEAN_REDIAL_DELAY_S)))
        self.waiting_to_redial -= redials
        return redials

    def _refuse_calls(self, count: int) -> None:
        redials = int(self.random.binomial(count, self.redial_share)) if self.redial_share else 0
        self.waiting_to_redial += redials
        self.call_results.rejected_attempts += count
        self.call_results.refused += count - redials

    def move_calls(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that accepts no more calls; each call is degraded for ``gap_s``."""
        fleet, carried = host.group.fleet, self.active_calls
        count = int(fleet.calls[host.index])
        fleet.calls[host.index] = 0
        redistributed = self._distribute_calls(fleet, count) if fleet in self.fronts else self._fill_asr_hosts(count)
        if fleet in self.fronts:
            self._remove_asr_calls(count - redistributed)
        for front in self.fronts:
            if front is not fleet:
                self._remove_ended_calls(front, count - redistributed, carried)
        self.call_results.cut += count - redistributed
        self.waiting_to_redial += int(self.random.binomial(count - redistributed, self.redial_share))
        self.call_results.degraded_s += redistributed * gap_s

    @property
    def active_calls(self) -> int:
        return sum(int(np.add.reduce(fleet.calls)) for fleet in self.asr)

    def calculate_waiting_calls(self, now: float) -> float:
        """Return the number of requested calls that are not served, as if refused callers waited in a queue."""
        return max(0.0, self.trace.interpolate_calls(now) - self.active_calls)

    def _end_calls(self, share: float) -> None:
        ended, carried = 0, self.active_calls
        for fleet in self.asr:
            ended_calls = self.random.binomial(fleet.calls, share)
            fleet.calls -= ended_calls
            ended += int(ended_calls.sum())
        for front in self.fronts:
            self._remove_ended_calls(front, ended, carried)

    def _remove_ended_calls(self, front: Fleet, count: int, carried: int) -> None:
        """Remove a random share of the ended calls from a front."""
        if not count:
            return
        front_calls = int(front.calls.sum())
        if front_calls < carried:
            count = int(self.random.hypergeometric(front_calls, carried - front_calls, count))
        if count:
            front.calls -= self.random.multivariate_hypergeometric(front.calls, count, method="marginals")

    def _remove_asr_calls(self, count: int) -> None:
        if not count:
            return
        calls = np.concatenate([fleet.calls for fleet in self.asr])
        chosen = self.random.multivariate_hypergeometric(calls, count, method="marginals")
        for fleet, lost in zip(self.asr, _split_by_fleet(self.asr, chosen), strict=True):
            fleet.calls -= lost

    def _admit_calls(self, count: int) -> int:
        """Assign callers a slot in each tier, and return the number of admitted callers."""
        if self.store_call_limit is not None:
            count = min(count, max(0, self.store_call_limit - self.active_calls))
        admitted = self._fill_asr_hosts(count) if count else 0
        for number, front in enumerate(self.fronts):
            want = (
                admitted if front.plan.call_share == 1 else int(self.random.binomial(admitted, front.plan.call_share))
            )
            refused = want - self._distribute_calls(front, want)
            if refused:
                carried = self.active_calls
                self._remove_asr_calls(refused)
                for before in self.fronts[:number]:
                    self._remove_ended_calls(before, refused, carried)
                admitted -= refused
            if front.plan.kind == "agent":
                self.call_results.conversations += want
                self.call_results.conversations_refused += refused
        return admitted

    def _distribute_calls(self, front: Fleet, count: int) -> int:
        """Distribute calls over a front's hosts as the load balancer does.

        Agents and ASR pods with free capacity also accept the calls that full hosts of their fleet cannot accept.

        Returns:
            The number of calls with a free slot.
        """
        hosts = np.flatnonzero(front.open)
        if not count or not hosts.size:
            return 0
        weights = np.full(hosts.size, 1.0)
        if not self.cross_zone:
            zone = front.zone[hosts]
            weights /= np.bincount(zone)[zone]
        free_slots = np.maximum(front.plan.slots - front.calls[hosts], 0)
        assigned = np.minimum(self.random.multinomial(count, weights / weights.sum()), free_slots)
        if front.plan.kind in {"agent", "asr"}:
            free_slots -= assigned
            remainder = min(count - int(assigned.sum()), int(free_slots.sum()))
            assigned += self.random.multivariate_hypergeometric(free_slots, remainder, method="marginals")
        front.calls[hosts] += assigned
        return int(assigned.sum())

    def _fill_asr_hosts(self, count: int) -> int:
        """Assign calls to ASR hosts, and return the number of assigned calls."""
        remaining = count
        for kind in TRANSCRIBING_KINDS:
            fleets = [fleet for fleet in self.asr if fleet.plan.kind == kind]
            if remaining and fleets:
                remaining -= _assign_to_least_loaded(fleets, remaining)
        return count - remaining


def _assign_to_least_loaded(fleets: Sequence[Fleet], count: int) -> int:
    """Assign each call in turn to the host with the most free slots, and return the number of assigned calls."""
    free = np.concatenate([np.where(fleet.open, np.maximum(fleet.plan.slots - fleet.calls, 0), 0) for fleet in fleets])
    count = min(count, int(free.sum()))
    assigned = free - _subtract_from_largest(free, count)
    for fleet, part in zip(fleets, _split_by_fleet(fleets, assigned), strict=True):
        fleet.calls += part
    return count


def _split_by_fleet(fleets: Sequence[Fleet], counts: IntArray) -> list[IntArray]:
    """Split an array with one count per host into one array per fleet."""
    return np.split(counts, np.cumsum([len(fleet.calls) for fleet in fleets])[:-1])


def _subtract_from_largest(free: IntArray, count: int) -> IntArray:
    """Subtract ``count`` from the largest values of ``free``, one at a time, and return the remaining values."""
    falling = np.sort(free)[::-1]
    # Amount that lowers the k largest values to the next one.
    cumulative = np.cumsum(falling) - falling * np.arange(1, len(free) + 1)
    level_count = int(np.searchsorted(cumulative, count, side="right"))
    level, spare = divmod(int(falling[:level_count].sum()) - count, level_count)
    remaining = np.minimum(free, level)
    # Some of the lowered values remain one higher than the others.
    remaining[np.flatnonzero(free > level)[:spare]] += 1
    return remaining
