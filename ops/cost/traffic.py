"""What a typed load uses: load balancer units, requests, bytes between zones and outwards, metrics, logs."""

import math
from collections.abc import Iterator

from blueprint import catalog
from blueprint.azure.metrics import SCRAPE_INTERVAL_S
from blueprint.capacity import (
    CHUNKS_PER_S,
    EDGE_INSTANCES,
    EDGE_UNITS,
    PACKET_BYTES,
    PACKETS_PER_S,
    SOCKETS_PER_CALL,
    capacities,
)
from blueprint.contract.chunk import CHUNK_DATAGRAM_BYTES
from blueprint.contract.images import Image
from blueprint.contract.metrics import (
    ALLOWANCE_DIMENSION,
    EVENT_DIMENSION,
    METRICS,
    PHASE_DIMENSION,
    REASON_DIMENSION,
    Allowance,
    DataPlaneEvent,
    DropReason,
    StartPhase,
)
from blueprint.contract.network import Tier
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.engines.sizing.service import size_services
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import Azure, TtsService
from blueprint.file.model.load import CallLoad
from blueprint.hosts import asr_images
from ops.cost.model import NOTHING, Amount, Use, total
from ops.cost.prices import DAYS_PER_MONTH, HOURS_PER_MONTH

PRICED = frozenset(
    {
        *("requests", "metrics that the hosts publish", "traffic between zones and to the internet", "logs", "data"),
        *("connections and data", "ingestion", "samples", "stored logs"),
        *("capacity units beyond the reserve", "data of load balancers", "data of sessions"),
    }
)
"""Of ``BY_USE``, what is priced here."""

EVENTS_PER_S, EVENT_BYTES = 3, 400
"""Transcript events of a caller who speaks. Their size is ASSUMED."""
STREAM_MINUTES = 15
"""API Gateway ends an event stream then; the caller opens another."""
LOG_BYTES_PER_CALL = 25_000
"""Flow records of a call's flows, and the gateway's lines; on Azure lines of engines and router. As much again of a
conversation's flows and its agent. ASSUMED."""
PUBLISH_EVERY_S, PUBLISHED_BYTES = 5, 10_000
"""Telemetry sends so often (images/telemetry, ``publish_every_s``); the size of a request is ASSUMED."""
SPEECH_BYTES_PER_S = 24_000 * 2
"""What text to speech sends: 24 kHz, 16 bits, one channel."""
SERIES_PER_REPLICA, SERIES_PER_NODE = 500, 1000
"""Of an engine with its cache server and GPUs; of kubelet, containers and Kubernetes' own state. ASSUMED."""
SAMPLE_BYTES = 2
"""Of a sample on its way to the workspace, compressed. ASSUMED."""

AUDIO_GB = PACKET_BYTES * PACKETS_PER_S * 3600 / 1e9
"""Of a call-hour."""

_PARTS = {
    ALLOWANCE_DIMENSION: Allowance,
    EVENT_DIMENSION: DataPlaneEvent,
    PHASE_DIMENSION: StartPhase,
    REASON_DIMENSION: DropReason,
}


