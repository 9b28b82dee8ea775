"""Usage of the limits in ``catalog/limits.yaml``, at the minimum and maximum number of hosts.

vCPU quotas are separate, in ``catalog/quotas.yaml``, since they differ between accounts and have no default.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.capacity.bounds import PACKET_BYTES, PACKETS_PER_S, SOCKETS_PER_CALL
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.catalog import CloudLimit
from voice_blueprint.contract.network import FLOWS
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location

PUBLISH_INTERVAL_S = 5
"""Interval at which telemetry sends its metrics in one request (images/telemetry, ``publish_every_s``)."""
MAX_STORE_CONNECTIONS = 50
"""Maximum connections from a gateway, an agent, an engine or its telemetry to the state store
(voice_runtime/store.py)."""
VAD_STORE_CONNECTION_COUNT = 4
"""Connections from the data plane (images/vad-dataplane/src): hosts, chunks, admission and presence."""
BASE_STACK_COUNT = 7
"""Number of stacks in a deployment, excluding agents, fleets and machine images (voice_stacks/aws)."""
EDGE_UNIT_MBPS, EDGE_UNIT_CONNECTIONS = 2.22, 2_500
"""Throughput and connections of one capacity unit of an application gateway. See ``EDGE_UNITS``."""
MBPS_PER_CALL = PACKET_BYTES * PACKETS_PER_S * 8 / 1e6
"""Throughput of a call's audio in one direction over a WebSocket, which is similar to the throughput over RTP."""


@dataclass(frozen=True)
class LimitUsage:
    """Usage of one limit.

    Attributes:
        units: Usage at the minimum and at the maximum number of hosts.
        location: Location of the number in the file.
    """

    limit: CloudLimit
    units: HostCount
    location: Location

    @property
    def exceeds_limit(self) -> bool:
        """Whether the maximum exceeds the default limit."""
        return self.units.max > self.limit.default


def iter_limit_usages(deployment: Deployment) -> Iterator[LimitUsage]:
    """Yield the usage of each limit by the sections of the deployment file."""
    all_limits = catalog.limits()
    needs = list(_calculate_aws_usages(deployment.aws_section)) if deployment.aws_section else []
    if deployment.azure_section:
        needs += [*_calculate_azure_usages(deployment.azure_section), *_calculate_azure_edge_usages(deployment)]
    for id_, low, high, location in needs:
        yield LimitUsage(all_limits[id_], HostCount(min=math.ceil(low), max=max(1, math.ceil(high))), location)


def _calculate_aws_usages(aws: Aws) -> Iterator[tuple[str, float, float, Location]]:
    zones, tasks, per_zone = len(aws.availability_zones), aws.edge.gateway.tasks, aws.vad.hosts_per_zone
    tasks_location: Location = ("aws", "edge", "gateway", "tasks")
    # Gateway tasks, which ECS spreads over the zones, and VAD hosts are targets of the public load balancer.
    low, high = (getattr(tasks, bound) + zones * getattr(per_zone, bound) for bound in ("min", "max"))
    yield "nlb-targets-per-zone", low / zones, high / zones, tasks_location
    yield "nlb-targets", low, high, tasks_location
    yield "ecs-tasks-per-service", tasks.min, tasks.max, tasks_location
    services = [tasks]
    if aws.agents:
        services.append(aws.agents.tasks)
        yield "ecs-tasks-per-service", aws.agents.tasks.min, aws.agents.tasks.max, ("aws", "agents", "tasks")
    min_hosts, max_hosts = (
        zones * getattr(per_zone, bound)
        + sum(getattr(fleet.hosts, bound) for fleet in aws.asr)
        + sum(getattr(each, bound) for each in services)
        for bound in ("min", "max")
    )
    # Each host and task has its own network interface, and publishes its own metrics.
    yield "network-interfaces", min_hosts, max_hosts, ("aws", "vad", "hosts_per_zone")
    yield (
        "put-metric-data",
        min_hosts / PUBLISH_INTERVAL_S,
        max_hosts / PUBLISH_INTERVAL_S,
        ("aws", "vad", "hosts_per_zone"),
    )
    low, high = (
        MAX_STORE_CONNECTIONS * sum(getattr(each, bound) for each in services)
        + 2 * MAX_STORE_CONNECTIONS * sum(getattr(fleet.hosts, bound) for fleet in aws.asr)
        + VAD_STORE_CONNECTION_COUNT * zones * getattr(per_zone, bound)
        for bound in ("min", "max")
    )
    yield "store-connections", low, high, tasks_location
    requests = aws.edge.throttle.requests_per_s
    yield "api-requests", requests, requests, ("aws", "edge", "throttle", "requests_per_s")
    # After the loss of a zone, its tasks are started in the other zones.
    for service, location in zip(services, (tasks_location, ("aws", "agents", "tasks")), strict=False):
        yield "fargate-starts", service.min / zones, service.max / zones, location
    stacks = BASE_STACK_COUNT + len(aws.asr) + bool(aws.agents) + bool(aws.host_images)
    yield "stacks", stacks, stacks, ("aws",)
    rules = max(max(Counter(getattr(flow, end) for flow in FLOWS).values()) for end in ("source", "destination"))
    yield "security-group-rules", rules, rules, ("aws",)


def _calculate_azure_usages(azure: Azure) -> Iterator[tuple[str, float, float, Location]]:
    pools: list[tuple[Location, HostCount]] = [(("azure", "system_pool", "nodes"), azure.system_pool.nodes)]
    if azure.cpu_pool:
        pools.append((("azure", "cpu_pool", "nodes"), azure.cpu_pool.nodes))
    pools += [(("azure", "pools", index, "nodes"), pool.nodes) for index, pool in enumerate(azure.pools)]
    for location, nodes in pools:
        yield "aks-nodes-per-pool", nodes.min, nodes.max, location
    low, high = (sum(getattr(nodes, bound) for _, nodes in pools) for bound in ("min", "max"))
    yield "aks-nodes", low, high, ("azure", "pools")
    yield "aks-node-pools", len(pools), len(pools), ("azure", "pools")


def _calculate_azure_edge_usages(deployment: Deployment) -> Iterator[tuple[str, float, float, Location]]:
    azure, load = deployment.azure, deployment.load
    if azure.callers is None:
        return
    # Each port of a load-balanced service is a rule for every node: two ports of the gateway, RTP, and the agents'
    # port.
    rules = 3 + bool(azure.agents)
    yield "load-balancer-rules", rules, rules, ("azure", "callers")
    if load is None:
        return
    # All calls are assumed to use WebSockets, since the file does not contain the share of RTP. A conversation's answer
    # is audio as well.
    directions = 1 + (load.conversation_share if azure.agents else 0)
    each = max(directions * MBPS_PER_CALL / EDGE_UNIT_MBPS, SOCKETS_PER_CALL / EDGE_UNIT_CONNECTIONS)
    yield "edge-units", each * load.calls, each * calculate_peak_calls(load), ("load", "calls")
