"""The rules on metrics bite: one thing is changed by hand, and a violation must come of it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from blueprint.contract.metrics import Metric
from tests.contract import metric_rules
from tests.contract.sources import DECLARED, SANDBOX
from tests.contract.templates import Template, properties_of

Mutable = dict[str, Template]
FLEETS = ("vad", "gateway", "agent", "inf2", "trn1", "p5")


def with_metric(name: str, change: Callable[[Metric], Metric]) -> list[Metric]:
    changed = [change(metric) if metric.name == name else metric for metric in DECLARED]
    assert changed != list(DECLARED)
    return changed


def problems_of(templates: Mutable, declared: Sequence[Metric] = DECLARED) -> list[str]:
    return metric_rules.violations(templates, declared, deployment="sandbox", fleets=FLEETS)


@pytest.mark.parametrize("name", sorted({use.name for use in metric_rules.uses(SANDBOX)}))
def test_publisher_renames_a_metric(name: str, templates: Mutable) -> None:
    problems = problems_of(templates, with_metric(name, lambda metric: replace(metric, name=f"{name}2")))
    assert any("nobody publishes" in problem and problem.endswith(f" {name}") for problem in problems)


def test_publisher_adds_a_dimension(templates: Mutable) -> None:
    declared = with_metric("RxRingOccupancy", lambda m: replace(m, dimensions=(*m.dimensions, "Host")))
    assert any("RxRingOccupancy has the dimensions" in problem for problem in problems_of(templates, declared))


def test_publisher_drops_a_dimension(templates: Mutable) -> None:
    declared = with_metric("RxDropped", lambda m: replace(m, dimensions=m.dimensions[:-1]))
    assert any("RxDropped has the dimensions" in problem for problem in problems_of(templates, declared))


def test_publisher_moves_to_another_namespace(templates: Mutable) -> None:
    problems = problems_of(templates, with_metric("GpuBusy", lambda m: replace(m, namespace="Elsewhere")))
    assert any("nobody publishes VoiceServe GpuBusy" in problem for problem in problems)


def alarm(templates: Mutable, name: str) -> dict[str, Any]:
    (found,) = (each for each in properties_of(templates, "CloudWatch::Alarm") if each["AlarmName"] == name)
    return found


@pytest.mark.parametrize("name", ["sandbox-alert-vad-ring-full", "sandbox-vad-slots-high"])
def test_alarm_drops_a_dimension(name: str, templates: Mutable) -> None:
    del alarm(templates, name)["Dimensions"][0]
    assert any(name in problem for problem in problems_of(templates))


def test_alarm_over_several_fleets_names_one_that_is_not_there(templates: Mutable) -> None:
    alarm(templates, "sandbox-alert-neuron-exhausted")["Metrics"][1]["MetricStat"]["Metric"]["Dimensions"][1][
        "Value"
    ] = "inf3"
    (problem,) = problems_of(templates)
    assert "nobody publishes NeuronHeadroom with Fleet inf3" in problem


@pytest.mark.parametrize(
    ("name", "period_s"), [("vad-ring-full", 15), ("vad-ring-full", 5), ("valkey-cpu-high-001", 10)]
)
def test_alarm_reads_more_often_than_there_are_values(name: str, period_s: int, templates: Mutable) -> None:
    alarm(templates, f"sandbox-alert-{name}")["Period"] = period_s
    assert len(problems_of(templates)) == 1


def test_alarm_reads_another_unit(templates: Mutable) -> None:
    alarm(templates, "sandbox-alert-first-transcript-slow")["Unit"] = "Seconds"
    (problem,) = problems_of(templates)
    assert "in Milliseconds, and is read in Seconds" in problem


def test_dashboard_reads_a_metric_that_is_not_there(templates: Mutable) -> None:
    dashboard = next(
        each for each in properties_of(templates, "CloudWatch::Dashboard") if each["DashboardName"] == "sandbox-vad"
    )
    body = json.dumps(dashboard["DashboardBody"])
    dashboard["DashboardBody"] = json.loads(body.replace("SilenceDropped", "SilenceKept"))
    (problem,) = problems_of(templates)
    assert "dashboard sandbox-vad" in problem
    assert "SilenceKept" in problem


def test_dashboard_drops_a_dimension(templates: Mutable) -> None:
    dashboard = next(
        each for each in properties_of(templates, "CloudWatch::Dashboard") if each["DashboardName"] == "sandbox-vad"
    )
    body = json.dumps(dashboard["DashboardBody"])
    dashboard["DashboardBody"] = json.loads(body.replace('\\"Deployment\\",\\"sandbox\\",', "", 1))
    assert len(problems_of(templates)) == 1


def test_gateway_scales_on_a_metric_that_is_not_there(templates: Mutable) -> None:
    (policy,) = properties_of({"edge": templates["edge"]}, "ApplicationAutoScaling::ScalingPolicy")
    policy["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"]["MetricName"] = "Sockets"
    assert len(problems_of(templates)) == 1


def test_metric_filter_counts_under_another_name(templates: Mutable) -> None:
    properties_of(templates, "Logs::MetricFilter")[0]["MetricTransformations"][0]["MetricName"] = "Other"
    assert len(problems_of(templates)) == 2
