"""Usage that a load causes: load balancer units, requests, traffic between zones and to the internet, metrics, logs."""

import math
from collections.abc import Iterable, Iterator

from voice_blueprint import catalog
from voice_blueprint.aws.metrics import LOG_METRICS
from voice_blueprint.azure.metrics import SCRAPE_INTERVAL_S
from voice_blueprint.capacity.bounds import (
    CHUNKS_PER_S,
    EDGE_INSTANCES,
    EDGE_UNITS,
    PACKET_BYTES,
    PACKETS_PER_S,
    SOCKETS_PER_CALL,
    STORE_BYTES_PER_CALL,
)
from voice_blueprint.capacity.tiers import build_aws_tier_capacities
from voice_blueprint.contract.chunk import CHUNK_DATAGRAM_BYTES
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import (
    ALLOWANCE_DIMENSION,
    EVENT_DIMENSION,
    METRICS,
    PHASE_DIMENSION,
    REASON_DIMENSION,
    DataPlaneEvent,
    DropReason,
    NetworkAllowance,
    StartPhase,
)
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.engines.sizing.service import size_services
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure, TtsService
from voice_blueprint.file.model.load import CallLoad
from voice_blueprint.hosts import list_asr_images
from voice_blueprint.images import load_image_specs
from voice_blueprint.limits import PUBLISH_INTERVAL_S
from voice_ops.cost.model import ZERO_AMOUNT, Amount, ResourceUsage, sum_amounts
from voice_ops.cost.prices import DAYS_PER_MONTH, HOURS_PER_MONTH

PRICED_ITEMS = frozenset(
    {
        *("requests", "metrics that the hosts publish", "traffic between zones and to the internet", "logs", "data"),
        *("connections and data", "images", "ingestion", "samples", "stored logs"),
        *("capacity units beyond the reserve", "data of load balancers", "data of sessions"),
        *("archived transcripts", "requests for transcripts"),
        *("snapshots", "weights and compiled programs", "access logs"),
    }
)
"""Items in ``ITEMS_BY_TYPE`` that this module prices."""

EVENTS_PER_S, EVENT_BYTES = 3, 400
"""Rate and size of the transcript events while a caller speaks. The size is ASSUMED."""
MAX_STREAM_MINUTES = 15
"""Maximum duration of an event stream on API Gateway; the caller then opens another stream."""
LOG_BYTES_PER_CALL = 25_000
"""Log volume of a call: flow records and the gateway's log; on Azure, the logs of the engines and the router. A
conversation with an agent adds the same amount. ASSUMED."""
PUBLISH_REQUEST_BYTES = 10_000
"""Size of a telemetry request. ASSUMED."""
SPEECH_BYTES_PER_S = 24_000 * 2
"""Text-to-speech output: 24 kHz, 16 bits, one channel."""
SERIES_PER_REPLICA, SERIES_PER_NODE = 500, 1000
"""Time series of an engine, including its cache server and GPUs, and of a node: kubelet, containers and
kube-state-metrics. ASSUMED."""
METRIC_SAMPLE_BYTES = 2
"""Size of a compressed sample that is sent to the workspace. ASSUMED."""

ARCHIVED_BYTES_PER_MINUTE = 2_000
"""Size of a spoken minute in the archive, with 150 words and their times as gzipped JSON lines. Measured: 1.9 kB for
three minutes, 1.8 kB for an hour."""

ACCESS_LOG_RECORD_BYTES = 150
"""Size of a compressed access log record of the load balancer, one per TLS connection. ASSUMED."""

WHISPER_ARTIFACTS_GIB = 6
"""Weights of Whisper large-v2, 3 GiB, and compiled programs of the same size. ASSUMED."""

RETAINED_VERSION_COUNT = 2
"""Versions of an image in its repository, and of artifacts in the bucket: the current one, and the one to roll back to.
ASSUMED."""

AUDIO_GB_PER_HOUR = PACKET_BYTES * PACKETS_PER_S * 3600 / 1e9
"""Size of the audio in one call-hour, in GB."""

_VALUES_BY_DIMENSION = {
    ALLOWANCE_DIMENSION: NetworkAllowance,
    EVENT_DIMENSION: DataPlaneEvent,
    PHASE_DIMENSION: StartPhase,
    REASON_DIMENSION: DropReason,
}


