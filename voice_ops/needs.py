"""Computes the deployment vCPUs that count against the quotas of an AWS account."""

import math
from collections import defaultdict

from voice_blueprint import catalog
from voice_blueprint.aws.edge import AGENT_VCPU
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.file.model.aws import CapacityBlock, Spot
from voice_blueprint.file.model.deployment import Deployment


def calculate_required_vcpus(deployment: Deployment) -> dict[tuple[str, bool], tuple[int, int]]:
    """Return the minimum and maximum number of vCPUs, by instance family and whether the hosts are spot instances.

    Capacity Blocks do not count against quotas.
    """
    needs: dict[tuple[str, bool], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for fleet in iter_fleets(deployment):
        if not isinstance(fleet.purchase, CapacityBlock):
            family = catalog.quotas()[fleet.instance_type.quota_code].family
            key = (family, isinstance(fleet.purchase, Spot))
            low, high = fleet.vcpu_range
            needs[key] = (needs[key][0] + low, needs[key][1] + high)
    return dict(needs)


def calculate_required_fargate_vcpus(deployment: Deployment) -> tuple[int, int]:
    """Return the minimum and maximum number of Fargate vCPUs for the gateway and agent tasks."""
    aws = deployment.aws
    services = [(aws.edge.gateway.tasks, aws.edge.gateway.vcpu)]
    services += [(aws.agents.tasks, AGENT_VCPU)] if aws.agents else []
    low, high = (sum(getattr(tasks, bound) * vcpu for tasks, vcpu in services) for bound in ("min", "max"))
    return math.ceil(low), math.ceil(high)
