"""A metric of one resource, for alerts and dashboards."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from voice_blueprint.aws.metrics import (
    AUTO_SCALING_NAMESPACE,
    ELASTICACHE_NAMESPACE,
    LOG_METRICS,
    SERVICE_METRICS,
    build_log_namespace,
)
from voice_blueprint.contract.metrics import (
    ALLOWANCE_DIMENSION,
    DEPLOYMENT_DIMENSION,
    FLEET_DIMENSION,
    LOSS_DIMENSION,
    METRICS,
    PHASE_DIMENSION,
    REASON_DIMENSION,
    DropReason,
    LossReason,
    Metric,
    NetworkAllowance,
    StartPhase,
)
from voice_blueprint.file.model.deployment import Deployment

StatisticName = str
"""Statistic over a period in CloudWatch's spelling: ``Average``, ``Maximum``, ``Minimum``, ``SampleCount``, ``Sum``,
``p95``; ``PR(:1000)`` is the percentage of samples up to 1000.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Statistics-definitions.html"""


class Resource(StrEnum):
    """Dimension value that is known only after AWS has created the resource."""

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
    NAT_GATEWAY_1 = "nat-gateway-1"
    NAT_GATEWAY_2 = "nat-gateway-2"
    NAT_GATEWAY_3 = "nat-gateway-3"
    NAT_GATEWAY_4 = "nat-gateway-4"
    NAT_GATEWAY_5 = "nat-gateway-5"
    NAT_GATEWAY_6 = "nat-gateway-6"


NAT_GATEWAYS = tuple(each for each in Resource if each.startswith("nat-gateway-"))
"""NAT gateways, one in each zone. No region has more zones."""


@dataclass(frozen=True)
class Series:
    """A metric with the values of its dimensions.

    Attributes:
        namespace: Namespace of the metric; a metric filter's namespace belongs to the deployment.
        label: Label on a dashboard.

    Raises:
        ValueError: The dimensions differ from those that the contract declares.
    """

    metric: Metric
    namespace: str
    dimensions: Mapping[str, str | Resource]
    statistic: StatisticName
    label: str

    def __post_init__(self) -> None:
        if set(self.dimensions) != set(self.metric.dimensions):
            raise ValueError(
                f"{self.metric.name} has the dimensions {', '.join(self.metric.dimensions) or 'none'}, "
                f"not {', '.join(self.dimensions) or 'none'}"
            )


_DIMENSION_BY_TYPE = {
    DropReason: REASON_DIMENSION,
    LossReason: LOSS_DIMENSION,
    StartPhase: PHASE_DIMENSION,
    NetworkAllowance: ALLOWANCE_DIMENSION,
}


def build_fleet_series(
    deployment: Deployment,
    fleet: str,
    metric: str,
    statistic: StatisticName,
    *,
    label: str = "",
    part: DropReason | LossReason | StartPhase | NetworkAllowance | None = None,
) -> Series:
    """Return a metric that a fleet's hosts or the gateway's tasks publish.

    ``part`` is the value of its third dimension.
    """
    definition = METRICS[metric]
    dimensions = {DEPLOYMENT_DIMENSION: deployment.name, FLEET_DIMENSION: fleet}
    if part is not None:
        dimensions[_DIMENSION_BY_TYPE[type(part)]] = part
    return Series(definition, definition.namespace, dimensions, statistic, label or part or fleet)


def build_service_series(
    namespace: str, metric: str, statistic: StatisticName, values: tuple[str | Resource, ...], label: str = ""
) -> Series:
    """Return a metric of an AWS service. ``values`` are in the order of the metric's dimensions."""
    definition = SERVICE_METRICS[namespace, metric]
    dimensions = dict(zip(definition.dimensions, values, strict=True))
    return Series(definition, definition.namespace, dimensions, statistic, label or str(values[0]))


def build_group_series(group: str, metric: str, statistic: StatisticName) -> Series:
    """Return a metric of an Auto Scaling group."""
    return build_service_series(AUTO_SCALING_NAMESPACE, metric, statistic, (group,))


def build_node_series(node: str, metric: str, statistic: StatisticName) -> Series:
    """Return a metric of a state store node."""
    return build_service_series(ELASTICACHE_NAMESPACE, metric, statistic, (node,))


def build_log_series(deployment: Deployment, metric: str, label: str) -> Series:
    """Return the sum of a metric that a metric filter counts."""
    definition = LOG_METRICS[metric].metric
    return Series(definition, build_log_namespace(deployment.name), {}, "Sum", label)
