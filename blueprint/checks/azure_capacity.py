"""Checks on what Azure sells: sizes, zones, purchase options, quotas, Kubernetes versions."""

from collections import defaultdict
from collections.abc import Iterator

from blueprint import catalog
from blueprint.catalog import VmSize
from blueprint.checks.base import Level, Violation, check
from blueprint.file.model.azure import Azure, ReservedNodes, SpotNodes
from blueprint.file.model.base import HostCount
from blueprint.file.model.deployment import Deployment, Environment
from blueprint.file.source import Location

AZURE_ZONES = ("1", "2", "3")
OLDEST_MINOR, NEWEST_MINOR = 35, 37
"""Kubernetes minors within support in November 2026: 1.34 ended on 2026-10-27, 1.37 is the newest."""
SYSTEM_VCPUS = 4
"""Fewest that AKS accepts for a system pool."""
SPOT_QUOTA = "lowPriorityCores"


@check(
    "vm-size-in-location",
    Level.ERROR,
    "Every pool's VM size is known to be offered in the location.",
    source="https://learn.microsoft.com/azure/virtual-machines/sizes (rows of the catalogue, each with its source)",
)
def vm_size_in_location(deployment: Deployment) -> Iterator[Violation]:
    location = deployment.azure.location
    for place, size, _ in _sizes(deployment.azure):
        if location not in size.regions:
            yield Violation(
                (*place, "vm_size"),
                f"no source offers {size.name} in {location}",
                f"known regions: {', '.join(size.regions)}; or accept this check once `az vm list-skus --location "
                f"{location} --size {size.name}` lists it without restrictions",
            )


@check(
    "pools-have-their-gpus",
    Level.ERROR,
    "Every GPU pool's size has GPUs, and the system pool's has none.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools",
)
def pools_have_their_gpus(deployment: Deployment) -> Iterator[Violation]:
    place, system, _ = next(_sizes(deployment.azure))
    if system.gpu_count:
        yield Violation(
            (*place, "vm_size"),
            f"{system.name} has {system.gpu_count} GPU(s), which pods of the system pool never use",
            "take a size without GPUs, such as Standard_D8ds_v5",
        )
    if system.vcpus < SYSTEM_VCPUS:
        yield Violation(
            (*place, "vm_size"),
            f"{system.name} has {system.vcpus} vCPU; AKS wants {SYSTEM_VCPUS} for a system pool",
            "take a larger size",
        )
    for index, pool in enumerate(deployment.azure.pools):
        if not catalog.vm_sizes()[pool.vm_size].gpu_count:
            yield Violation(
                ("azure", "pools", index, "vm_size"),
                f"pool {pool.name}: {pool.vm_size} has no GPU",
                "take an NC, ND or NV size; what needs no GPU runs on the system pool",
            )


