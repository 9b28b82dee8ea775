"""Exports the latest values and the sums of counters to Prometheus."""

from collections import defaultdict
from collections.abc import Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS
from voice_telemetry.sample import Sample

LOOPBACK = "127.0.0.1"
"""Address on a host, which is scraped locally. A pod is scraped from outside."""

MetricFamily = CounterMetricFamily | GaugeMetricFamily


class LatestSampleCollector(Collector):
    """Stores the latest value of each metric, and the sum of each counter.

    Without sums, scrapes every 15 s would miss most increments of counters.
    """

    def __init__(self, *, deployment: str, fleet: str) -> None:
        self._host_labels = {DEPLOYMENT_DIMENSION: deployment, FLEET_DIMENSION: fleet}
        self._samples: dict[tuple[str, str], Sample] = {}
        self._sums: defaultdict[tuple[str, str], float] = defaultdict(float)

    def update(self, samples: list[Sample], min_time: float) -> None:
        """Add new values, and remove values read before ``min_time``, since their source no longer responds."""
        for sample in samples:
            self._sums[sample.name, sample.dimension_value] += sample.value
        latest = self._samples | {(sample.name, sample.dimension_value): sample for sample in samples}
        self._samples = {key: sample for key, sample in latest.items() if sample.read_at >= min_time}

    def collect(self) -> Iterator[MetricFamily]:
        families: dict[str, MetricFamily] = {}
        for (name, part), sample in self._samples.items():
            metric = METRICS[name]
            labels = self._host_labels | ({sample.extra_dimension: part} if sample.extra_dimension else {})
            if name not in families:
                kind = CounterMetricFamily if metric.is_summable else GaugeMetricFamily
                families[name] = kind(metric.prometheus_name, metric.meaning, labels=list(labels))
            families[name].add_metric(
                list(labels.values()), self._sums[name, part] if metric.is_summable else sample.value
            )
        yield from families.values()


def start_server(latest_values: LatestSampleCollector, port: int, address: str = LOOPBACK) -> WSGIServer:
    """Start a server for scrapes, and return it.

    Raises:
        OSError: The port is in use.
    """
    registry = CollectorRegistry()
    registry.register(latest_values)
    server, _ = start_http_server(port, addr=address, registry=registry)
    return server
