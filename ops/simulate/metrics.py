"""What hosts publish, as a function of their calls, and how CloudWatch folds it into datapoints.

Assumed of every accelerator: busy in proportion to its calls. How busy it is when its places are taken nobody has
measured; ``Fleet.busy_at_full`` says it, and reports sweep it.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blueprint.file.model.aws import DataPath
from blueprint.file.model.scaling import Statistic
from ops.simulate.capacity import FleetPlan
from ops.simulate.fleet import Fleet

Values = NDArray[np.floating[Any]]

STREAMS_PER_CORE_CEILING = 3_400
"""Streams at which a polled core has no time left, with the kernel's share on the same core; measured as
``capacity.STREAMS_PER_CORE`` was."""
PACKETS_PER_S = 50
"""Of one stream, at 20 ms of audio a packet."""


def load_percent(fleet: Fleet) -> Values:
    """Return the share of each host's places that is taken."""
    return 100.0 * fleet.calls / fleet.plan.places


def busy_percent(fleet: Fleet) -> Values:
    """Return how busy each host's accelerator is."""
    busy: Values = np.minimum(100.0, fleet.busy_at_full * load_percent(fleet))
    return busy


def ring_percent(fleet: Fleet) -> Values:
    """Return the fullest that a receive ring of each host gets within a second.

    Packets of many callers reach a core at random and take it a constant time each. In such a queue (M/D/1) the chance
    of finding x packets falls about as exp(-2 x (1 - u) / u) at utilization u, and the fullest of n packets is where
    that chance is 1 / n. A ring is all but empty until the core is all but busy: 80 % of 256 is reached at u = 0.97.
    """
    path = fleet.plan.data_path or DataPath()
    streams = np.maximum(fleet.calls / path.rx_queues, 1e-9)
    busy = np.minimum(streams / STREAMS_PER_CORE_CEILING, 1 - 1e-9)
    fullest = busy * np.log(np.maximum(streams * PACKETS_PER_S, 1.0)) / (2 * (1 - busy))
    percent: Values = np.minimum(100.0, 100.0 * fullest / path.rx_ring_size)
    return percent


MODELS: dict[str, Callable[[Fleet], Values]] = {
    "RxRingOccupancy": ring_percent,
    "RxRingSustained": ring_percent,
    "SlotsTaken": lambda fleet: np.minimum(100.0, load_percent(fleet)),
    "VadSessions": lambda fleet: fleet.calls.astype(float),
    "NeuronHeadroom": lambda fleet: 100.0 - busy_percent(fleet),
    "NeuronUtilization": busy_percent,
    "GpuBusy": busy_percent,
    "FreeSlots": lambda fleet: np.maximum(0.0, fleet.plan.places - fleet.calls.astype(float)),
}
"""Metrics of ``blueprint.contract`` that follow from the number of calls."""


def check_modelled(plan: FleetPlan) -> None:
    """Refuse a rule on a metric that says nothing to the simulator.

    Raises:
        ValueError: There is one; with the metrics that can be simulated.
    """
    for rule in plan.rules:
        if rule.metric not in MODELS:
            raise ValueError(
                f"rule {rule.name} of fleet {plan.name} reads {rule.metric}, which does not follow from the number of "
                f"calls alone; what does: {', '.join(MODELS)}"
            )


_FOLDS: dict[Statistic, tuple[Callable[[Values], float], Callable[[float, float], float]]] = {
    Statistic.AVERAGE: (np.sum, operator.add),
    Statistic.SUM: (np.sum, operator.add),
    Statistic.MAXIMUM: (np.max, max),
    Statistic.MINIMUM: (np.min, min),
}
"""What a statistic makes of the samples of a tick, and of two ticks."""


class Period:
    """Samples of one period of an alarm, one of each host and tick."""

    def __init__(self, statistic: Statistic) -> None:
        self._statistic = statistic
        self._of_tick, self._of_both = _FOLDS[statistic]
        self._value, self._count = math.nan, 0

    def add(self, values: Values) -> None:
        """Take the samples of one tick."""
        if values.size:
            newest = float(self._of_tick(values))
            self._value = self._of_both(self._value, newest) if self._count else newest
            self._count += values.size

    def close(self) -> float | None:
        """Return the period's datapoint, ``None`` without samples, and begin the next."""
        value, count, self._count = self._value, self._count, 0
        if not count:
            return None
        return value / count if self._statistic is Statistic.AVERAGE else value
