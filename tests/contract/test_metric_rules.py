"""The rules on metrics detect violations, each caused by a manual change."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.contract import metric_rules
from tests.contract.sources import DECLARED_METRICS, SANDBOX
from tests.contract.templates import Template, properties_by_type
from voice_blueprint.contract.metrics import Metric

Mutable = dict[str, Template]
FLEETS = ("vad", "gateway", "agent", "inf2", "trn1", "p5")


def with_metric(name: str, change: Callable[[Metric], Metric]) -> list[Metric]:
    changed = [change(metric) if metric.name == name else metric for metric in DECLARED_METRICS]
    assert changed != list(DECLARED_METRICS)
    return changed


def metric_problems(templates: Mutable, declared: Sequence[Metric] = DECLARED_METRICS) -> list[str]:
    return metric_rules.violations(templates, declared, deployment="sandbox", fleets=FLEETS)


@pytest.mark.parametrize("name", sorted({use.name for use in metric_rules.uses(SANDBOX)}))
def test_a_renamed_metric_is_reported(name: str, templates: Mutable) -> None:
    problems = metric_problems(templates, with_metric(name, lambda metric: replace(metric, name=f"{name}2")))
    assert any("nobody publishes" in problem and problem.endswith(f" {name}") for problem in problems)


def test_an_added_dimension_is_reported(templates: Mutable) -> None:
    declared = with_metric("RxRingOccupancy", lambda m: replace(m, dimensions=(*m.dimensions, "Host")))
    assert any("RxRingOccupancy has the dimensions" in problem for problem in metric_problems(templates, declared))


def test_a_removed_dimension_is_reported(templates: Mutable) -> None:
    declared = with_metric("RxDropped", lambda m: replace(m, dimensions=m.dimensions[:-1]))
    assert any("RxDropped has the dimensions" in problem for problem in metric_problems(templates, declared))


def test_a_changed_namespace_is_reported(templates: Mutable) -> None:
    problems = metric_problems(templates, with_metric("GpuBusy", lambda m: replace(m, namespace="Elsewhere")))
    assert any("nobody publishes VoiceServe GpuBusy" in problem for problem in problems)


def alarm(templates: Mutable, name: str) -> dict[str, Any]:
    (found,) = (each for each in properties_by_type(templates, "CloudWatch::Alarm") if each["AlarmName"] == name)
    return found


@pytest.mark.parametrize("name", ["sandbox-alert-vad-ring-full", "sandbox-vad-slots-high"])
def test_an_alarm_without_a_dimension_is_reported(name: str, templates: Mutable) -> None:
    del alarm(templates, name)["Dimensions"][0]
    assert any(name in problem for problem in metric_problems(templates))


def test_an_alarm_on_a_nonexistent_fleet_is_reported(templates: Mutable) -> None:
    alarm(templates, "sandbox-alert-neuron-exhausted")["Metrics"][1]["MetricStat"]["Metric"]["Dimensions"][1][
        "Value"
    ] = "inf3"
    (problem,) = metric_problems(templates)
    assert "nobody publishes NeuronHeadroom with Fleet inf3" in problem


@pytest.mark.parametrize(
    ("name", "period_s"), [("vad-ring-full", 15), ("vad-ring-full", 5), ("valkey-cpu-high-001", 10)]
)
def test_an_alarm_period_below_the_publishing_interval_is_reported(
    name: str, period_s: int, templates: Mutable
) -> None:
    alarm(templates, f"sandbox-alert-{name}")["Period"] = period_s
    assert len(metric_problems(templates)) == 1


def test_an_alarm_with_another_unit_is_reported(templates: Mutable) -> None:
    alarm(templates, "sandbox-alert-first-transcript-slow")["Metrics"][1]["MetricStat"]["Unit"] = "Seconds"
    (problem,) = metric_problems(templates)
    assert "in Milliseconds, and is read in Seconds" in problem


def test_a_dashboard_with_a_nonexistent_metric_is_reported(templates: Mutable) -> None:
    dashboard = next(
        each
        for each in properties_by_type(templates, "CloudWatch::Dashboard")
        if each["DashboardName"] == "sandbox-vad"
    )
    body = json.dumps(dashboard["DashboardBody"])
    dashboard["DashboardBody"] = json.loads(body.replace("SilenceDropped", "SilenceKept"))
    (problem,) = metric_problems(templates)
    assert "dashboard sandbox-vad" in problem
    assert "SilenceKept" in problem


def test_a_dashboard_without_a_dimension_is_reported(templates: Mutable) -> None:
    dashboard = next(
        each
        for each in properties_by_type(templates, "CloudWatch::Dashboard")
        if each["DashboardName"] == "sandbox-vad"
    )
    body = json.dumps(dashboard["DashboardBody"])
    dashboard["DashboardBody"] = json.loads(body.replace('\\"Deployment\\",\\"sandbox\\",', "", 1))
    assert len(metric_problems(templates)) == 1


def test_gateway_scaling_on_a_nonexistent_metric_is_reported(templates: Mutable) -> None:
    (policy,) = properties_by_type({"edge": templates["edge"]}, "ApplicationAutoScaling::ScalingPolicy")
    policy["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"]["MetricName"] = "Sockets"
    assert len(metric_problems(templates)) == 1


def test_a_renamed_metric_filter_is_reported(templates: Mutable) -> None:
    properties_by_type(templates, "Logs::MetricFilter")[0]["MetricTransformations"][0]["MetricName"] = "Other"
    assert len(metric_problems(templates)) == 2
