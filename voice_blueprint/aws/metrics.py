"""Metrics that AWS publishes: those from its services, and those that metric filters extract from logs.

Names, units and dimension sets follow the documentation of each service, linked below. CloudWatch publishes some
metrics with several dimension sets; only the declared one is read.
"""

from dataclasses import dataclass
from typing import Literal

from voice_blueprint.contract.metrics import LOG_FAILURE_MARKER, LOG_LEVEL_FIELD, Metric, MetricUnit
from voice_blueprint.contract.network import Tier

API_GATEWAY_NAMESPACE = "AWS/ApiGateway"
"""https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-metrics-and-dimensions.html"""
AUTO_SCALING_NAMESPACE = "AWS/AutoScaling"
"""https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-metrics.html"""
ECS_NAMESPACE = "AWS/ECS"
"""https://docs.aws.amazon.com/AmazonECS/latest/developerguide/available-metrics.html"""
ELASTICACHE_NAMESPACE = "AWS/ElastiCache"
"""https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/CacheMetrics.Redis.html"""
NAT_GATEWAY_NAMESPACE = "AWS/NATGateway"
"""https://docs.aws.amazon.com/vpc/latest/userguide/metrics-dimensions-nat-gateway.html"""
NLB_NAMESPACE = "AWS/NetworkELB"
"""https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-cloudwatch-metrics.html"""
LOG_NAMESPACE = "VoiceServe/Logs"
"""Parent of the namespaces of metric filters. Each deployment has a namespace of its own, since metric filters cannot
add constant dimensions."""

_EDGE_TIERS = (Tier.GATEWAY, Tier.AGENT)
_HOST_TIERS = (Tier.VAD, Tier.ASR)


def _build_service_metrics(
    namespace: str, tiers: tuple[Tier, ...], dimensions: tuple[str, ...], metrics: dict[str, tuple[MetricUnit, str]]
) -> list[Metric]:
    return [
        Metric(name, unit, "aws", meaning, tiers, dimensions=dimensions, namespace=namespace)
        for name, (unit, meaning) in metrics.items()
    ]


SERVICE_METRICS: dict[tuple[str, str], Metric] = {
    (metric.namespace, metric.name): metric
    for metric in (
        *_build_service_metrics(API_GATEWAY_NAMESPACE, _EDGE_TIERS, ("ApiName", "Stage"), {
            "Count": ("Count", "Requests of the session API."),
            "4XXError": ("Count", "Requests that the caller got wrong; the average is their share."),
            "5XXError": ("Count", "Requests that failed on our side; the average is their share."),
            "Latency": ("Milliseconds", "Request to end of response; an event stream lasts as long as it is open."),
        }),
        *_build_service_metrics(AUTO_SCALING_NAMESPACE, _HOST_TIERS, ("AutoScalingGroupName",), {
            "GroupInServiceInstances": ("None", "Hosts that carry load."),
            "GroupPendingInstances": ("None", "Hosts that were launched and are not ready yet."),
        }),
        *_build_service_metrics(ECS_NAMESPACE, _EDGE_TIERS, ("ClusterName", "ServiceName"), {
            "CPUUtilization": ("Percent", "Share of the vCPUs that the tasks reserve."),
            "MemoryUtilization": ("Percent", "Share of the memory that the tasks reserve."),
        }),
        *_build_service_metrics(ELASTICACHE_NAMESPACE, (Tier.STATE,), ("CacheClusterId",), {
            "DatabaseMemoryUsagePercentage": ("Percent", "Memory in use; at 100 keys near their end are evicted."),
            "EngineCPUUtilization": ("Percent", "The one thread that runs commands."),
            "ReplicationLag": ("Seconds", "How far a replica is behind; the primary publishes none."),
            "CurrConnections": ("Count", "Client connections."),
            "Evictions": ("Count", "Keys dropped for want of memory."),
            "SuccessfulReadRequestLatency": ("Microseconds", "Inside the engine, without the network."),
        }),
        *_build_service_metrics(NAT_GATEWAY_NAMESPACE, (Tier.AWS,), ("NatGatewayId",), {
            "ErrorPortAllocation": ("Count", "Connections that failed because a destination had no free port."),
        }),
        *_build_service_metrics(
            NLB_NAMESPACE, (Tier.VAD, Tier.GATEWAY, Tier.AGENT), ("TargetGroup", "LoadBalancer"), {
            "HealthyHostCount": ("Count", "Targets that pass the health check."),
            "UnHealthyHostCount": ("Count", "Targets that fail the health check."),
        }),
        *_build_service_metrics(NLB_NAMESPACE, (Tier.PUBLIC_LOAD_BALANCER,), ("LoadBalancer",), {
            "ActiveFlowCount_TLS": ("Count", "Open TLS connections of callers."),
            "ActiveFlowCount_UDP": ("Count", "Live RTP flows of callers."),
            "ClientTLSNegotiationErrorCount": ("Count", "Handshakes that callers aborted."),
        }),
    )
}  # fmt: skip


@dataclass(frozen=True)
class LogMetric:
    """A metric that a metric filter extracts from a log group.

    Attributes:
        metric: The metric. Its namespace is the parent of the deployment's namespace; see ``build_log_namespace``.
        pattern: CloudWatch Logs filter pattern; ``{address_prefix}`` stands for the start of the VPC's addresses.
        value: Increment per match: 1, or a field of the pattern.
        source: Log group that is read.
    """

    metric: Metric
    pattern: str
    source: Literal["vad", "asr", "gateway", "flow-logs"]
    value: str = "1"


def _build_log_counter(name: str, meaning: str, *tiers: Tier) -> Metric:
    return Metric(name, "Count", "log-filter", meaning, tiers, dimensions=(), namespace=LOG_NAMESPACE)


_ABANDONED_LAUNCH_PATTERN = f"[marker={LOG_FAILURE_MARKER}, ...]"
_REJECTED_FLOW_PATTERN = (
    "[version, account, interface, source={address_prefix}*, destination, source_port, destination_port, protocol, "
    "packets, bytes, start, end, action=REJECT, status]"
)

LOG_METRICS: dict[str, LogMetric] = {
    log_metric.metric.name: log_metric
    for log_metric in (
        LogMetric(_build_log_counter("VadHostsAbandoned", "VAD hosts that gave up their launch.", Tier.VAD),
                  _ABANDONED_LAUNCH_PATTERN, "vad"),
        LogMetric(_build_log_counter("AsrHostsAbandoned", "ASR hosts that gave up their launch.", Tier.ASR),
                  _ABANDONED_LAUNCH_PATTERN, "asr"),
        LogMetric(_build_log_counter("GatewayErrors", "Errors that the gateway logged.", Tier.GATEWAY),
                  f'{{ $.{LOG_LEVEL_FIELD} = "error" }}', "gateway"),
        LogMetric(_build_log_counter("InternalPacketsRejected", "Packets between our own addresses that no flow of the "
                               "contract allows. Packets from the internet are not counted: scanners send them all "
                               "day.", *_HOST_TIERS),
                  _REJECTED_FLOW_PATTERN, "flow-logs", "$packets"),
    )
}  # fmt: skip


def build_log_namespace(deployment: str) -> str:
    """Return the namespace for a deployment's metric filters."""
    return f"{LOG_NAMESPACE}/{deployment}"
