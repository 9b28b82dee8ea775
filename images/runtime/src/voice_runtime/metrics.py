"""Metrics as log lines in CloudWatch's embedded metric format, so that the task requires no permission to publish.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS, NAMESPACE

MAX_VALUES_PER_LINE = 100
"""Maximum number of values for a metric in a line, according to the specification."""


class Metrics:
    """Collects values and writes them individually, so that CloudWatch can calculate percentiles."""

    def __init__(self, deployment: str, fleet: str, write: Callable[[str], Any] = sys.stdout.write) -> None:
        self._dimensions = {DEPLOYMENT_DIMENSION: deployment, FLEET_DIMENSION: fleet}
        self._write = write
        self._counts: Counter[str] = Counter()
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def count(self, name: str) -> None:
        """Count an event; a flush writes the number."""
        self._counts[name] += 1

    def observe(self, name: str, value: float) -> None:
        """Record a value; a flush writes all of them."""
        self._values[name].append(value)

    def flush(self) -> None:
        """Write the values since the last flush."""
        for name, count in self._counts.items():
            self._values[name].append(count)
        lines = [
            (name, values[begin : begin + MAX_VALUES_PER_LINE])
            for name, values in self._values.items()
            for begin in range(0, len(values), MAX_VALUES_PER_LINE)
        ]
        self._counts.clear()
        self._values.clear()
        for name, values in lines:
            self._write(f"{json.dumps(self._build_line(name, values))}\n")

    def _build_line(self, name: str, values: list[float]) -> dict[str, object]:
        metric = METRICS[name]
        return {
            "_aws": {
                "Timestamp": time.time_ns() // 1_000_000,
                "CloudWatchMetrics": [
                    {
                        "Namespace": NAMESPACE,
                        "Dimensions": [list(metric.dimensions)],
                        "Metrics": [
                            {"Name": name, "Unit": metric.unit, "StorageResolution": metric.resolution_s},
                        ],
                    }
                ],
            },
            **self._dimensions,
            name: values if len(values) > 1 else values[0],
        }
