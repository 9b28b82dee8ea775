"""Every fleet in a deployment, for checks that apply to all fleets."""

from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.catalog import InstanceType
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import PurchaseOption
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import ScalingRule
from voice_blueprint.file.source import Location


@dataclass(frozen=True)
class Fleet:
    """A fleet as described in the deployment file.

    Attributes:
        group_count: Number of Auto Scaling groups of the fleet. The bounds in the file apply to each group.
        min_hosts: Minimum number of hosts of the whole fleet.
        max_hosts: Maximum number of hosts of the whole fleet.
        warm_hosts: Number of additional hosts in the warm pool. Each of these hosts uses an IP address, and boots once
            before it is stopped.
        machine_image: Machine image of the hosts; ``None`` for AWS's latest image.
    """

    name: str
    tier: Tier
    location: Location
    instance_type: InstanceType
    zones: tuple[str, ...]
    group_count: int
    min_hosts: int
    max_hosts: int
    purchase: PurchaseOption | None
    rules: tuple[ScalingRule, ...]
    warm_hosts: int = 0
    machine_image: str | None = None

    @property
    def max_hosts_per_zone(self) -> int:
        """Maximum number of hosts in the subnet of one zone."""
        return self.max_hosts // self.group_count + self.warm_hosts

    @property
    def vcpu_range(self) -> tuple[int, int]:
        """Number of vCPUs that count against a quota, at the minimum and at the maximum, including the warm pool."""
        low, high = self.min_hosts + self.warm_hosts, self.max_hosts + self.warm_hosts
        return low * self.instance_type.vcpus, high * self.instance_type.vcpus


def iter_fleets(deployment: Deployment) -> Iterator[Fleet]:
    """Yield the VAD fleet, followed by the ASR fleets in file order. Without an AWS section, nothing is yielded."""
    if deployment.aws_section is None:
        return
    aws = deployment.aws_section
    zones = aws.availability_zones
    yield Fleet(
        name="vad",
        tier=Tier.VAD,
        location=("aws", "vad"),
        instance_type=catalog.instance_types()[aws.vad.instance_type],
        zones=zones,
        group_count=len(zones),
        min_hosts=aws.vad.hosts_per_zone.min * len(zones),
        max_hosts=aws.vad.hosts_per_zone.max * len(zones),
        purchase=None,
        rules=aws.vad.scaling,
        machine_image=aws.vad.machine_image,
    )
    for index, fleet in enumerate(aws.asr):
        yield Fleet(
            name=fleet.name,
            tier=Tier.ASR,
            location=("aws", "asr", index),
            instance_type=catalog.instance_types()[fleet.instance_type],
            zones=fleet.availability_zones or zones,
            group_count=1,
            min_hosts=fleet.hosts.min,
            max_hosts=fleet.hosts.max,
            purchase=fleet.purchase,
            rules=fleet.scaling,
            warm_hosts=fleet.warm_pool.size if fleet.warm_pool else 0,
            machine_image=fleet.machine_image,
        )
