"""An alert fires only after scaling: its threshold exceeds that of the scaling rule."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.blueprint.documents import DEPLOYMENTS
from tests.synthesized import Properties, Stack, Stacks, edited_sandbox, shipped

FILES = [
    file.stem
    for file in sorted(DEPLOYMENTS.glob("*.yaml"))
    if "aws" in yaml.safe_load(file.read_text(encoding="utf-8")) and file.stem != "seed"  # which is refused
]


class AlarmMetric(NamedTuple):
    """A series of an alarm and its threshold."""

    alarm: str
    series: str
    operator: str
    threshold: float
    fires_after_s: int


def metrics_in(alarm: Properties) -> Iterator[AlarmMetric]:
    metrics: list[dict[str, Any]] = [
        {**query["MetricStat"]["Metric"], "Period": query["MetricStat"]["Period"]}
        for query in alarm.get("Metrics", [])
        if "MetricStat" in query
    ] or [alarm]
    for metric in metrics:
        series = f"{metric['Namespace']} {metric['MetricName']} {metric['Dimensions']}"
        seconds = metric["Period"] * alarm["DatapointsToAlarm"]
        yield AlarmMetric(alarm["AlarmName"], series, alarm["ComparisonOperator"], alarm["Threshold"], seconds)


def alarms(stack: Stack, *, grows: bool = False) -> list[AlarmMetric]:
    """Return every alarm's series; with ``grows`` only those of scaling rules that add hosts."""
    policies = stack.of_type("AutoScaling::ScalingPolicy")

    def adds(alarm: Properties) -> bool:
        steps: list[int] = [step["ScalingAdjustment"] for action in alarm["AlarmActions"]
                 for step in policies[action["Ref"]]["Properties"]["StepAdjustments"]]  # fmt: skip
        return min(steps) > 0

    return [each for alarm in stack.properties("CloudWatch::Alarm") if not grows or adds(alarm)
            for each in metrics_in(alarm)]  # fmt: skip


def alerts_before_scaling(stacks: Stacks) -> tuple[list[str], int]:
    """Return the alerts that fire before scaling, and the number of compared alerts."""
    found, compared = [], 0
    for rule in (
        each for tier in stacks if tier.startswith(("vad", "asr-")) for each in alarms(stacks[tier], grows=True)
    ):
        for alert in alarms(stacks["observability"]):
            if (alert.series, alert.operator) == (rule.series, rule.operator):
                compared += 1
                sign = 1 if rule.operator == "GreaterThanThreshold" else -1
                if sign * (alert.threshold - rule.threshold) <= 0:
                    found.append(f"{alert.alarm} at {alert.threshold} lies not beyond {rule.alarm} at {rule.threshold}")
                if alert.fires_after_s < rule.fires_after_s:
                    found.append(f"{alert.alarm} fires after {alert.fires_after_s} s, {rule.alarm} after "
                                 f"{rule.fires_after_s} s")  # fmt: skip
    return found, compared


# The fleets of `hosts` and `small` only have rules on SlotsTaken, which no alert uses.
@pytest.mark.parametrize("name", [name for name in FILES if name not in ("hosts", "small")])
def test_alert_thresholds_exceed_scaling_thresholds(name: str) -> None:
    found, compared = alerts_before_scaling(shipped(name))
    assert not found
    assert compared


def test_an_alert_that_fires_before_scaling_is_detected(tmp_path: Path) -> None:
    found, _ = alerts_before_scaling(
        edited_sandbox({"aws.asr.2.scaling.1.threshold": 95, "aws.asr.2.scaling.1.period_s": 120}, tmp_path)
    )
    assert found == [
        "sandbox-alert-gpu-saturated at 95 lies not beyond sandbox-p5-gpu-busy-high at 95",
        "sandbox-alert-gpu-saturated fires after 300 s, sandbox-p5-gpu-busy-high after 360 s",
    ]
