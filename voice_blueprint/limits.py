"""Usage of the limits in ``catalog/limits.yaml``, at the minimum and maximum number of hosts.

vCPU quotas are separate, in ``catalog/quotas.yaml``, since they differ between accounts and have no default.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.catalog import Limit
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location

PUBLISH_EVERY_S = 5
"""Interval at which telemetry sends metrics (images/telemetry, ``publish_every_s``), one request each."""


@dataclass(frozen=True)
class LimitNeed:
    """Usage of one limit.

    Attributes:
        units: Usage at the minimum and at the maximum number of hosts.
        location: Location of the number in the file.
    """

    limit: Limit
    units: HostCount
    location: Location

    @property
    def over(self) -> bool:
        """Whether the maximum exceeds the default limit."""
        return self.units.max > self.limit.default


def limit_needs(deployment: Deployment) -> Iterator[LimitNeed]:
    """Yield the requirements of each section."""
    known = catalog.limits()
    found = list(_aws(deployment.aws_section)) if deployment.aws_section else []
    found += list(_azure(deployment.azure_section)) if deployment.azure_section else []
    for id_, low, most, location in found:
        yield LimitNeed(known[id_], HostCount(min=math.ceil(low), max=max(1, math.ceil(most))), location)


def _aws(aws: Aws) -> Iterator[tuple[str, float, float, Location]]:
    zones, tasks, per_zone = len(aws.availability_zones), aws.edge.gateway.tasks, aws.vad.hosts_per_zone
    at_tasks: Location = ("aws", "edge", "gateway", "tasks")
    # Gateway tasks, which ECS spreads over the zones, and VAD hosts are targets of the public load balancer.
    low, most = (getattr(tasks, bound) + zones * getattr(per_zone, bound) for bound in ("min", "max"))
    yield "nlb-targets-per-zone", low / zones, most / zones, at_tasks
    yield "nlb-targets", low, most, at_tasks
    yield "ecs-tasks-per-service", tasks.min, tasks.max, at_tasks
    services = [tasks]
    if aws.agents:
        services.append(aws.agents.tasks)
        yield "ecs-tasks-per-service", aws.agents.tasks.min, aws.agents.tasks.max, ("aws", "agents", "tasks")
    hosts_low, hosts_most = (
        zones * getattr(per_zone, bound)
        + sum(getattr(fleet.hosts, bound) for fleet in aws.asr)
        + sum(getattr(each, bound) for each in services)
        for bound in ("min", "max")
    )
    # Each host and task has a network interface of its own, and publishes its own metrics.
    yield "network-interfaces", hosts_low, hosts_most, ("aws", "vad", "hosts_per_zone")
    yield "put-metric-data", hosts_low / PUBLISH_EVERY_S, hosts_most / PUBLISH_EVERY_S, ("aws", "vad", "hosts_per_zone")


def _azure(azure: Azure) -> Iterator[tuple[str, float, float, Location]]:
    pools: list[tuple[Location, HostCount]] = [(("azure", "system_pool", "nodes"), azure.system_pool.nodes)]
    if azure.cpu_pool:
        pools.append((("azure", "cpu_pool", "nodes"), azure.cpu_pool.nodes))
    pools += [(("azure", "pools", index, "nodes"), pool.nodes) for index, pool in enumerate(azure.pools)]
    for location, nodes in pools:
        yield "aks-nodes-per-pool", nodes.min, nodes.max, location
    low, most = (sum(getattr(nodes, bound) for _, nodes in pools) for bound in ("min", "max"))
    yield "aks-nodes", low, most, ("azure", "pools")
