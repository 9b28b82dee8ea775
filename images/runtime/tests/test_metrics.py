"""Metrics in CloudWatch's embedded format."""

import json
import time

from voice_runtime.metrics import Metrics

MAX_VALUES_PER_LINE = 100
"""According to the specification that ``metrics`` cites."""


def test_metric_lines_have_a_timestamp_and_limited_values() -> None:
    lines: list[str] = []
    metrics = Metrics("mine", "gateway", lines.append)
    for value in range(MAX_VALUES_PER_LINE + 1):
        metrics.observe("TimeToFinal", value)
    for _ in range(3):
        metrics.count("SessionsCreated")
    since = time.time_ns() // 1_000_000
    metrics.flush()
    first, second, created = map(json.loads, lines)
    assert first["TimeToFinal"] == list(range(MAX_VALUES_PER_LINE))
    assert (second["TimeToFinal"], created["SessionsCreated"]) == (MAX_VALUES_PER_LINE, 3)
    timestamp = first["_aws"]["Timestamp"]
    assert isinstance(timestamp, int), "milliseconds, as CloudWatch requires"
    assert since <= timestamp <= time.time_ns() // 1_000_000
    metrics.flush()
    assert len(lines) == 3