def calculate_aws_usage(
    aws: Aws, load: CallLoad, calls: Amount, utilization: float
) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the load's monthly usage on AWS, with the resource type that each item is charged with.

    Args:
        calls: Mean number of concurrent calls over a month.
    """
    call_hours, zones = calls * HOURS_PER_MONTH, len(aws.availability_zones)
    cross_zone_share = (zones - 1) / zones
    speech_gb, text_gb = _calculate_speech_gb_per_hour(load), _calculate_text_gb_per_hour(load)
    # One gigabyte per hour is one unit; new and open connections use fewer units.
    yield (
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
        ResourceUsage("nlb-capacity-unit", calls * (AUDIO_GB_PER_HOUR + text_gb)),
    )
    # Traffic from the gateway to a VAD host; from an ASR host to the store, where ElastiCache's side is free; and from
    # a VAD host to an ASR host.
    crossed_gb = (
        cross_zone_share * (AUDIO_GB_PER_HOUR + speech_gb / 2)
        + cross_zone_share * (1 - _calculate_same_zone_fraction(aws, utilization)) * speech_gb
    )
    yield "AWS::AutoScaling::AutoScalingGroup", ResourceUsage("zone-crossing-data", call_hours * crossed_gb)
    yield "AWS::AutoScaling::AutoScalingGroup", ResourceUsage("internet-data", call_hours * text_gb)
    opened = call_hours * (60 / load.minutes_each)
    yield from calculate_aws_log_uses(aws, opened)
    if aws.edge.archive:
        yield from calculate_archive_uses(aws.edge.archive.retention_days, load, opened)
    yield from _calculate_storage_uses(aws, calls, opened)
    requests = opened * (_count_requests_per_call(load) / 1e6)
    yield "AWS::ApiGateway::RestApi", ResourceUsage("api-gateway-rest-requests", requests)
    yield "AWS::WAFv2::WebACL", ResourceUsage("waf-requests", requests)
    yield (
        "AWS::AutoScaling::AutoScalingGroup",
        ResourceUsage("cloudwatch-custom-metric", Amount.fixed(_count_metrics(aws))),
    )
    publish_requests = _count_metric_publishers(aws, utilization) * (HOURS_PER_MONTH * 3600 / PUBLISH_INTERVAL_S)
    yield "AWS::AutoScaling::AutoScalingGroup", ResourceUsage("cloudwatch-requests", publish_requests * 1e-3)
    uses_endpoint = "monitoring" in aws.network.interface_endpoints
    kind = "AWS::EC2::VPCEndpoint" if uses_endpoint else "AWS::EC2::NatGateway"
    item = "interface-endpoint-data" if uses_endpoint else "nat-gateway-data"
    yield kind, ResourceUsage(item, publish_requests * (PUBLISH_REQUEST_BYTES / 1e9))


def _calculate_storage_uses(aws: Aws, calls: Amount, monthly_calls: Amount) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the storage of snapshots, of weights and compiled programs, and of the load balancer's access logs.

    A snapshot contains the state of all calls at that time. The storage of one snapshot per store is free.
    """
    snapshots = max(0, aws.state.snapshot_retention_days - 1)
    stored = calls * (STORE_BYTES_PER_CALL / 1e9 * snapshots)
    yield "AWS::ElastiCache::ReplicationGroup", ResourceUsage("elasticache-backup", stored)
    fleets = [fleet for fleet in aws.asr if fleet.artifacts]
    gib = sum(
        catalog.models()[fleet.vllm.model].weights_gib if fleet.vllm else WHISPER_ARTIFACTS_GIB for fleet in fleets
    )
    log_gb = (
        monthly_calls
        * (SOCKETS_PER_CALL * ACCESS_LOG_RECORD_BYTES / 1e9)
        * (aws.observability.log_retention_days / DAYS_PER_MONTH)
    )
    yield (
        "AWS::S3::Bucket",
        ResourceUsage("s3-standard", log_gb + Amount.fixed(RETAINED_VERSION_COUNT * gib * 2**30 / 1e9)),
    )


