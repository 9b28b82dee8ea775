"""Aggregated calls: their number on each host, and the numbers of new and ended calls per tick.

A call occupies a slot at each front (a gateway task and a VAD host, if there are any) and one on an ASR host. A
conversation also occupies one at an agent; if its language model accepts audio, it still occupies all of them, which
overestimates its use. On a cluster, the ASR pods are a front of the replicas that they call. The load balancer selects
a call's zone and its slot at a front evenly and randomly, and the call stays there until one of them ends, so new VAD
hosts do not relieve others. A full host refuses calls, but the load balancer still sends callers to it. A full agent
forwards them to one with free capacity, and refuses them if there is none (images/agent/src/voice_agent/siblings.py);
ASR pods fill evenly, since the data plane uses none that is full. The ASR host of a call is the one with the most free
slots, Neuron hosts before GPUs (images/vad-dataplane/src/ship/pinning.hpp). A full state store refuses a call before
any host is selected. A caller who is refused, or whose call is cut off, calls again within seconds, or gives up. Calls
end independently of each other and of their hosts, so hosts need no names for them: the number that ends on a host in a
tick is binomial, and its distribution over VAD hosts is hypergeometric.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voice_ops.simulate.capacity import RECOGNISES
from voice_ops.simulate.fleet import Fleet, Host
from voice_ops.simulate.traces import Trace

Counts = NDArray[np.int64]

REDIAL_SHARE = 0.8
"""Share of refused or cut-off callers who call again, so that one in five gives up each time. ASSUMED."""
REDIAL_S = 15.0
"""Mean time until they call again. ASSUMED."""


@dataclass
class Ledger:
    """Results for callers, in calls and call-seconds.

    Attributes:
        offered: Number of callers, each counted once regardless of repeated calls.
        attempts: Number of calls, including repeated ones.
        turned_away: Attempts without a free slot.
        refused: Callers without a free slot who gave up.
        cut: Calls whose host failed without a replacement.
        degraded_s: Call-seconds during a change of hosts.
        gpu_s: Call-seconds on GPUs.
        conversations: Callers with a slot in all other tiers who request an agent.
        conversations_refused: Of these, callers without a free agent, who also count as turned away.
    """

    offered: int = 0
    attempts: int = 0
    turned_away: int = 0
    refused: int = 0
    cut: int = 0
    degraded_s: float = 0.0
    gpu_s: float = 0.0
    conversations: int = 0
    conversations_refused: int = 0

    @property
    def admitted(self) -> int:
        """Attempts with a free slot."""
        return self.attempts - self.turned_away


class Calls:
    """The callers of a simulation.

    Args:
        fronts: Fleets over which the load balancer spreads callers: VAD hosts, gateway tasks, agents last.
        asr: The ASR fleets, Neuron hosts first.
        trace: Requested calls.
        mean_s: Mean length of a call; lengths are exponentially distributed.
        cross_zone: Whether the load balancer distributes callers over all zones.
        seed: Seed of new callers, which do not depend on the fleets.
        store_calls: Maximum calls of the state store; ``None`` without one.
        redial_share: Share of refused or cut-off callers who call again.
    """

    def __init__(
        self,
        fronts: Sequence[Fleet],
        asr: Sequence[Fleet],
        trace: Trace,
        mean_s: float,
        *,
        cross_zone: bool,
        seed: int,
        store_calls: int | None = None,
        redial_share: float = 0.0,
    ) -> None:
        self.store_calls, self.redial_share = store_calls, redial_share
        self.waiting_to_redial = 0
        self.fronts, self.asr, self.trace, self.mean_s, self.cross_zone = fronts, asr, trace, mean_s, cross_zone
        self.ledger = Ledger()
        arriving, going = np.random.SeedSequence(seed).spawn(2)
        self.arriving, self.chance = np.random.default_rng(arriving), np.random.default_rng(going)

    def arrivals(self, now: float, tick_s: float) -> int:
        """Return the new callers of a tick: the increase of the trace, and replacements for ended calls."""
        wanted, later = self.trace.at(now), self.trace.at(now + tick_s)
        came = int(self.arriving.poisson(max(0.0, later - wanted + (wanted + later) / 2 * tick_s / self.mean_s)))
        self.ledger.offered += came
        return came

    def populate(self, count: int) -> None:
        """Assign slots to the initial callers."""
        self._enter(count)

    def advance(self, now: float, tick_s: float) -> None:
        """Start and end calls until ``now + tick_s``."""
        stay = math.exp(-tick_s / self.mean_s)
        self._depart(1 - stay)
        came = self.arrivals(now, tick_s) + self._count_redials(tick_s)
        self.ledger.attempts += came
        # Some of the new calls end within the tick; the fleets never see them.
        brief = int(self.chance.binomial(came, 1 - self.mean_s / tick_s * (1 - stay)))
        placed = self._enter(came - brief)
        full = came - brief - placed
        if full:
            full += int(self.chance.binomial(brief, full / (came - brief)))
            self._turn_away(full)

    def _count_redials(self, tick_s: float) -> int:
        """Return the number of repeated calls within a tick."""
        if not self.waiting_to_redial:
            return 0
        again = int(self.chance.binomial(self.waiting_to_redial, 1 - math.exp(-tick_s / REDIAL_S)))
        self.waiting_to_redial -= again
        return again

    def _turn_away(self, count: int) -> None:
        again = int(self.chance.binomial(count, self.redial_share)) if self.redial_share else 0
        self.waiting_to_redial += again
        self.ledger.turned_away += count
        self.ledger.refused += count - again

    def vacate(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that accepts no more; each is degraded for ``gap_s``."""
        fleet, carried = host.group.fleet, self.carried
        count = int(fleet.calls[host.index])
        fleet.calls[host.index] = 0
        moved = self._share_out(fleet, count) if fleet in self.fronts else self._fill(count)
        if fleet in self.fronts:
            self._leave_asr(count - moved)
        for front in self.fronts:
            if front is not fleet:
                self._leave(front, count - moved, carried)
        self.ledger.cut += count - moved
        self.waiting_to_redial += int(self.chance.binomial(count - moved, self.redial_share))
        self.ledger.degraded_s += moved * gap_s

    @property
    def carried(self) -> int:
        return sum(int(np.add.reduce(fleet.calls)) for fleet in self.asr)

    def waiting(self, now: float) -> float:
        """Return the number of requested calls that are not served, as if refused callers waited in a queue."""
        return max(0.0, self.trace.at(now) - self.carried)

    def _depart(self, share: float) -> None:
        ended, carried = 0, self.carried
        for fleet in self.asr:
            gone = self.chance.binomial(fleet.calls, share)
            fleet.calls -= gone
            ended += int(gone.sum())
        for front in self.fronts:
            self._leave(front, ended, carried)

    def _leave(self, front: Fleet, count: int, carried: int) -> None:
        """Remove a front's random share of ending calls."""
        if not count:
            return
        theirs = int(front.calls.sum())
        if theirs < carried:
            count = int(self.chance.hypergeometric(theirs, carried - theirs, count))
        if count:
            front.calls -= self.chance.multivariate_hypergeometric(front.calls, count, method="marginals")

    def _leave_asr(self, count: int) -> None:
        if not count:
            return
        calls = np.concatenate([fleet.calls for fleet in self.asr])
        chosen = self.chance.multivariate_hypergeometric(calls, count, method="marginals")
        for fleet, lost in zip(self.asr, _of_each(self.asr, chosen), strict=True):
            fleet.calls -= lost

    def _enter(self, count: int) -> int:
        """Assign callers a slot in each tier; return how many succeeded."""
        if self.store_calls is not None:
            count = min(count, max(0, self.store_calls - self.carried))
        placed = self._fill(count) if count else 0
        for number, front in enumerate(self.fronts):
            want = placed if front.plan.share == 1 else int(self.chance.binomial(placed, front.plan.share))
            refused = want - self._share_out(front, want)
            if refused:
                carried = self.carried
                self._leave_asr(refused)
                for before in self.fronts[:number]:
                    self._leave(before, refused, carried)
                placed -= refused
            if front.plan.kind == "agent":
                self.ledger.conversations += want
                self.ledger.conversations_refused += refused
        return placed

    def _share_out(self, front: Fleet, count: int) -> int:
        """Distribute calls over a front's hosts as the load balancer does, and over agents with forwarding.

        Returns:
            The number of calls with a free slot.
        """
        hosts = np.flatnonzero(front.open)
        if not count or not hosts.size:
            return 0
        odds = np.full(hosts.size, 1.0)
        if not self.cross_zone:
            zone = front.zone[hosts]
            odds /= np.bincount(zone)[zone]
        room = np.maximum(front.plan.places - front.calls[hosts], 0)
        taken = np.minimum(self.chance.multinomial(count, odds / odds.sum()), room)
        if front.plan.kind in {"agent", "asr"}:
            room -= taken
            over = min(count - int(taken.sum()), int(room.sum()))
            taken += self.chance.multivariate_hypergeometric(room, over, method="marginals")
        front.calls[hosts] += taken
        return int(taken.sum())

    def _fill(self, count: int) -> int:
        """Assign calls to ASR hosts; return how many succeeded."""
        left = count
        for kind in RECOGNISES:
            fleets = [fleet for fleet in self.asr if fleet.plan.kind == kind]
            if left and fleets:
                left -= _pour(fleets, left)
        return count - left


