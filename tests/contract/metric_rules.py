"""Rule that every metric used in alarms, dashboards and scaling policies is published."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.contract.templates import Templates, resources_by_type, text
from voice_blueprint.aws.metrics import LOG_NAMESPACE, build_log_namespace
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import (
    ALLOWANCE_DIMENSION,
    DEPLOYMENT_DIMENSION,
    EVENT_DIMENSION,
    FLEET_DIMENSION,
    LOSS_DIMENSION,
    PHASE_DIMENSION,
    REASON_DIMENSION,
    DataPlaneEvent,
    DropReason,
    LossReason,
    Metric,
    NetworkAllowance,
    StartPhase,
)

SUB_MINUTE_PERIODS = {10, 20, 30}
"""Alarm periods below a minute that CloudWatch supports."""


@dataclass(frozen=True)
class Use:
    """A metric in an alarm, a dashboard or a scaling policy."""

    where: str
    namespace: str
    name: str
    dimensions: Mapping[str, str]
    period_s: int
    unit: str | None = None


def uses(templates: Templates) -> Iterator[Use]:
    """Yield every use of a metric."""
    yield from _alarms(templates)
    yield from _dashboards(templates)
    yield from _target_tracking_uses(templates)


def violations(
    templates: Templates, declared: Collection[Metric], *, deployment: str, fleets: Collection[str]
) -> list[str]:
    """Return uses without a matching publisher, and log metrics without a filter."""
    by_name = {(metric.namespace, metric.name): metric for metric in declared}
    found = [problem for use in uses(templates) for problem in _check(use, by_name, deployment, fleets)]
    return [*found, *_missing_metric_filters(templates, declared, deployment)]


def _check(
    use: Use, declared: Mapping[tuple[str, str], Metric], deployment: str, fleets: Collection[str]
) -> Iterator[str]:
    if use.namespace.startswith(LOG_NAMESPACE) and use.namespace != build_log_namespace(deployment):
        yield f"{use.where}: {use.namespace} is not this deployment's namespace of log metrics"
    namespace = LOG_NAMESPACE if use.namespace.startswith(LOG_NAMESPACE) else use.namespace
    metric = declared.get((namespace, use.name))
    if metric is None:
        yield f"{use.where}: nobody publishes {use.namespace} {use.name}"
        return
    if set(use.dimensions) != set(metric.dimensions):
        yield (
            f"{use.where}: {use.name} has the dimensions {sorted(metric.dimensions)}, "
            f"and is read with {sorted(use.dimensions)}"
        )
    if use.unit not in {None, metric.unit}:
        yield f"{use.where}: {use.name} is in {metric.unit}, and is read in {use.unit}"
    if use.period_s < max(metric.resolution_s, min(SUB_MINUTE_PERIODS)):
        yield f"{use.where}: {use.name} is stored every {metric.resolution_s} s, and is read every {use.period_s} s"
    elif use.period_s % 60 and use.period_s not in SUB_MINUTE_PERIODS:
        yield f"{use.where}: CloudWatch has no period of {use.period_s} s"
    known: dict[str, set[str]] = {
        DEPLOYMENT_DIMENSION: {deployment},
        FLEET_DIMENSION: set(fleets),
        REASON_DIMENSION: {reason.value for reason in DropReason},
        LOSS_DIMENSION: {loss.value for loss in LossReason},
        PHASE_DIMENSION: {phase.value for phase in StartPhase},
        ALLOWANCE_DIMENSION: {allowance.value for allowance in NetworkAllowance},
        EVENT_DIMENSION: {event.value for event in DataPlaneEvent},
    }
    for name, value in use.dimensions.items():
        if isinstance(metric.publisher, Image) and value not in known.get(name, {value}):
            yield f"{use.where}: nobody publishes {use.name} with {name} {value}"


def _missing_metric_filters(templates: Templates, declared: Collection[Metric], deployment: str) -> Iterator[str]:
    counted = {
        (change["MetricNamespace"], change["MetricName"], change.get("Unit"), len(change.get("Dimensions", [])))
        for each in resources_by_type(templates, "Logs::MetricFilter")
        for change in each.properties["MetricTransformations"]
    }
    wanted = {
        (build_log_namespace(deployment), metric.name, metric.unit, 0)
        for metric in declared
        if metric.publisher == "log-filter"
    }
    yield from (f"no metric filter counts {name} in {unit}" for _, name, unit, _ in sorted(wanted - counted))
    yield from (f"a metric filter counts {name}, which is not declared" for _, name, _, _ in sorted(counted - wanted))


def _alarms(templates: Templates) -> Iterator[Use]:
    for alarm in resources_by_type(templates, "CloudWatch::Alarm"):
        properties = alarm.properties
        where = f"alarm {properties['AlarmName']}"
        if "MetricName" in properties:
            yield _use(where, properties, properties["Period"], properties.get("Unit"))
        for query in properties.get("Metrics", []):
            if "MetricStat" in query:
                stat = query["MetricStat"]
                yield _use(where, stat["Metric"], stat["Period"], stat.get("Unit"))


def _target_tracking_uses(templates: Templates) -> Iterator[Use]:
    for policy in resources_by_type(templates, "ApplicationAutoScaling::ScalingPolicy"):
        tracked = policy.properties.get("TargetTrackingScalingPolicyConfiguration", {})
        if specification := tracked.get("CustomizedMetricSpecification"):
            # Without a period Application Auto Scaling uses a minute.
            yield _use(f"policy {policy}", specification, 60, specification.get("Unit"))


def _use(where: str, metric: Mapping[str, Any], period_s: int, unit: str | None) -> Use:
    dimensions = {entry["Name"]: text(entry["Value"]) for entry in metric.get("Dimensions", [])}
    return Use(where, text(metric["Namespace"]), metric["MetricName"], dimensions, period_s, unit)


def _dashboards(templates: Templates) -> Iterator[Use]:
    for dashboard in resources_by_type(templates, "CloudWatch::Dashboard"):
        for widget in json.loads(text(dashboard.properties["DashboardBody"]))["widgets"]:
            if widget["type"] == "metric":
                graph = widget["properties"]
                where = f"dashboard {dashboard.properties['DashboardName']}, {graph['title']}"
                for namespace, name, *rest in graph["metrics"]:
                    *pairs, style = rest
                    dimensions = dict(zip(pairs[::2], pairs[1::2], strict=True))
                    yield Use(where, namespace, name, dimensions, style.get("period", graph["period"]))
