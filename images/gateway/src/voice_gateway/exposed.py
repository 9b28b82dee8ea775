"""The same metrics where Prometheus asks for them, on a port of their own: callers reach the others."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from blueprint.contract.images import Image
from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS, Metric
from voice_runtime.metrics import Metrics

MILLISECONDS = (100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10_000)


class Exposed(Metrics):
    """Counts, and tells whoever asks.

    Raises:
        OSError: The port is taken.
    """

    def __init__(self, deployment: str, fleet: str, address: str, port: int) -> None:
        super().__init__(deployment, fleet)
        self._registry = CollectorRegistry()
        ours = [metric for metric in METRICS.values() if metric.publisher is Image.GATEWAY]
        self._exposed = {metric.name: self._expose(metric, deployment, fleet) for metric in ours}
        start_http_server(port, addr=address, registry=self._registry)

    def count(self, name: str) -> None:
        """Count something that has happened."""
        self.observe(name, 1)

    def observe(self, name: str, value: float) -> None:
        """Note a value."""
        match self._exposed[name]:
            case Counter() as counter:
                counter.inc(value)
            case Histogram() as histogram:
                histogram.observe(value)
            case gauge:
                gauge.set(value)

    def flush(self) -> None:
        """Do nothing: who asks is told what is then."""

    def _expose(self, metric: Metric, deployment: str, fleet: str) -> Counter | Gauge | Histogram:
        about = metric.series, metric.meaning, (DEPLOYMENT_DIMENSION, FLEET_DIMENSION)
        if metric.adds:
            return Counter(*about, registry=self._registry).labels(deployment, fleet)
        if metric.unit == "Milliseconds":
            return Histogram(*about, buckets=MILLISECONDS, registry=self._registry).labels(deployment, fleet)
        return Gauge(*about, registry=self._registry).labels(deployment, fleet)
