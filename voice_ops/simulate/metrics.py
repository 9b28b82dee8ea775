"""Host metrics as a function of the number of calls, and the aggregation of metrics by CloudWatch.

The utilization of every accelerator is assumed to be proportional to its calls. The utilization with all slots used is
not measured; it is ``Fleet.busy_at_full``, which reports vary.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.file.model.aws import DataPath
from voice_blueprint.file.model.scaling import Statistic
from voice_ops.simulate.capacity import FleetPlan
from voice_ops.simulate.fleet import Fleet

HostValues = NDArray[np.floating[Any]]

MAX_STREAMS_PER_CORE = 3_400
"""Number of streams at which a polled core is saturated, including the kernel's share on the same core; measured like
``capacity.VAD_STREAMS_PER_CORE``."""
PACKETS_PER_S = 50
"""Packets per second in a stream, with 20 ms of audio per packet."""


def calculate_load_percent(fleet: Fleet) -> HostValues:
    """Return the percentage of used slots per host."""
    return 100.0 * fleet.calls / fleet.plan.slots


def calculate_utilization_percent(fleet: Fleet) -> HostValues:
    """Return the utilization of the accelerator on each host."""
    busy: HostValues = np.minimum(100.0, fleet.busy_at_full * calculate_load_percent(fleet))
    return busy


def calculate_ring_occupancy_percent(fleet: Fleet) -> HostValues:
    """Return the maximum occupancy of the receive ring on each host within a second, percent.

    Packets of many callers arrive at a core randomly, and each requires constant time. In such a queue (M/D/1), the
    probability of finding x packets is about exp(-2 x (1 - u) / u) at utilization u, and the maximum over n packets is
    the x at which that probability is 1 / n. A ring is almost empty until the core is almost saturated: 80 % of 256 is
    reached at u = 0.97.
    """
    path = fleet.plan.data_path or DataPath()
    streams = np.maximum(fleet.calls / path.rx_queues, 1e-9)
    busy = np.minimum(streams / MAX_STREAMS_PER_CORE, 1 - 1e-9)
    max_fill = busy * np.log(np.maximum(streams * PACKETS_PER_S, 1.0)) / (2 * (1 - busy))
    percent: HostValues = np.minimum(100.0, 100.0 * max_fill / path.rx_ring_size)
    return percent


METRIC_MODELS: dict[str, Callable[[Fleet], HostValues]] = {
    "RxRingOccupancy": calculate_ring_occupancy_percent,
    "RxRingSustained": calculate_ring_occupancy_percent,
    "SlotsTaken": lambda fleet: np.minimum(100.0, calculate_load_percent(fleet)),
    "VadSessions": lambda fleet: fleet.calls.astype(float),
    "NeuronHeadroom": lambda fleet: 100.0 - calculate_utilization_percent(fleet),
    "NeuronUtilization": calculate_utilization_percent,
    "GpuBusy": calculate_utilization_percent,
    "FreeSlots": lambda fleet: np.maximum(0.0, fleet.plan.slots - fleet.calls.astype(float)),
}
"""Metrics from ``voice_blueprint.contract`` that can be derived from the number of calls."""


def validate_rule_metrics(plan: FleetPlan) -> None:
    """Reject a rule on a metric that is not simulated.

    Raises:
        ValueError: A rule uses such a metric. The message lists the supported metrics.
    """
    for rule in plan.rules:
        if rule.metric not in METRIC_MODELS:
            raise ValueError(
                f"rule {rule.name} of fleet {plan.name} uses {rule.metric}, which cannot be simulated from the "
                f"number of calls; supported metrics are {', '.join(METRIC_MODELS)}"
            )


_AGGREGATORS_BY_STATISTIC: dict[Statistic, tuple[Callable[[HostValues], float], Callable[[float, float], float]]] = {
    Statistic.AVERAGE: (np.add.reduce, operator.add),
    Statistic.SUM: (np.add.reduce, operator.add),
    Statistic.MAXIMUM: (np.maximum.reduce, max),
    Statistic.MINIMUM: (np.minimum.reduce, min),
}
"""Two functions for each statistic: one combines the samples of a tick, the other combines two ticks."""


class MetricPeriod:
    """Aggregate of the samples in an alarm's period, with one sample per host and tick."""

    def __init__(self, statistic: Statistic) -> None:
        self._statistic = statistic
        self._aggregate_tick, self._combine_ticks = _AGGREGATORS_BY_STATISTIC[statistic]
        self._value, self._count = math.nan, 0

    def add(self, values: HostValues) -> None:
        """Add the samples of a tick."""
        if values.size:
            newest = float(self._aggregate_tick(values))
            self._value = self._combine_ticks(self._value, newest) if self._count else newest
            self._count += values.size

    def close(self) -> float | None:
        """End the period, and return its datapoint or ``None`` if there are no samples."""
        value, count, self._count = self._value, self._count, 0
        if not count:
            return None
        return value / count if self._statistic is Statistic.AVERAGE else value
