"""Converts alarms and scaling policies to the scaling signals in a diagram."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from voice_blueprint.contract.metrics import METRICS
from voice_ops.diagram.boxes import Box
from voice_ops.diagram.graph import ScalingSignal
from voice_ops.diagram.templates import ResourceKey, TemplateSet

_COMPARISONS = {
    "GreaterThanThreshold": ">",
    "GreaterThanOrEqualToThreshold": ">=",
    "LessThanThreshold": "<",
    "LessThanOrEqualToThreshold": "<=",
}


def create_signals(templates: TemplateSet, box_list: list[Box]) -> list[ScalingSignal]:
    """Return a signal for each alarm that scales a fleet, and for each target tracking policy."""
    return [*_create_alarm_signals(templates, box_list), *_create_target_tracking_signals(templates, box_list)]


def _create_alarm_signals(templates: TemplateSet, box_list: list[Box]) -> Iterator[ScalingSignal]:
    policies = templates.collect_properties_by_key("AutoScaling::ScalingPolicy")
    for alarm in templates.iter_resources_by_type("CloudWatch::Alarm"):
        policy_keys = templates.resolve_references(alarm.tier, alarm.properties.get("AlarmActions")) & policies.keys()
        for box in box_list:
            own_policies = sorted(
                key for key in policy_keys if _find_policy_group(templates, policies, key) in box.resources
            )
            if own_policies:
                alarm_properties = alarm.properties
                each = " per zone" if len(own_policies) > 1 else ""
                changes = dict.fromkeys(
                    _describe_change(alarm_properties["Threshold"], policies[key]) for key in own_policies
                )
                yield ScalingSignal(
                    alarm_properties["AlarmName"],
                    box.node.id,
                    alarm_properties["MetricName"],
                    _describe_condition(alarm_properties),
                    f"{' or '.join(changes)}{each}",
                )


def _find_policy_group(
    templates: TemplateSet, policies: Mapping[ResourceKey, Mapping[str, Any]], policy: ResourceKey
) -> ResourceKey | None:
    return templates.resolve_reference(policy[0], policies[policy]["AutoScalingGroupName"])


def _get_metric_unit(metric: str) -> str:
    definition = METRICS.get(metric)
    return "%" if definition and definition.unit == "Percent" else ""


def _describe_condition(alarm: Mapping[str, Any]) -> str:
    sign = _COMPARISONS[alarm["ComparisonOperator"]]
    evaluation_periods = alarm["EvaluationPeriods"]
    breaching = alarm.get("DatapointsToAlarm", evaluation_periods)
    periods = f"{breaching} x {alarm['Period']} s" if breaching == evaluation_periods else (
        f"{breaching} of {evaluation_periods} x {alarm['Period']} s"
    )  # fmt: skip
    return (
        f"{sign} {alarm['Threshold']:g}{_get_metric_unit(alarm['MetricName'])} "
        f"({_abbreviate_statistic(alarm['Statistic'])}, {periods})"
    )


def _abbreviate_statistic(statistic: str) -> str:
    return {"Average": "mean", "Maximum": "max", "Minimum": "min"}.get(statistic, statistic)


def _describe_change(threshold: float, policy: Mapping[str, Any]) -> str:
    steps: Sequence[Mapping[str, Any]] = policy["StepAdjustments"]
    percent = "%" if policy["AdjustmentType"] == "PercentChangeInCapacity" else ""
    if len(steps) == 1:
        return f"{steps[0]['ScalingAdjustment']:+d}{percent}"
    return ", ".join(f"{step['ScalingAdjustment']:+d}{percent} {_describe_interval(threshold, step)}" for step in steps)


def _describe_interval(threshold: float, step: Mapping[str, Any]) -> str:
    low, high = step.get("MetricIntervalLowerBound"), step.get("MetricIntervalUpperBound")
    if high is None or (low is not None and low >= 0):
        return f"from {threshold + (low or 0):g}"
    return f"below {threshold + high:g}"


def _create_target_tracking_signals(templates: TemplateSet, box_list: list[Box]) -> Iterator[ScalingSignal]:
    scalable = templates.collect_properties_by_key("ApplicationAutoScaling::ScalableTarget")
    for policy in templates.iter_resources_by_type("ApplicationAutoScaling::ScalingPolicy"):
        tracking = policy.properties.get("TargetTrackingScalingPolicyConfiguration")
        target = templates.resolve_reference(policy.tier, policy.properties.get("ScalingTargetId"))
        if not tracking or target not in scalable:
            continue
        metric = tracking.get("CustomizedMetricSpecification") or tracking["PredefinedMetricSpecification"]
        name = metric.get("MetricName") or metric["PredefinedMetricType"]
        for box in box_list:
            resource_id = str(scalable[target]["ResourceId"])
            if any(f"'{logical_id}'" in resource_id for _, logical_id in box.resources):
                yield ScalingSignal(
                    policy.properties["PolicyName"],
                    box.node.id,
                    name,
                    f"held at {tracking['TargetValue']:,g}{_get_metric_unit(name)} per task",
                    "adds or removes tasks",
                )