def aws_uses(aws: Aws, load: CallLoad, calls: Amount, utilisation: float) -> Iterator[tuple[str, Use]]:
    """Yield the type that each use is charged with, and the use of a month.

    Args:
        calls: Calls at the same time, as the mean of a month.
    """
    call_hours, zones = calls * HOURS_PER_MONTH, len(aws.availability_zones)
    crossing = (zones - 1) / zones
    speech_gb, text_gb = _speech_gb(load), _text_gb(load)
    # One gigabyte an hour is a unit; new and open connections take less.
    yield "AWS::ElasticLoadBalancingV2::LoadBalancer", Use("nlb-capacity-unit", calls * (AUDIO_GB + text_gb))
    # Gateway to VAD host, and ASR host to the store, where ElastiCache's side is free; VAD host to ASR host.
    crossed_gb = crossing * (AUDIO_GB + speech_gb / 2) + crossing * (1 - _at_home(aws, utilisation)) * speech_gb
    yield "AWS::AutoScaling::AutoScalingGroup", Use("zone-crossing-data", call_hours * crossed_gb)
    yield "AWS::AutoScaling::AutoScalingGroup", Use("internet-data", call_hours * text_gb)
    opened = call_hours * (60 / load.minutes_each)
    yield from aws_logs(aws, opened)
    requests = opened * (_requests(load) / 1e6)
    yield "AWS::ApiGateway::RestApi", Use("api-gateway-rest-requests", requests)
    yield "AWS::WAFv2::WebACL", Use("waf-requests", requests)
    yield "AWS::AutoScaling::AutoScalingGroup", Use("cloudwatch-custom-metric", Amount.fixed(_metrics(aws)))
    published = _publishers(aws, utilisation) * (HOURS_PER_MONTH * 3600 / PUBLISH_EVERY_S)
    yield "AWS::AutoScaling::AutoScalingGroup", Use("cloudwatch-requests", published * 1e-3)
    by_endpoint = "monitoring" in aws.network.interface_endpoints
    kind = "AWS::EC2::VPCEndpoint" if by_endpoint else "AWS::EC2::NatGateway"
    item = "interface-endpoint-data" if by_endpoint else "nat-gateway-data"
    yield kind, Use(item, published * (PUBLISHED_BYTES / 1e9))


def aws_logs(aws: Aws, opened: Amount) -> Iterator[tuple[str, Use]]:
    """Yield the logs of so many calls or conversations."""
    logs = opened * (LOG_BYTES_PER_CALL / 1e9)
    kept_days = max(aws.network.flow_log_retention_days, aws.observability.log_retention_days)
    yield "AWS::Logs::LogGroup", Use("logs-ingested", logs)
    # What CloudWatch stores is compressed, and charged as such: this is a ceiling.
    yield "AWS::Logs::LogGroup", Use("logs-stored", logs * (kept_days / DAYS_PER_MONTH))


def azure_logs(opened: Amount) -> Iterator[tuple[str, Use]]:
    """Yield the same of Azure."""
    yield "operationalinsights:Workspace", Use("log-analytics-ingested", opened * (LOG_BYTES_PER_CALL / 1e9))


def azure_uses(azure: Azure, load: CallLoad, calls: Amount, utilisation: float) -> Iterator[tuple[str, Use]]:
    """Yield the type that each use is charged with, and the use of a month.

    What callers read leaves for the internet, which is the dearest way, and without agents what they hear (with them:
    ``ops.cost.conversations``). What they say costs nothing, nor does what crosses zones: https://azure.microsoft.com/updates?id=update-on-interavailability-zone-data-transfer-pricing

    Args:
        calls: Calls at the same time, as the mean of a month.
    """
    call_hours = calls * HOURS_PER_MONTH
    heard_from = () if azure.agents else azure.services
    spoken_to = sum(service.sessions for service in heard_from if isinstance(service, TtsService))
    heard_hours = (calls * (1 - load.speech_share)).map(lambda heard: min(heard, spoken_to)) * HOURS_PER_MONTH
    sent = call_hours * _text_gb(load) + heard_hours * (SPEECH_BYTES_PER_S * 3600 / 1e9)
    yield "containerservice:AgentPool", Use("azure-internet-data", sent)
    logs = list(azure_logs(call_hours * (60 / load.minutes_each)))
    yield from logs
    logged = total(use.amount for _, use in logs)
    samples = _series(azure, utilisation) * (HOURS_PER_MONTH * 3600 / SCRAPE_INTERVAL_S)
    yield "monitor:AzureMonitorWorkspace", Use("prometheus-samples", samples * 1e-7)
    yield "network:NatGateway", Use("azure-nat-gateway-data", logged + samples * (SAMPLE_BYTES / 1e9))
    if azure.callers:
        yield from _caller_uses(load, calls)


