"""Checks on scaling rules: CloudWatch limits, and rules that scale in the wrong direction."""

import math
from collections.abc import Iterator

from voice_blueprint.aws.fleets import Fleet, iter_fleets
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison, MissingData, ScalingRule, Statistic
from voice_blueprint.file.source import Location
from voice_blueprint.file.suggestion import format_suggestion

_PUT_METRIC_ALARM_DOCS = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"
_SUB_MINUTE_PERIODS_S = (10, 20, 30)
MAX_ALARM_ACTIONS = 5
"""Maximum number of actions per state of an alarm."""
MAX_EVALUATION_SPAN_S = 86_400


def _iter_scaling_rules(deployment: Deployment) -> Iterator[tuple[Fleet, ScalingRule, Location]]:
    for fleet in iter_fleets(deployment):
        for index, rule in enumerate(fleet.rules):
            yield fleet, rule, (*fleet.location, "scaling", index)


@deployment_check(
    "alarm-period",
    "Alarm periods are 10, 20, 30 or a multiple of 60 seconds, and cover at most one day.",
    source=_PUT_METRIC_ALARM_DOCS,
)
def check_alarm_period(deployment: Deployment) -> Iterator[Violation]:
    for _, rule, location in _iter_scaling_rules(deployment):
        if rule.period_s not in _SUB_MINUTE_PERIODS_S and rule.period_s % 60:
            yield Violation(
                (*location, "period_s"),
                f"CloudWatch does not support an alarm period of {rule.period_s} s",
                "use 10, 20, 30 or a multiple of 60",
            )
        span_s = rule.period_s * rule.evaluation_periods
        if span_s > MAX_EVALUATION_SPAN_S:
            yield Violation(
                (*location, "evaluation_periods"),
                f"{rule.evaluation_periods} periods of {rule.period_s} s cover {span_s} s, more than one day",
                "use fewer or shorter periods",
            )


@deployment_check(
    "scaling-metric-published",
    "Every scaling rule uses a metric that the fleet's own hosts publish.",
    source="voice_blueprint/contract/; DPDK's ENA driver has no rx-queue count; NCCL needs more than one GPU",
)
def check_scaling_metric_published(deployment: Deployment) -> Iterator[Violation]:
    for fleet, rule, location in _iter_scaling_rules(deployment):
        published_metrics = [
            metric.name for metric in METRICS.values() if fleet.tier in metric.tiers and metric.is_fleet_wide
        ]
        if rule.metric not in published_metrics:
            yield Violation(
                (*location, "metric"),
                f"hosts of fleet {fleet.name} do not publish "
                f"{rule.metric}{format_suggestion(rule.metric, published_metrics)}",
                f"choose among {', '.join(published_metrics)}",
            )


@deployment_check(
    "scaling-metric-measurable",
    "Neuron metrics scale Neuron fleets, GPU metrics scale GPU fleets.",
    source="neuron-monitor and DCGM only measure devices of their own vendor",
)
def check_scaling_metric_measurable(deployment: Deployment) -> Iterator[Violation]:
    for fleet, rule, location in _iter_scaling_rules(deployment):
        kind = fleet.instance_type
        metric = METRICS.get(rule.metric)
        required_tier = metric.accelerator_kind if metric else None
        if fleet.tier is Tier.ASR and required_tier and kind.compute_kind != required_tier:
            has = kind.accelerator.model if kind.accelerator else "no accelerator"
            other = {"cpu": "SlotsTaken", "gpu": "GpuBusy", "neuron": "NeuronHeadroom"}[kind.compute_kind]
            yield Violation(
                (*location, "metric"), f"{rule.metric} is not available on {kind.name} ({has})", f"use {other}"
            )


