"""Serves metrics for Prometheus on a port that is separate from those for callers."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, LATENCY_BUCKETS_MS, METRICS, Metric
from voice_runtime.metrics import Metrics


class PrometheusMetrics(Metrics):
    """Records metrics, and serves them to Prometheus.

    Raises:
        OSError: The port is in use.
    """

    def __init__(self, deployment: str, fleet: str, address: str, port: int) -> None:
        super().__init__(deployment, fleet)
        self._registry = CollectorRegistry()
        gateway_metrics = [metric for metric in METRICS.values() if metric.publisher is Image.GATEWAY]
        self._series = {metric.name: self._create_series(metric, deployment, fleet) for metric in gateway_metrics}
        start_http_server(port, addr=address, registry=self._registry)

    def count(self, name: str) -> None:
        """Count an event."""
        self.observe(name, 1)

    def observe(self, name: str, value: float) -> None:
        """Record a value."""
        match self._series[name]:
            case Counter() as counter:
                counter.inc(value)
            case Histogram() as histogram:
                histogram.observe(value)
            case gauge:
                gauge.set(value)

    def flush(self) -> None:
        """Do nothing, since a scrape reads the current values."""

    def _create_series(self, metric: Metric, deployment: str, fleet: str) -> Counter | Gauge | Histogram:
        description = metric.prometheus_name, metric.meaning, (DEPLOYMENT_DIMENSION, FLEET_DIMENSION)
        if metric.is_summable:
            return Counter(*description, registry=self._registry).labels(deployment, fleet)
        if metric.unit == "Milliseconds":
            return Histogram(*description, buckets=LATENCY_BUCKETS_MS, registry=self._registry).labels(
                deployment, fleet
            )
        return Gauge(*description, registry=self._registry).labels(deployment, fleet)
