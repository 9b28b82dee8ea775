"""Calls one by one, each a process of its own: too slow to use, and what the bulk model is measured by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from ops.simulate.calls import Calls
from ops.simulate.fleet import Fleet, Host, Steps
from ops.simulate.run import Simulation
from ops.simulate.traces import Trace


@dataclass(eq=False)
class Call:
    """One call, and its places: a fleet and the index of a host."""

    vad: int
    asr: tuple[Fleet, int]
    alive: bool = True


class StreamCalls(Calls):
    """Calls as processes of simpy."""

    def __init__(
        self,
        env: simpy.Environment,
        vad: Fleet,
        asr: Sequence[Fleet],
        trace: Trace,
        mean_s: float,
        *,
        cross_zone: bool,
        seed: int,
    ) -> None:
        super().__init__(vad, asr, trace, mean_s, cross_zone=cross_zone, seed=seed)
        self._env = env
        self._alive: dict[Call, None] = {}

    def populate(self, count: int) -> None:
        """Give callers who are there from the start their places."""
        for _ in range(count):
            self._env.process(self._call(0.0))

    def advance(self, now: float, tick_s: float) -> None:
        """Send the callers of the tick on their way."""
        del now
        for after in self.chance.uniform(0, tick_s, self.arrivals(self._env.now, tick_s)):
            self._env.process(self._call(float(after)))

    def vacate(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that takes none any more."""
        fleet, index = host.group.fleet, host.index
        on_vad = fleet is self.vad
        here = [call for call in self._alive if (call.vad == index if on_vad else call.asr == (fleet, index))]
        for call in here:
            vad, asr = (self._vad_host(), call.asr) if on_vad else (call.vad, self._asr_host())
            self._release(call)
            if vad is None or asr is None:
                self.ledger.cut += 1
                call.alive = False
            else:
                self.ledger.degraded_s += gap_s
                call.vad, call.asr = vad, asr
                self._occupy(call)

    def _call(self, after: float) -> Steps:
        yield self._env.timeout(after)
        vad, asr = self._vad_host(), self._asr_host()
        if vad is None or asr is None:
            self.ledger.refused += 1
            return
        call = Call(vad, asr)
        self._occupy(call)
        yield self._env.timeout(float(self.chance.exponential(self.mean_s)))
        if call.alive:
            self._release(call)

    def _occupy(self, call: Call) -> None:
        self._alive[call] = None
        fleet, index = call.asr
        self.vad.calls[call.vad] += 1
        fleet.calls[index] += 1

    def _release(self, call: Call) -> None:
        del self._alive[call]
        fleet, index = call.asr
        self.vad.calls[call.vad] -= 1
        fleet.calls[index] -= 1

    def _vad_host(self) -> int | None:
        hosts = np.flatnonzero(self.vad.open)
        if not hosts.size:
            return None
        if not self.cross_zone:
            zones = self.vad.zone[hosts]
            hosts = hosts[zones == self.chance.choice(np.unique(zones))]
        chosen = int(self.chance.choice(hosts))
        return chosen if self.vad.calls[chosen] < self.vad.plan.places else None

    def _asr_host(self) -> tuple[Fleet, int] | None:
        for kind in ("neuron", "gpu", "cpu"):
            best, most = None, 0
            for fleet in self.asr:
                if fleet.plan.kind != kind or not fleet.open.any():
                    continue
                free = np.where(fleet.open, fleet.plan.places - fleet.calls, 0)
                index = int(free.argmax())
                if free[index] > most:
                    best, most = (fleet, index), int(free[index])
            if best:
                return best
        return None


class OneByOne(Simulation):
    """A simulation of single calls."""

    def make_calls(self) -> Calls:
        how, (vad, *asr) = self._settings, self.fleets
        asr.sort(key=lambda fleet: ("neuron", "gpu", "cpu").index(fleet.plan.kind))
        return StreamCalls(self.env, vad, asr, self._trace, how.call_s, cross_zone=how.cross_zone, seed=how.seed)