@deployment_check(
    "scaling-direction",
    "A fleet grows when its load is high and shrinks when its load is low.",
    source="Auto Scaling step policies: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html",
)
def check_scaling_direction(deployment: Deployment) -> Iterator[Violation]:
    for fleet, rule, location in _iter_scaling_rules(deployment):
        metric = METRICS.get(rule.metric)
        if metric is None or metric.trend_under_load is None:
            continue
        fires_when_loaded = (rule.comparison is Comparison.ABOVE) == (metric.trend_under_load == "rises")
        if rule.adds_hosts != fires_when_loaded:
            effect = "adds hosts to" if rule.adds_hosts else "removes hosts from"
            state = "busy" if fires_when_loaded else "idle"
            yield Violation(
                (*location, "comparison"),
                f"{rule.metric} {rule.comparison} {rule.threshold:g} {effect} fleet {fleet.name} while it is {state}",
                "invert the comparison or the steps, or use the opposite metric (NeuronHeadroom instead of "
                "NeuronUtilization)",
            )


@deployment_check(
    "scale-in-beside-scale-out",
    "Every fleet with a rule that scales out has one that scales in, and vice versa.",
    source="https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html",
    level=Severity.WARNING,
)
def check_scaling_rules_paired(deployment: Deployment) -> Iterator[Violation]:
    for fleet in iter_fleets(deployment):
        directions = {rule.adds_hosts for rule in fleet.rules}
        if len(directions) == 1:
            direction, missing = ("out", "in") if True in directions else ("in", "out")
            yield Violation(
                (*fleet.location, "scaling"),
                f"fleet {fleet.name} scales {direction} but never {missing}",
                f"add a rule that scales {missing}",
            )


@deployment_check(
    "full-host-scales-out",
    "A fleet whose hosts have no free slot scales out regardless of other metrics.",
    source="hosts admit sessions by slots: a full host refuses sessions even if its accelerator is idle",
)
def check_full_host_scales_out(deployment: Deployment) -> Iterator[Violation]:
    for fleet in iter_fleets(deployment):
        # Values that every full host publishes.
        full = {"SlotsTaken": 100.0, "FreeSlots": 0.0}
        can_fire = any(
            rule.adds_hosts
            and rule.metric in full
            and (
                full[rule.metric] > rule.threshold
                if rule.comparison is Comparison.ABOVE
                else full[rule.metric] < rule.threshold
            )
            for rule in fleet.rules
        )
        if fleet.rules and fleet.max_hosts > fleet.min_hosts and not can_fire:
            yield Violation(
                (*fleet.location, "scaling"),
                f"no rule of fleet {fleet.name} adds a host when all slots are in use: the fleet would refuse calls "
                "and not scale out",
                "add a rule on SlotsTaken above 80",
            )


@deployment_check(
    "fleet-can-grow",
    "A fleet whose maximum exceeds its minimum has a rule that adds hosts.",
    source="https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html",
)
def check_fleet_can_grow(deployment: Deployment) -> Iterator[Violation]:
    for fleet in iter_fleets(deployment):
        if fleet.max_hosts > fleet.min_hosts and not fleet.rules:
            yield Violation(
                (*fleet.location, "scaling"),
                f"fleet {fleet.name} has a maximum of {fleet.max_hosts} hosts, but no rule adds hosts to its minimum "
                f"of {fleet.min_hosts}",
                "add a rule on SlotsTaken, or set max to min",
            )


@deployment_check(
    "threshold-in-range",
    "Thresholds are within the range of their metrics.",
    source="voice_blueprint/contract/metrics.py (units)",
)
def check_threshold_in_range(deployment: Deployment) -> Iterator[Violation]:
    for _, rule, location in _iter_scaling_rules(deployment):
        metric = METRICS.get(rule.metric)
        max_value = 100.0 if metric and metric.unit == "Percent" and rule.statistic is not Statistic.SUM else math.inf
        # A threshold outside of the metric's range would make the rule fire always or never.
        if metric and not (
            0 <= rule.threshold < max_value if rule.comparison is Comparison.ABOVE else 0 < rule.threshold <= max_value
        ):
            yield Violation(
                (*location, "threshold"),
                f"{rule.metric} {rule.comparison} {rule.threshold:g} is always true or always false: the metric "
                f"ranges from 0 to {'100' if max_value < math.inf else 'any number'}",
                "choose a value between",
            )