def calculate_archive_uses(
    retention_days: int, load: CallLoad, monthly_calls: Amount
) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the usage of an archive if every call is archived, which is an upper limit.

    Args:
        retention_days: Retention of a transcript.
        monthly_calls: Number of calls per month.
    """
    call_gb = load.minutes_each * load.speech_share * ARCHIVED_BYTES_PER_MINUTE / 1e9
    yield "AWS::S3::Bucket", ResourceUsage("s3-standard", monthly_calls * (call_gb * retention_days / DAYS_PER_MONTH))
    yield "AWS::S3::Bucket", ResourceUsage("s3-put-requests", monthly_calls * 1e-3)


def calculate_image_storage_use(images: Iterable[Image]) -> tuple[str, ResourceUsage]:
    """Return the storage of images in ECR.

    The amount is an upper limit, since layers are compressed, and versions share them.
    """
    gib = sum(load_image_specs()[image].size.budget_gib for image in images)
    return "AWS::ECR::Repository", ResourceUsage(
        "ecr-storage", Amount.fixed(RETAINED_VERSION_COUNT * gib * 2**30 / 1e9)
    )


def calculate_aws_log_uses(aws: Aws, monthly_calls: Amount) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the ingestion and the storage of logs for a number of calls or conversations."""
    logs = monthly_calls * (LOG_BYTES_PER_CALL / 1e9)
    retention_days = max(aws.network.flow_log_retention_days, aws.observability.log_retention_days)
    yield "AWS::Logs::LogGroup", ResourceUsage("logs-ingested", logs)
    # CloudWatch charges compressed storage, so this is an upper limit.
    yield "AWS::Logs::LogGroup", ResourceUsage("logs-stored", logs * (retention_days / DAYS_PER_MONTH))


def calculate_azure_log_uses(monthly_calls: Amount) -> Iterator[tuple[str, ResourceUsage]]:
    yield (
        "operationalinsights:Workspace",
        ResourceUsage("log-analytics-ingested", monthly_calls * (LOG_BYTES_PER_CALL / 1e9)),
    )


def calculate_azure_usage(
    azure: Azure, load: CallLoad, calls: Amount, utilization: float
) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the load's monthly usage on Azure, with the resource type that each item is charged with.

    Transcripts are assumed to be sent to the internet, which is the most expensive route. Without agents, the same
    applies to synthesized speech; with agents, ``voice_ops.cost.conversations`` calculates its usage. Inbound traffic
    and traffic between zones are free:
    https://azure.microsoft.com/updates?id=update-on-interavailability-zone-data-transfer-pricing

    Args:
        calls: Mean number of concurrent calls over a month.
    """
    call_hours = calls * HOURS_PER_MONTH
    services = () if azure.agents else azure.services
    speech_sessions = sum(service.sessions for service in services if isinstance(service, TtsService))
    speech_hours = (calls * (1 - load.speech_share)).map(lambda heard: min(heard, speech_sessions)) * HOURS_PER_MONTH
    sent_gb = call_hours * _calculate_text_gb_per_hour(load) + speech_hours * (SPEECH_BYTES_PER_S * 3600 / 1e9)
    yield "containerservice:AgentPool", ResourceUsage("azure-internet-data", sent_gb)
    logs = list(calculate_azure_log_uses(call_hours * (60 / load.minutes_each)))
    yield from logs
    log_gb = sum_amounts(use.amount for _, use in logs)
    samples = _count_series(azure, utilization) * (HOURS_PER_MONTH * 3600 / SCRAPE_INTERVAL_S)
    yield "monitor:AzureMonitorWorkspace", ResourceUsage("prometheus-samples", samples * 1e-7)
    yield "network:NatGateway", ResourceUsage("azure-nat-gateway-data", log_gb + samples * (METRIC_SAMPLE_BYTES / 1e9))
    if azure.callers:
        yield from _calculate_caller_uses(load, calls)


def _calculate_caller_uses(load: CallLoad, calls: Amount) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the usage of the edge and the store.

    ASSUMED: all callers use WebSockets, which cost more than other transports.
    """
    gb_per_call_hour = AUDIO_GB_PER_HOUR + _calculate_text_gb_per_hour(load)
    yield (
        "network:ApplicationGateway",
        ResourceUsage("waf-gateway-capacity-unit", calculate_edge_capacity_units(load, calls)),
    )
    yield "core/v1:Service", ResourceUsage("azure-load-balancer-data", calls * (HOURS_PER_MONTH * gb_per_call_hour))
    # ASR writes transcripts to the store through a private endpoint.
    yield (
        "network:PrivateEndpoint",
        ResourceUsage("private-endpoint-data", calls * (HOURS_PER_MONTH * _calculate_speech_gb_per_hour(load))),
    )