@check(
    "pool-zones-exist",
    Level.ERROR,
    "Availability zones are 1 to 3, and a pool's are among the cluster's.",
    source="https://learn.microsoft.com/azure/aks/availability-zones-overview",
)
def pool_zones_exist(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    for index, zone in enumerate(azure.availability_zones):
        if zone not in AZURE_ZONES:
            yield Violation(
                ("azure", "availability_zones", index),
                f'there is no availability zone "{zone}"',
                f"choose among {', '.join(AZURE_ZONES)}",
            )
    for number, pool in enumerate(azure.pools):
        for index, zone in enumerate(pool.availability_zones or ()):
            if zone not in azure.availability_zones:
                yield Violation(
                    ("azure", "pools", number, "availability_zones", index),
                    f'pool {pool.name} asks for zone "{zone}", which is none of the cluster\'s',
                    f"choose among {', '.join(azure.availability_zones)}",
                )


@check(
    "system-pool-survives",
    Level.WARNING,
    "In production the system pool has at least a node for each of two zones.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools (two nodes at least, three recommended)",
)
def system_pool_survives(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    if deployment.environment is not Environment.PRODUCTION:
        return
    if azure.system_pool.nodes.min < 2:  # noqa: PLR2004  the limit named in `source`
        yield Violation(
            ("azure", "system_pool", "nodes"),
            f"{azure.system_pool.nodes.min} system node(s) at the minimum: its loss stops router and DNS",
            "set min to 3, one for each zone",
        )
    if len(azure.availability_zones) == 1:
        yield Violation(("azure", "availability_zones"), "production lies in 1 availability zone", "name two or three")


@check(
    "reservation-supported",
    Level.ERROR,
    "A capacity reservation is used only with sizes that have them.",
    source="https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview (2026-02)",
)
def reservation_supported(deployment: Deployment) -> Iterator[Violation]:
    for index, pool in enumerate(deployment.azure.pools):
        if isinstance(pool.purchase, ReservedNodes) and not catalog.vm_sizes()[pool.vm_size].capacity_reservation:
            able = [row.name for row in catalog.vm_sizes().values() if row.capacity_reservation and row.gpu]
            yield Violation(
                ("azure", "pools", index, "purchase"),
                f"pool {pool.name}: {pool.vm_size} has no on-demand capacity reservations",
                f"set option to on-demand, or take one of {', '.join(able)}",
            )


@check(
    "spot-holds-no-minimum",
    Level.WARNING,
    "A pool that has to keep nodes does not buy spot.",
    source="https://learn.microsoft.com/azure/aks/spot-node-pool (no availability guarantee)",
)
def spot_holds_no_minimum(deployment: Deployment) -> Iterator[Violation]:
    for index, pool in enumerate(deployment.azure.pools):
        if isinstance(pool.purchase, SpotNodes) and pool.nodes.min:
            yield Violation(
                ("azure", "pools", index, "purchase"),
                f"pool {pool.name} wants {pool.nodes.min} spot node(s) at all times; Azure may take all of them",
                "set nodes.min to 0 and keep a pool on demand beside it, or set option to on-demand",
            )


@check(
    "kubernetes-version-supported",
    Level.WARNING,
    "The Kubernetes minor is within its support.",
    source="https://kubernetes.io/releases and https://learn.microsoft.com/azure/aks/supported-kubernetes-versions",
)
def kubernetes_version_supported(deployment: Deployment) -> Iterator[Violation]:
    version = deployment.azure.kubernetes_version
    minor = int(version.partition(".")[2])
    if not OLDEST_MINOR <= minor <= NEWEST_MINOR:
        wrong = "had left support by November 2026" if minor < OLDEST_MINOR else "is not known to exist"
        yield Violation(
            ("azure", "kubernetes_version"),
            f"Kubernetes {version} {wrong}",
            f"take 1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}; `az aks get-versions --location "
            f"{deployment.azure.location}` says what AKS has",
        )


@check(
    "family-quota-need",
    Level.INFO,
    "The vCPU quotas that the pools count against are known and sufficient.",
    source="https://learn.microsoft.com/azure/quotas/per-vm-quota-requests",
)
def family_quota_need(deployment: Deployment) -> Iterator[Violation]:
    counted: dict[str, list[tuple[Location, VmSize, HostCount]]] = defaultdict(list)
    spot = {("azure", "pools", n) for n, p in enumerate(deployment.azure.pools) if isinstance(p.purchase, SpotNodes)}
    for entry in _sizes(deployment.azure):
        counted[SPOT_QUOTA if entry[0] in spot else entry[1].quota_family].append(entry)
    for family, members in counted.items():
        low = sum(nodes.min * size.vcpus for _, size, nodes in members)
        high = sum(nodes.max * size.vcpus for _, size, nodes in members)
        yield Violation(
            members[0][0],
            f"{family}: {low} vCPU at the minimum, {high} at the maximum",
            f"compare: az vm list-usage --location {deployment.azure.location} --output table",
        )


def _sizes(azure: Azure) -> Iterator[tuple[Location, VmSize, HostCount]]:
    """Yield the system pool, then the GPU pools: where each stands, its size and its nodes."""
    yield ("azure", "system_pool"), catalog.vm_sizes()[azure.system_pool.vm_size], azure.system_pool.nodes
    for index, pool in enumerate(azure.pools):
        yield ("azure", "pools", index), catalog.vm_sizes()[pool.vm_size], pool.nodes