def _caller_uses(load: CallLoad, calls: Amount) -> Iterator[tuple[str, Use]]:
    """Yield what callers use of the edge and of the store. ASSUMED: all come by WebSocket, which is the dearer way."""
    through_gb = AUDIO_GB + _text_gb(load)
    yield "network:ApplicationGateway", Use("waf-gateway-capacity-unit", edge_units(load, calls))
    yield "core/v1:Service", Use("azure-load-balancer-data", calls * (HOURS_PER_MONTH * through_gb))
    # ASR writes what is spoken to the store, which is behind an endpoint.
    yield "network:PrivateEndpoint", Use("private-endpoint-data", calls * (HOURS_PER_MONTH * _speech_gb(load)))


def edge_units(load: CallLoad, calls: Amount, more_gb: Amount = NOTHING) -> Amount:
    """Return the capacity units of the edge beyond its reserve, with so many calls and so many GB an hour more.

    Of the three things that a unit has, what is used most is what is charged.
    """
    units_per_gb = 8e3 / 3600 / 2.22
    of_a_call = (SOCKETS_PER_CALL / 2500, _requests(load) / (60 * load.minutes_each) / 10)
    of_bytes = (calls * (AUDIO_GB + _text_gb(load)) + more_gb) * units_per_gb
    used = Amount(*(max(gb, number * max(of_a_call)) for gb, number in zip(of_bytes.cases, calls.cases, strict=True)))
    return used.map(lambda units: max(0.0, units - EDGE_INSTANCES[0] * EDGE_UNITS))


def _series(azure: Azure, utilisation: float) -> Amount:
    """Return the series that the managed Prometheus scrapes."""
    sized = [each for each in size_services(azure).values() if not isinstance(each, DoesNotFitError)]
    replicas = [(pool.bounds.min, pool.most_replicas) for service in sized for pool in service.pools]
    nodes = [(each.min, each.max) for each in (azure.system_pool.nodes, *(pool.nodes for pool in azure.pools))]
    of_replicas, of_nodes = (
        total(Amount.between(low, most, utilisation) for low, most in bounds) for bounds in (replicas, nodes)
    )
    return of_replicas * SERIES_PER_REPLICA + of_nodes * SERIES_PER_NODE


def _requests(load: CallLoad) -> int:
    """Return the requests of a call: its opening, its end, and each of its streams of events."""
    return 2 + math.ceil(load.minutes_each / STREAM_MINUTES)


def _speech_gb(load: CallLoad) -> float:
    """Return the chunks of a call-hour, GB."""
    return CHUNK_DATAGRAM_BYTES * CHUNKS_PER_S * 3600 / 1e9 * load.speech_share


def _text_gb(load: CallLoad) -> float:
    """Return the transcript events of a call-hour, GB."""
    return EVENTS_PER_S * EVENT_BYTES * 3600 / 1e9 * load.speech_share


def _at_home(aws: Aws, utilisation: float) -> float:
    """Return the share of the zones in which a VAD host finds one of the ASR hosts that are filled first.

    Their fleets have the expected size. ASSUMED: those hosts have room, as long as scaling keeps up.
    """
    first = [fleet for fleet in aws.asr if asr_images(fleet)[0] is Image.ASR_NEURON] or list(aws.asr)
    zones = {zone for fleet in first for zone in fleet.availability_zones or aws.availability_zones}
    hosts = sum(fleet.hosts.min + utilisation * (fleet.hosts.max - fleet.hosts.min) for fleet in first)
    return min(len(zones), hosts) / len(aws.availability_zones)


def _publishers(aws: Aws, utilisation: float) -> Amount:
    """Return the hosts that call CloudWatch; gateway tasks write their metrics into their log."""
    return total(
        Amount.between(each.units.min, each.units.max, utilisation)
        for each in capacities(aws)
        if each.tier in (Tier.VAD, Tier.ASR)
    )


def _metrics(aws: Aws) -> int:
    """Return the series that all fleets publish; hosts of one fleet share theirs."""
    kinds = [catalog.instance_types()[fleet.instance_type].computes_on for fleet in aws.asr]
    return sum(
        math.prod(len(_PARTS[name]) for name in metric.dimensions if name in _PARTS)
        for tier, kind in ((Tier.GATEWAY, None), (Tier.VAD, None), *((Tier.ASR, kind) for kind in kinds))
        for metric in METRICS.values()
        if tier in metric.tiers and metric.measured_on in (None, kind)
    )