@deployment_check(
    "scaling-does-not-flap",
    "No value of a metric causes one rule to add hosts and another to remove them.",
    source="https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html",
)
def check_scaling_does_not_flap(deployment: Deployment) -> Iterator[Violation]:
    for fleet, scale_out, location in _iter_scaling_rules(deployment):
        for scale_in in fleet.rules:
            if not scale_out.adds_hosts or scale_in.adds_hosts or scale_in.metric != scale_out.metric:
                continue
            is_same_comparison = scale_in.comparison is scale_out.comparison
            overlap = (
                scale_in.threshold > scale_out.threshold
                if scale_out.comparison is Comparison.ABOVE
                else scale_in.threshold < scale_out.threshold
            )
            if is_same_comparison or overlap:
                yield Violation(
                    location,
                    f"{scale_out.metric}: {scale_out.name} ({scale_out.comparison} {scale_out.threshold:g}) and "
                    f"{scale_in.name} ({scale_in.comparison} {scale_in.threshold:g}) can be true at the same time",
                    "leave a gap between the two thresholds",
                )


@deployment_check(
    "scales-from-zero",
    "A fleet that scales on its own hosts' metrics keeps at least one host.",
    source="https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html",
)
def check_scales_from_zero(deployment: Deployment) -> Iterator[Violation]:
    for fleet in iter_fleets(deployment):
        if fleet.min_hosts == 0 and fleet.rules:
            yield Violation(
                fleet.location,
                f"fleet {fleet.name} can scale in to 0 hosts, and then no host publishes the metric that would add "
                "the first one",
                "set min to 1 or more",
            )


@deployment_check(
    "missing-data-is-safe",
    "Missing data never changes the size of a fleet.",
    source="https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html",
)
def check_missing_data_is_safe(deployment: Deployment) -> Iterator[Violation]:
    for fleet, rule, location in _iter_scaling_rules(deployment):
        if rule.missing_data in {MissingData.BREACHING, MissingData.MISSING}:
            yield Violation(
                (*location, "missing_data"),
                f"without data, {rule.name} would change fleet {fleet.name} by {rule.steps[0].adjustment} hosts",
                "use not-breaching",
            )


@deployment_check(
    "silent-alarm-ends",
    "A scaling alarm without data returns to OK.",
    source="https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-actions.html "
    "(Auto Scaling actions are repeated every minute while the alarm stays in ALARM)",
    level=Severity.WARNING,
)
def check_alarm_without_data_resets(deployment: Deployment) -> Iterator[Violation]:
    for fleet, rule, location in _iter_scaling_rules(deployment):
        if rule.missing_data is MissingData.IGNORE:
            yield Violation(
                (*location, "missing_data"),
                f"if the exporters stop while {rule.name} is in ALARM, it stays in ALARM and changes fleet "
                f"{fleet.name} by {rule.steps[0].adjustment} hosts every minute, up to its limit",
                "use not-breaching",
            )


@deployment_check(
    "alarm-actions-fit",
    f"The VAD fleet has at most {MAX_ALARM_ACTIONS} zones, the maximum number of actions of an alarm.",
    source=_PUT_METRIC_ALARM_DOCS,
)
def check_alarm_actions_fit(deployment: Deployment) -> Iterator[Violation]:
    zones = len(deployment.aws.availability_zones)
    if zones > MAX_ALARM_ACTIONS:
        yield Violation(
            ("aws", "availability_zones"),
            f"{zones} zones need {zones} policies on one alarm, but CloudWatch accepts {MAX_ALARM_ACTIONS}",
            f"use at most {MAX_ALARM_ACTIONS} zones",
        )
