"""Alerts on Azure services outside the cluster, whose metrics are in Azure Monitor and not in Prometheus.

The id of an alert is the name of its runbook, `docs/runbooks/azure/<id>.md`. The state store has no alert on evicted
keys: it evicts none (``noeviction``), so writes fail when its memory is full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from voice_blueprint.azure.contract import Component
from voice_blueprint.capacity.bounds import EDGE_INSTANCES, EDGE_UNITS
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.file.model.azure import ExistingNetwork
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import AGENT_POD_IMAGES, IMAGES_BY_CALLER_TIER, lacks_digests
from voice_blueprint.observability.alerting import ALERT_CONDITION_BY_ID, MIN_REFUSALS
from voice_blueprint.observability.azure.alerts import COUNTER_WINDOW_MINUTES

MonitoredService = Literal["Microsoft.Cache/redisEnterprise", "Microsoft.Network/applicationGateways",
                           "Microsoft.Network/natGateways"]  # fmt: skip
"""Type of a resource, which is also the namespace of its metrics."""


@dataclass(frozen=True)
class PlatformAlert:
    """An alert on one metric of one resource.

    Attributes:
        aggregation: Aggregation of the values in a window.
        threshold: The alert fires above this value.
        window_minutes: Window of the aggregation; at least the metric's time grain.
        evaluation_interval_minutes: Time between evaluations.
        dimension: Dimension with the value to which the metric is restricted. With `*`, each value fires separately.
        unit: Unit of the threshold, for messages.
    """

    id: str
    service: MonitoredService
    metric: str
    aggregation: Literal["Average", "Maximum", "Total"]
    threshold: float
    window_minutes: int
    evaluation_interval_minutes: int = 1
    dimension: tuple[str, str] | None = None
    unit: str = ""

    @property
    def meaning(self) -> str:
        """Sentence for the operator who is paged."""
        return ALERT_CONDITION_BY_ID[self.id].meaning

    @property
    def affects_callers(self) -> bool:
        """Whether callers are affected; such an alert pages an operator."""
        return ALERT_CONDITION_BY_ID[self.id].affects_callers


def build_platform_alerts(deployment: Deployment) -> Iterator[PlatformAlert]:
    """Yield the alerts on the state store, the application gateway and the NAT gateway in an Azure section.

    Without its image, a backend has no pod and stays unhealthy. Names, time grains and dimensions of metrics:
    https://learn.microsoft.com/azure/azure-monitor/reference/metrics-index
    """
    if deployment.azure.callers:
        for id_, metric in (("redis-memory-high", "usedmemorypercentage"), ("redis-load-high", "serverLoad")):
            yield PlatformAlert(
                id_,
                "Microsoft.Cache/redisEnterprise",
                metric,
                "Maximum",
                ALERT_CONDITION_BY_ID[id_].threshold,
                5,
                5,
                unit=" %",
            )
        edge: MonitoredService = "Microsoft.Network/applicationGateways"
        agents = AGENT_POD_IMAGES if deployment.azure.agents else ()
        if not lacks_digests(deployment, (*IMAGES_BY_CALLER_TIER[Component.GATEWAY], *agents)):
            yield PlatformAlert(
                "edge-unhealthy", edge, "UnhealthyHostCount", "Average",
                ALERT_CONDITION_BY_ID["edge-unhealthy"].threshold,
                5,
                dimension=("BackendSettingsPool", "*"), unit=" backends",
            )  # fmt: skip
        yield PlatformAlert(
            "edge-errors", edge, "FailedRequests", "Total", _calculate_max_failed_requests(deployment),
            COUNTER_WINDOW_MINUTES,
            unit=" requests",
        )  # fmt: skip
        units = ALERT_CONDITION_BY_ID["edge-at-maximum"].threshold / 100 * EDGE_INSTANCES[1] * EDGE_UNITS
        yield PlatformAlert("edge-at-maximum", edge, "CapacityUnits", "Average", units, 15, unit=" capacity units")
    if not isinstance(deployment.azure.access, ExistingNetwork):
        # Any failed connection is due to exhausted ports:
        # https://learn.microsoft.com/azure/nat-gateway/nat-metrics
        yield PlatformAlert(
            "nat-ports-exhausted", "Microsoft.Network/natGateways", "SNATConnectionCount", "Total",
            ALERT_CONDITION_BY_ID["nat-ports-exhausted"].threshold, 5, dimension=("ConnectionState", "Failed"),
            unit=" connections",
        )  # fmt: skip


def _calculate_max_failed_requests(deployment: Deployment) -> float:
    """Return the threshold of failed requests in a window, as a share of the calls that begin in it at the peak.

    A metric alert cannot divide by the number of requests. Each refused call is a failed request.
    """
    load = deployment.load
    calls_per_window = calculate_peak_calls(load) / load.minutes_each * COUNTER_WINDOW_MINUTES if load else 0.0
    return max(
        MIN_REFUSALS * COUNTER_WINDOW_MINUTES,
        round(ALERT_CONDITION_BY_ID["edge-errors"].threshold / 100 * calls_per_window),
    )
