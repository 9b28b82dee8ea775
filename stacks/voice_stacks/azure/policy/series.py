"""The series that the cluster's components publish, with their bounds and the direction of bad values."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from voice_blueprint.azure.metrics import (
    CONTAINER_CPU_METRIC,
    POD_START_METRIC,
    AgentMetric,
    CacheMetric,
    ClusterMetric,
    EngineMetric,
    GpuMetric,
    SpeechMetric,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import METRICS, Metric
from voice_blueprint.engines.launch.dcgm import EXPORTED_FIELDS
from voice_blueprint.engines.published.release import load_published_table

HISTOGRAM_SUFFIXES = ("_bucket", "_count", "_sum")


class BreachDirection(Enum):
    """Direction of bad values."""

    UP = 1
    DOWN = -1

    @property
    def opposite(self) -> "BreachDirection":
        return BreachDirection(-self.value)


@dataclass(frozen=True)
class ExpectedSeries:
    """Expected values of a metric series.

    Attributes:
        healthy_value: Value while one replica serves a few callers; for a counter, its increase.
        low: Minimum value.
        high: Maximum value.
        breach_direction: Direction of bad values; ``None`` if no value is bad, such as for a configured number.
        has_service_labels: Whether the series has the labels of a service, because an engine or its cache publishes it.
    """

    healthy_value: float = 1.0
    low: float = 0.0
    high: float = math.inf
    breach_direction: BreachDirection | None = BreachDirection.UP
    has_service_labels: bool = False


FRACTION_SERIES = ExpectedSeries(0.5, 0, 1)
PERCENT_SERIES = ExpectedSeries(50, 0, 100)
NORMALLY_ZERO_SERIES = ExpectedSeries(0)
NEUTRAL_SERIES = ExpectedSeries(breach_direction=None)
WAITING_TIME_SERIES = ExpectedSeries(0.5, 0, 60)
"""Waiting time of callers, who do not wait longer than a minute. Prometheus cannot report more than the largest
bucket of a histogram."""
_CLUSTER_SERIES: Mapping[str, ExpectedSeries] = {
    ClusterMetric.AVAILABLE_REPLICAS: ExpectedSeries(1, breach_direction=BreachDirection.DOWN),
    ClusterMetric.READY_REPLICAS: ExpectedSeries(1, breach_direction=BreachDirection.DOWN),
    ClusterMetric.DESIRED_REPLICAS: NEUTRAL_SERIES,
    ClusterMetric.AUTOSCALER_REPLICAS: ExpectedSeries(1),
    ClusterMetric.AUTOSCALER_MIN_REPLICAS: NEUTRAL_SERIES,
    ClusterMetric.AUTOSCALER_MAX_REPLICAS: ExpectedSeries(2, breach_direction=None),
    ClusterMetric.NODE_INFO: ExpectedSeries(1, 1, 1, breach_direction=BreachDirection.DOWN),
    ClusterMetric.NODE_CONDITION: ExpectedSeries(1, 0, 1, breach_direction=BreachDirection.DOWN),
    ClusterMetric.JOB_FAILED: NORMALLY_ZERO_SERIES,
    ClusterMetric.RESTARTS: NORMALLY_ZERO_SERIES,
}
_ENGINE_SERIES: Mapping[str, ExpectedSeries] = {
    EngineMetric.WAITING: NORMALLY_ZERO_SERIES,
    EngineMetric.KV_USAGE: FRACTION_SERIES,
    EngineMetric.TIME_TO_FIRST_TOKEN: WAITING_TIME_SERIES,
    EngineMetric.FAILED_TRANSFERS: NORMALLY_ZERO_SERIES,
    SpeechMetric.WAITING: NORMALLY_ZERO_SERIES,
    SpeechMetric.TIME_TO_FIRST_AUDIO: WAITING_TIME_SERIES,
    SpeechMetric.FAILED_REQUESTS: NORMALLY_ZERO_SERIES,
    SpeechMetric.SUCCESSFUL_REQUESTS: ExpectedSeries(1, breach_direction=BreachDirection.DOWN),
    CacheMetric.L1_USAGE_RATIO: FRACTION_SERIES,
}
_AGENT_SERIES: Mapping[str, ExpectedSeries] = {
    AgentMetric.SLOTS: ExpectedSeries(8, breach_direction=BreachDirection.DOWN),
    AgentMetric.REFUSED: NORMALLY_ZERO_SERIES,
    AgentMetric.TURN: ExpectedSeries(1, 0, 60),
    AgentMetric.BARGE_IN: WAITING_TIME_SERIES,
    AgentMetric.STAGE: WAITING_TIME_SERIES,
}
_GPU_SERIES: Mapping[str, ExpectedSeries] = {
    GpuMetric.XID: NORMALLY_ZERO_SERIES,
    GpuMetric.XID_COUNT: NORMALLY_ZERO_SERIES,
    GpuMetric.UTILIZATION: PERCENT_SERIES,
    GpuMetric.TENSOR_ACTIVE: FRACTION_SERIES,
    GpuMetric.MEMORY_ACTIVE: FRACTION_SERIES,
    GpuMetric.TEMPERATURE: ExpectedSeries(60, 0, 120),
}
_AGENT_HISTOGRAMS = (AgentMetric.TURN, AgentMetric.STAGE, AgentMetric.BARGE_IN)


@functools.cache
def build_engine_series(engine: str) -> Mapping[str, ExpectedSeries]:
    """Return the series that the release of ``vllm``, ``vllm-omni`` or ``lmcache`` publishes, by name."""
    results: dict[str, ExpectedSeries] = {}
    for metric in load_published_table(engine).metrics:
        base_series = _ENGINE_SERIES.get(metric.name, ExpectedSeries())
        series = ExpectedSeries(
            base_series.healthy_value,
            base_series.low,
            base_series.high,
            base_series.breach_direction,
            has_service_labels=True,
        )
        for ending in HISTOGRAM_SUFFIXES if metric.kind == "histogram" else ("",):
            results[f"{metric.name}{ending}"] = series
    return results


@functools.cache
def build_cluster_series() -> Mapping[str, ExpectedSeries]:
    """Return the series from all other publishers: Kubernetes, GPUs, our own images and recording rules."""
    results: dict[str, ExpectedSeries] = {
        metric: _CLUSTER_SERIES.get(metric, NEUTRAL_SERIES) for metric in ClusterMetric
    }
    results |= {CONTAINER_CPU_METRIC: ExpectedSeries(0.5), POD_START_METRIC: ExpectedSeries(300)}
    results |= {counter.field: _GPU_SERIES.get(counter.field, ExpectedSeries()) for counter in EXPORTED_FIELDS}
    for agent in AgentMetric:
        for ending in HISTOGRAM_SUFFIXES if agent in _AGENT_HISTOGRAMS else ("",):
            results[f"{agent}{ending}"] = _AGENT_SERIES.get(agent, ExpectedSeries())
    for metric in METRICS.values():
        timed = metric.publisher is Image.GATEWAY and metric.unit == "Milliseconds"
        for ending in HISTOGRAM_SUFFIXES if timed else ("",):
            results[f"{metric.prometheus_name}{ending}"] = _build_metric_series(metric)
    return results


_FRONT_DOOR_SERIES: Mapping[str, ExpectedSeries] = {
    "FrontDoorAnswers": ExpectedSeries(1, 0, 1, BreachDirection.DOWN),
    "SyntheticCallSucceeds": ExpectedSeries(1, 0, 1, BreachDirection.DOWN),
    "CertificateDays": ExpectedSeries(60, breach_direction=BreachDirection.DOWN),
}


def _build_metric_series(metric: Metric) -> ExpectedSeries:
    if metric.name in _FRONT_DOOR_SERIES:
        return _FRONT_DOOR_SERIES[metric.name]
    direction = BreachDirection.DOWN if metric.trend_under_load == "falls" else BreachDirection.UP
    if metric.unit == "Percent":
        return ExpectedSeries(50, 0, 100, direction)
    if metric.unit == "Milliseconds":
        return ExpectedSeries(500, 0, 60_000)
    if metric.is_summable or metric.name == "VadStopped":
        return NORMALLY_ZERO_SERIES
    return ExpectedSeries(10 if direction is BreachDirection.DOWN else 1, breach_direction=direction)


def collect_known_series() -> Mapping[str, ExpectedSeries]:
    """Return the series from all publishers in the cluster, by name."""
    return {
        **{
            name: series
            for engine in ("lmcache", "vllm", "vllm-omni")
            for name, series in build_engine_series(engine).items()
        },
        **build_cluster_series(),
    }
