"""One metric of one thing: what alerts watch and dashboards draw."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from blueprint.aws.metrics import AUTO_SCALING, ELASTICACHE, LOG_METRICS, SERVICE_METRICS, log_namespace
from blueprint.contract.metrics import (
    ALLOWANCE_DIMENSION,
    DEPLOYMENT_DIMENSION,
    FLEET_DIMENSION,
    LOSS_DIMENSION,
    METRICS,
    PHASE_DIMENSION,
    REASON_DIMENSION,
    Allowance,
    DropReason,
    Loss,
    Metric,
    StartPhase,
)
from blueprint.file.model.deployment import Deployment

Statistic = Literal["Average", "Maximum", "Minimum", "SampleCount", "Sum", "p50", "p95"]
"""How the samples of a period become one value, spelt as CloudWatch does."""


class Resource(StrEnum):
    """A dimension's value that is known only when AWS has made the resource."""

    PUBLIC_LOAD_BALANCER = "public-load-balancer"
    API_LOAD_BALANCER = "api-load-balancer"
    VAD_TARGETS = "vad-targets"
    GATEWAY_PUBLIC_TARGETS = "gateway-public-targets"
    GATEWAY_API_TARGETS = "gateway-api-targets"
    API = "api"
    API_STAGE = "api-stage"
    GATEWAY_CLUSTER = "gateway-cluster"
    GATEWAY_SERVICE = "gateway-service"
    AGENT_LOAD_BALANCER = "agent-load-balancer"
    AGENT_TARGETS = "agent-targets"
    AGENT_CLUSTER = "agent-cluster"
    AGENT_SERVICE = "agent-service"


@dataclass(frozen=True)
class Series:
    """A metric with its dimensions filled in.

    Attributes:
        namespace: Where the metric lies; a metric filter's is the deployment's own.
        label: Its name on a dashboard.

    Raises:
        ValueError: If the dimensions are not exactly those that the contract declares.
    """

    metric: Metric
    namespace: str
    dimensions: Mapping[str, str | Resource]
    statistic: Statistic
    label: str

    def __post_init__(self) -> None:
        if set(self.dimensions) != set(self.metric.dimensions):
            raise ValueError(
                f"{self.metric.name} has the dimensions {', '.join(self.metric.dimensions) or 'none'}, "
                f"not {', '.join(self.dimensions) or 'none'}"
            )


_DIMENSION_OF = {
    DropReason: REASON_DIMENSION,
    Loss: LOSS_DIMENSION,
    StartPhase: PHASE_DIMENSION,
    Allowance: ALLOWANCE_DIMENSION,
}


def of_fleet(
    deployment: Deployment,
    fleet: str,
    metric: str,
    statistic: Statistic,
    *,
    label: str = "",
    part: DropReason | Loss | StartPhase | Allowance | None = None,
) -> Series:
    """Return a metric that a fleet's hosts or the gateway's tasks publish; ``part`` is its third dimension's value."""
    declared = METRICS[metric]
    dimensions = {DEPLOYMENT_DIMENSION: deployment.name, FLEET_DIMENSION: fleet}
    if part is not None:
        dimensions[_DIMENSION_OF[type(part)]] = part
    return Series(declared, declared.namespace, dimensions, statistic, label or part or fleet)


def of_service(
    namespace: str, metric: str, statistic: Statistic, values: tuple[str | Resource, ...], label: str = ""
) -> Series:
    """Return an AWS service's metric; ``values`` stand in the order of the metric's dimensions."""
    declared = SERVICE_METRICS[namespace, metric]
    dimensions = dict(zip(declared.dimensions, values, strict=True))
    return Series(declared, declared.namespace, dimensions, statistic, label or str(values[0]))


def of_group(group: str, metric: str, statistic: Statistic) -> Series:
    """Return a metric of an Auto Scaling group."""
    return of_service(AUTO_SCALING, metric, statistic, (group,))


def of_node(node: str, metric: str, statistic: Statistic) -> Series:
    """Return a metric of a node of the state store."""
    return of_service(ELASTICACHE, metric, statistic, (node,))


def of_log(deployment: Deployment, metric: str, label: str) -> Series:
    """Return the sum of what a metric filter counts."""
    declared = LOG_METRICS[metric].metric
    return Series(declared, log_namespace(deployment.name), {}, "Sum", label)