def _pour(fleets: Sequence[Fleet], count: int) -> int:
    """Assign each call in turn to the host with the most free slots; return how many succeeded."""
    free = np.concatenate([np.where(fleet.open, np.maximum(fleet.plan.places - fleet.calls, 0), 0) for fleet in fleets])
    count = min(count, int(free.sum()))
    taken = free - _level(free, count)
    for fleet, part in zip(fleets, _of_each(fleets, taken), strict=True):
        fleet.calls += part
    return count


def _of_each(fleets: Sequence[Fleet], counts: Counts) -> list[Counts]:
    """Split counts of the hosts of several fleets by fleet."""
    return np.split(counts, np.cumsum([len(fleet.calls) for fleet in fleets])[:-1])


def _level(free: Counts, count: int) -> Counts:
    """Take ``count`` from the largest values of ``free``, one at a time; return the remaining values."""
    falling = np.sort(free)[::-1]
    # Number that lowers the k largest values to the next one.
    takes = np.cumsum(falling) - falling * np.arange(1, len(free) + 1)
    wide = int(np.searchsorted(takes, count, side="right"))
    level, spare = divmod(int(falling[:wide].sum()) - count, wide)
    left = np.minimum(free, level)
    # Some of the lowered values keep one more than the others.
    left[np.flatnonzero(free > level)[:spare]] += 1
    return left
