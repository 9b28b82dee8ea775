"""Calls in bulk: how many each host has, and how many come and go in a tick.

A call takes a place at each front, a gateway task and a VAD host where there are such, and one on an ASR host; of
those that are conversations, also one at an agent; a conversation that its language model hears is given all of them,
too, which is more than it takes. On a cluster the ASR pods are a front of the replicas that they ask. A call's zone
and its place at a front are chosen by the load balancer, evenly and by chance, and it stays there until one of them
goes: new VAD hosts relieve no other. A host that has as many calls as it carries refuses; the load balancer does not
know, and sends callers there all the same. A full agent hands them to one with room, and refuses when there is none
(images/agent/src/voice_agent/siblings.py); ASR pods fill up alike, since the data plane asks none that is full. Its
ASR host is the one with the most free places, Neuron hosts before GPUs (images/vad-dataplane/src/ship/pinning.hpp).
Calls end independently of each other and of where they are, so that hosts need no names for them: what a tick takes
from a host is binomial, and whose VAD places go is hypergeometric.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.simulate.capacity import RECOGNISES
from ops.simulate.fleet import Fleet, Host
from ops.simulate.traces import Trace

Counts = NDArray[np.int64]


@dataclass
class Ledger:
    """What happened to callers, in calls and call-seconds.

    Attributes:
        refused: Callers who found no place.
        cut: Calls whose host went, and who found no other.
        degraded_s: Call-seconds while a call changes its host.
        gpu_s: Call-seconds on GPUs.
        conversations: Callers for whom all others had a place, and who want an agent.
        conversations_refused: Of these, those whom no agent had a place for; they count as refused too.
    """

    offered: int = 0
    refused: int = 0
    cut: int = 0
    degraded_s: float = 0.0
    gpu_s: float = 0.0
    conversations: int = 0
    conversations_refused: int = 0


class Calls:
    """The callers of a simulation.

    Args:
        fronts: Fleets that the load balancer spreads callers over: VAD hosts, gateway tasks, agents last.
        asr: The ASR fleets, Neuron hosts first.
        trace: Calls that are wanted.
        mean_s: Mean length of a call; lengths are exponential.
        cross_zone: Whether the load balancer sends callers to hosts of all zones alike.
        seed: Arrivals depend on it alone, and so are the same whatever the fleets do.
    """

    def __init__(
        self, fronts: Sequence[Fleet], asr: Sequence[Fleet], trace: Trace, mean_s: float, *, cross_zone: bool, seed: int
    ) -> None:
        self.fronts, self.asr, self.trace, self.mean_s, self.cross_zone = fronts, asr, trace, mean_s, cross_zone
        self.ledger = Ledger()
        arriving, going = np.random.SeedSequence(seed).spawn(2)
        self.arriving, self.chance = np.random.default_rng(arriving), np.random.default_rng(going)

    def arrivals(self, now: float, tick_s: float) -> int:
        """Return how many callers come within a tick: what the trace gains, and who replaces those that hang up."""
        wanted, later = self.trace.at(now), self.trace.at(now + tick_s)
        came = int(self.arriving.poisson(max(0.0, later - wanted + (wanted + later) / 2 * tick_s / self.mean_s)))
        self.ledger.offered += came
        return came

    def populate(self, count: int) -> None:
        """Give callers who are there from the start their places."""
        self._enter(count)

    def advance(self, now: float, tick_s: float) -> None:
        """Let callers come and go until ``now + tick_s``."""
        stay = math.exp(-tick_s / self.mean_s)
        self._depart(1 - stay)
        came = self.arrivals(now, tick_s)
        # Of those that come within the tick some are gone at its end; the fleets never see them.
        brief = int(self.chance.binomial(came, 1 - self.mean_s / tick_s * (1 - stay)))
        placed = self._enter(came - brief)
        full = came - brief - placed
        self.ledger.refused += full
        if full:
            self.ledger.refused += int(self.chance.binomial(brief, full / (came - brief)))

    def vacate(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that takes none any more; each is disturbed for ``gap_s``."""
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
        self.ledger.degraded_s += moved * gap_s

    @property
    def carried(self) -> int:
        return sum(int(fleet.calls.sum()) for fleet in self.asr)

    def waiting(self, now: float) -> float:
        """Return the calls that are wanted and not carried: a queue, if refused callers stayed in one."""
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
        """Take a front's part of calls that go, by chance of all that were carried."""
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
        """Give callers a place in each tier; return how many got one."""
        placed = self._fill(count) if count else 0
        for number, front in enumerate(self.fronts):
            whole, carried = front.plan.share == 1, self.carried
            want = placed if whole else int(self.chance.binomial(placed, front.plan.share))
            refused = want - self._share_out(front, want)
            self._leave_asr(refused)
            for before in self.fronts[:number]:
                self._leave(before, refused, carried)
            placed -= refused
            if front.plan.kind == "agent":
                self.ledger.conversations += want
                self.ledger.conversations_refused += refused
        return placed

    def _share_out(self, front: Fleet, count: int) -> int:
        """Spread calls over a front's hosts as the load balancer does, and agents among themselves.

        Returns:
            How many found a place.
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
        """Place calls on ASR hosts; return how many found a place."""
        left = count
        for kind in RECOGNISES:
            fleets = [fleet for fleet in self.asr if fleet.plan.kind == kind]
            if left and fleets:
                left -= _pour(fleets, left)
        return count - left


def _pour(fleets: Sequence[Fleet], count: int) -> int:
    """Give each call in turn to the host with the most free places; return how many found one."""
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
    """Take ``count`` from the largest of ``free``, one by one; return what is left of each."""
    falling = np.sort(free)[::-1]
    # Levelling the k largest down to the next one takes this much.
    takes = np.cumsum(falling) - falling * np.arange(1, len(free) + 1)
    wide = int(np.searchsorted(takes, count, side="right"))
    level, spare = divmod(int(falling[:wide].sum()) - count, wide)
    left = np.minimum(free, level)
    # Of those that were cut, some keep one more than the others.
    left[np.flatnonzero(free > level)[:spare]] += 1
    return left
