"""Reference model that simulates each call as a separate process; tests compare the faster bulk model with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import simpy

from voice_ops.simulate.calls import CallSimulator
from voice_ops.simulate.fleet import Fleet, Host, ProcessGenerator
from voice_ops.simulate.run import Simulation
from voice_ops.simulate.traces import LoadTrace


@dataclass(eq=False)
class Call:
    """A call with its slots: a host index in each front tier, and a fleet with a host index."""

    fronts: list[int]
    asr: tuple[Fleet, int]
    alive: bool = True


class StreamCalls(CallSimulator):
    """Calls simulated as processes of simpy."""

    def __init__(
        self,
        env: simpy.Environment,
        fronts: Sequence[Fleet],
        asr: Sequence[Fleet],
        trace: LoadTrace,
        mean_s: float,
        *,
        cross_zone: bool,
        seed: int,
    ) -> None:
        super().__init__(fronts, asr, trace, mean_s, cross_zone=cross_zone, seed=seed)
        self._env = env
        self._alive: dict[Call, None] = {}

    def populate(self, count: int) -> None:
        """Assign slots to callers who are present from the start."""
        for _ in range(count):
            self._env.process(self._call(0.0))

    def advance(self, now: float, tick_s: float) -> None:
        """Route the callers of the tick."""
        del now
        for after in self.random.uniform(0, tick_s, self.draw_arrivals(self._env.now, tick_s)):
            self._env.process(self._call(float(after)))

    def move_calls(self, host: Host, gap_s: float) -> None:
        """Move the calls of a host that accepts no more."""
        fleet, index = host.group.fleet, host.index
        at = self.fronts.index(fleet) if fleet in self.fronts else None
        here = [
            call for call in self._alive if (call.asr == (fleet, index) if at is None else call.fronts[at] == index)
        ]
        for call in here:
            fronts = [
                self._select_vad_host(front) if number == at else call.fronts[number]
                for number, front in enumerate(self.fronts)
            ]
            asr = self._asr_host() if at is None else call.asr
            self._release(call)
            if asr is None or not _complete(fronts):
                self.call_results.cut += 1
                call.alive = False
            else:
                self.call_results.degraded_s += gap_s
                call.fronts, call.asr = fronts, asr
                self._occupy(call)

    def _call(self, after: float) -> ProcessGenerator:
        yield self._env.timeout(after)
        fronts, asr = [self._select_vad_host(front) for front in self.fronts], self._asr_host()
        if asr is None or not _complete(fronts):
            self.call_results.refused += 1
            return
        call = Call(fronts, asr)
        self._occupy(call)
        yield self._env.timeout(float(self.random.exponential(self.mean_s)))
        if call.alive:
            self._release(call)

    def _occupy(self, call: Call) -> None:
        self._alive[call] = None
        fleet, index = call.asr
        for front, host in zip(self.fronts, call.fronts, strict=True):
            front.calls[host] += 1
        fleet.calls[index] += 1

    def _release(self, call: Call) -> None:
        del self._alive[call]
        fleet, index = call.asr
        for front, host in zip(self.fronts, call.fronts, strict=True):
            front.calls[host] -= 1
        fleet.calls[index] -= 1

    def _select_vad_host(self, front: Fleet) -> int | None:
        hosts = np.flatnonzero(front.open)
        if not hosts.size:
            return None
        if not self.cross_zone:
            zones = front.zone[hosts]
            hosts = hosts[zones == self.random.choice(np.unique(zones))]
        chosen = int(self.random.choice(hosts))
        return chosen if front.calls[chosen] < front.plan.slots else None

    def _asr_host(self) -> tuple[Fleet, int] | None:
        for kind in ("neuron", "gpu", "cpu"):
            best, most = None, 0
            for fleet in self.asr:
                if fleet.plan.kind != kind or not fleet.open.any():
                    continue
                free = np.where(fleet.open, fleet.plan.slots - fleet.calls, 0)
                index = int(free.argmax())
                if free[index] > most:
                    best, most = (fleet, index), int(free[index])
            if best:
                return best
        return None


def _complete(hosts: list[int | None]) -> TypeGuard[list[int]]:
    return None not in hosts


class OneByOne(Simulation):
    """A simulation of single calls."""

    def create_call_simulator(self) -> CallSimulator:
        how, calls = self._settings, super().create_call_simulator()
        return StreamCalls(
            self.env, calls.fronts, calls.asr, self._trace, how.mean_call_s, cross_zone=how.cross_zone, seed=how.seed
        )