def calculate_edge_capacity_units(load: CallLoad, calls: Amount, extra_gb: Amount = ZERO_AMOUNT) -> Amount:
    """Return the capacity units of the edge in addition to the reserved units.

    A unit has three dimensions; Azure charges for the dimension with the highest usage.

    Args:
        extra_gb: Data in addition to the calls, GB per hour.
    """
    units_per_gb = 8e3 / 3600 / 2.22
    units_per_call = (SOCKETS_PER_CALL / 2500, _count_requests_per_call(load) / (60 * load.minutes_each) / 10)
    units_by_bytes = (calls * (AUDIO_GB_PER_HOUR + _calculate_text_gb_per_hour(load)) + extra_gb) * units_per_gb
    used = Amount(
        *(max(gb, number * max(units_per_call)) for gb, number in zip(units_by_bytes.cases, calls.cases, strict=True))
    )
    return used.map(lambda units: max(0.0, units - EDGE_INSTANCES[0] * EDGE_UNITS))


def _count_series(azure: Azure, utilization: float) -> Amount:
    """Return the number of series that the managed Prometheus scrapes."""
    sizings = [each for each in size_services(azure).values() if not isinstance(each, DoesNotFitError)]
    replicas = [(pool.bounds.min, pool.max_replicas) for service in sizings for pool in service.pools]
    nodes = [(each.min, each.max) for each in (azure.system_pool.nodes, *(pool.nodes for pool in azure.pools))]
    replica_counts, node_counts = (
        sum_amounts(Amount.between(low, high, utilization) for low, high in bounds) for bounds in (replicas, nodes)
    )
    return replica_counts * SERIES_PER_REPLICA + node_counts * SERIES_PER_NODE


def _count_requests_per_call(load: CallLoad) -> int:
    """Return the number of requests per call: one to open the call, one to close it, and one per event stream."""
    return 2 + math.ceil(load.minutes_each / MAX_STREAM_MINUTES)


def _calculate_speech_gb_per_hour(load: CallLoad) -> float:
    """Return the size of the audio chunks in a call-hour, GB."""
    return CHUNK_DATAGRAM_BYTES * CHUNKS_PER_S * 3600 / 1e9 * load.speech_share


def _calculate_text_gb_per_hour(load: CallLoad) -> float:
    """Return the size of the transcript events in a call-hour, GB."""
    return EVENTS_PER_S * EVENT_BYTES * 3600 / 1e9 * load.speech_share


def _calculate_same_zone_fraction(aws: Aws, utilization: float) -> float:
    """Return the share of zones that contain one of the ASR hosts that are filled first.

    The fleets have the expected size. ASSUMED: these hosts have free capacity, provided that scaling is fast enough.
    """
    first = [fleet for fleet in aws.asr if list_asr_images(fleet)[0] is Image.ASR_NEURON] or list(aws.asr)
    zones = {zone for fleet in first for zone in fleet.availability_zones or aws.availability_zones}
    hosts = sum(fleet.hosts.min + utilization * (fleet.hosts.max - fleet.hosts.min) for fleet in first)
    return min(len(zones), hosts) / len(aws.availability_zones)


def _count_metric_publishers(aws: Aws, utilization: float) -> Amount:
    """Return the number of hosts that call CloudWatch. Gateway tasks write metrics to their log instead."""
    return sum_amounts(
        Amount.between(each.units.min, each.units.max, utilization)
        for each in build_aws_tier_capacities(aws)
        if each.tier in (Tier.VAD, Tier.ASR)
    )


def _count_metrics(aws: Aws) -> int:
    """Return the number of metric series from all fleets and metric filters. The hosts of a fleet share series."""
    kinds = [catalog.instance_types()[fleet.instance_type].compute_kind for fleet in aws.asr]
    tasks = (Tier.GATEWAY, *((Tier.AGENT,) if aws.agents else ()))
    return len(LOG_METRICS) + sum(
        math.prod(len(_VALUES_BY_DIMENSION[name]) for name in metric.dimensions if name in _VALUES_BY_DIMENSION)
        for tier, kind in (*((tier, None) for tier in tasks), (Tier.VAD, None), *((Tier.ASR, kind) for kind in kinds))
        for metric in METRICS.values()
        if tier in metric.tiers and metric.accelerator_kind in (None, kind)
    )
