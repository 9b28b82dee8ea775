"""The newest values for Prometheus, on the host's loopback only."""

import re
from collections.abc import Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS
from voice_telemetry.sample import Sample

LOOPBACK = "127.0.0.1"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def exposed_name(metric: str) -> str:
    """Return a metric's name as Prometheus has it: ``RxDropped`` is ``voice_rx_dropped``."""
    return f"voice_{_WORD.sub('_', metric).lower()}"


class Newest(Collector):
    """Holds the newest value of each metric."""

    def __init__(self, *, deployment: str, fleet: str) -> None:
        self._own = {DEPLOYMENT_DIMENSION: deployment, FLEET_DIMENSION: fleet}
        self._samples: dict[tuple[str, str], Sample] = {}

    def keep(self, samples: list[Sample], gone_before: float) -> None:
        """Take new values, and drop those that were read before a time: what nobody tells any more is not shown."""
        kept = self._samples | {(sample.name, sample.part): sample for sample in samples}
        self._samples = {key: sample for key, sample in kept.items() if sample.read_at >= gone_before}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for (name, part), sample in self._samples.items():
            metric = METRICS[name]
            labels = self._own | ({sample.part_dimension: part} if sample.part_dimension else {})
            if name not in families:
                families[name] = GaugeMetricFamily(exposed_name(name), metric.meaning, labels=list(labels))
            families[name].add_metric(list(labels.values()), sample.value)
        yield from families.values()


def serve(newest: Newest, port: int) -> WSGIServer:
    """Answer scrapes until the server is shut down.

    Raises:
        OSError: The port is taken.
    """
    registry = CollectorRegistry()
    registry.register(newest)
    server, _ = start_http_server(port, addr=LOOPBACK, registry=registry)
    return server
