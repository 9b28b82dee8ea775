"""Every fleet of a deployment, for checks that hold for all of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from blueprint import catalog
from blueprint.catalog import InstanceType
from blueprint.contract.network import Tier
from blueprint.file.model.aws import Purchase
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import ScalingRule
from blueprint.file.source import Location


@dataclass(frozen=True)
class Fleet:
    """One fleet as the file describes it.

    Attributes:
        groups: Auto Scaling groups that the fleet consists of, each with the bounds below.
        min_hosts: Fewest hosts of the whole fleet.
        max_hosts: Most hosts of the whole fleet.
        warm_hosts: Hosts of its warm pool, beside those: each holds an address, and boots before it stops.
        machine_image: What its hosts boot from; ``None`` for AWS's newest.
    """

    name: str
    tier: Tier
    location: Location
    instance_type: InstanceType
    zones: tuple[str, ...]
    groups: int
    min_hosts: int
    max_hosts: int
    purchase: Purchase | None
    rules: tuple[ScalingRule, ...]
    warm_hosts: int = 0
    machine_image: str | None = None

    @property
    def max_hosts_per_zone(self) -> int:
        """Most hosts that one zone's subnet may have to hold."""
        return self.max_hosts // self.groups + self.warm_hosts

    @property
    def vcpus(self) -> tuple[int, int]:
        """What counts against a vCPU quota, at the minimum and at the maximum, while the warm pool boots."""
        low, high = self.min_hosts + self.warm_hosts, self.max_hosts + self.warm_hosts
        return low * self.instance_type.vcpus, high * self.instance_type.vcpus


def fleets(deployment: Deployment) -> Iterator[Fleet]:
    """Yield the VAD fleet, then the ASR fleets in file order; nothing where there is no AWS half."""
    if deployment.aws_half is None:
        return
    aws = deployment.aws_half
    zones = aws.availability_zones
    yield Fleet(
        name="vad",
        tier=Tier.VAD,
        location=("aws", "vad"),
        instance_type=catalog.instance_types()[aws.vad.instance_type],
        zones=zones,
        groups=len(zones),
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
            groups=1,
            min_hosts=fleet.hosts.min,
            max_hosts=fleet.hosts.max,
            purchase=fleet.purchase,
            rules=fleet.scaling,
            warm_hosts=fleet.warm_pool.size if fleet.warm_pool else 0,
            machine_image=fleet.machine_image,
        )
