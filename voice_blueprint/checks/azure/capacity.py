"""Checks on Azure's offering: sizes, zones, purchase options, quotas, Kubernetes versions."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.azure.ranges import admits_everybody
from voice_blueprint.checks.azure.cluster import Cluster, cluster_in
from voice_blueprint.checks.base import Level, Violation, check, cluster_check
from voice_blueprint.file.model.azure import Azure, JumpHost, SpotNodes
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.source import Location

AZURE_ZONES = ("1", "2", "3")
OLDEST_MINOR, NEWEST_MINOR = 35, 37
"""Supported Kubernetes minor versions in November 2026: support of 1.34 ended on 2026-10-27, and 1.37 is the newest."""
SYSTEM_VCPUS = 4
"""Minimum vCPUs that AKS accepts for a system pool."""
SPOT_QUOTA = "lowPriorityCores"
HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class Counted:
    """vCPUs that count against a quota: at the minimum, and at the maximum including the surge of an upgrade."""

    quota: str
    at: Location
    low: int
    high: int


def counted_vcpus(azure: Azure) -> Iterator[Counted]:
    """Yield the vCPUs of every pool and of the jump host."""
    for pool in cluster_in(azure).pools:
        quota = SPOT_QUOTA if pool.is_spot else pool.size.quota_family
        most = pool.max_nodes + pool.surge_nodes
        yield Counted(quota, pool.place.at(), pool.min_nodes * pool.size.vcpus, most * pool.size.vcpus)
    if isinstance(azure.access, JumpHost):
        size = catalog.vm_sizes()[azure.access.vm_size]
        yield Counted(size.quota_family, ("azure", "access", "vm_size"), size.vcpus, size.vcpus)


@cluster_check(
    "vm-size-in-location",
    "Every pool's VM size is known to be offered in the location.",
    source="https://learn.microsoft.com/azure/virtual-machines/sizes (rows of the catalogue, each with its source)",
)
def vm_size_in_location(cluster: Cluster) -> Iterator[Violation]:
    location = cluster.location
    for pool in cluster.pools:
        size = pool.size
        if location and location not in size.regions:
            together = set.intersection(*(set(each.size.regions) for each in cluster.pools))
            yield Violation(
                pool.place.at("vm_size"),
                f"no source offers {size.name} in {location}",
                f"every size of the cluster is sold in {', '.join(sorted(together)) or 'no region'}; or accept this "
                f"check once `az vm list-skus --location {location} --size {size.name}` lists it without restrictions",
            )


@check(
    "azure-budget-covers-minimum",
    "The budget covers the nodes that always run.",
    source="pay-as-you-go list prices of the catalogue; the bill may be in another currency",
    level=Level.WARNING,
)
def azure_budget_covers_minimum(deployment: Deployment) -> Iterator[Violation]:
    azure, budget = deployment.azure, deployment.azure.observability.monthly_budget
    usd = HOURS_PER_MONTH * sum(
        pool.min_nodes * pool.size.usd_per_hour.get(azure.location, 0.0) for pool in cluster_in(azure).pools
    )
    if budget and usd > budget:
        yield Violation(
            ("azure", "observability", "monthly_budget"),
            f"the fewest nodes alone cost {usd:,.0f} USD a month, the budget is {budget:,}",
            # The budget includes more than nodes.
            f"set azure.observability.monthly_budget to {usd * 1.2:.0f} or more, or take fewer nodes",
        )


@cluster_check(
    "pools-have-their-gpus",
    "Every GPU pool's size has GPUs; the system pool's and the CPU pool's have none.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools",
    acceptable=False,
)
def pools_have_their_gpus(cluster: Cluster) -> Iterator[Violation]:
    for pool in cluster.pools:
        size, at = pool.size, pool.place.at("vm_size")
        if (pool.is_system or pool.is_cpu) and size.gpu_count:
            yield Violation(
                at,
                f"{size.name} has {size.gpu_count} GPU(s), which pods of the {pool.name} pool never use",
                "take a size without GPUs, such as Standard_D8ds_v5",
            )
        if pool.is_system and size.vcpus < SYSTEM_VCPUS:
            yield Violation(
                at,
                f"{size.name} has {size.vcpus} vCPU; AKS wants {SYSTEM_VCPUS} for a system pool",
                "take a larger size",
            )
        if not (pool.is_system or pool.is_cpu) and not size.gpu_count:
            yield Violation(
                at,
                f"pool {pool.name}: {size.name} has no GPU",
                "take an NC, ND or NV size; what needs no GPU runs on the system pool",
            )


@cluster_check(
    "pool-zones-exist",
    "Availability zones are 1 to 3, and a pool's are among the cluster's.",
    source="https://learn.microsoft.com/azure/aks/availability-zones-overview",
)
def pool_zones_exist(cluster: Cluster) -> Iterator[Violation]:
    zones = next((pool.zones for pool in cluster.pools if pool.is_system), AZURE_ZONES)
    for pool in cluster.pools:
        place = cluster.place if pool.is_system else pool.place
        known = AZURE_ZONES if pool.is_system else zones
        for index, zone in enumerate(pool.zones):
            if zone not in known:
                yield Violation(
                    place.at("availability_zones", index),
                    f'pool {pool.name} asks for zone "{zone}", which is none of '
                    f"{'Azure' if pool.is_system else 'the cluster'}'s",
                    f"choose among {', '.join(known)}",
                )


@cluster_check(
    "system-pool-has-node",
    "The system pool keeps at least one node.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools",
)
def system_pool_has_node(cluster: Cluster) -> Iterator[Violation]:
    for pool in cluster.pools:
        if pool.is_system and pool.min_nodes < 1:
            yield Violation(
                pool.place.at("nodes"),
                f"system pool {pool.name} may have 0 nodes; AKS keeps at least one",
                "set min to 1",
            )


@cluster_check(
    "purchase-supported",
    "Capacity reservations and spot are asked for only with sizes that have them.",
    source="https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview (2026-02)",
)
def purchase_supported(cluster: Cluster) -> Iterator[Violation]:
    sizes = catalog.vm_sizes().values()
    for pool in cluster.pools:
        for asked, has, what, able in (
            (
                pool.is_reserved,
                pool.size.capacity_reservation,
                "on-demand capacity reservations",
                [row.name for row in sizes if row.capacity_reservation and row.gpu],
            ),
            (pool.is_spot, pool.size.spot, "spot nodes", [row.name for row in sizes if row.spot and row.gpu]),
        ):
            if asked and not has:
                yield Violation(
                    pool.place.at("purchase"),
                    f"pool {pool.name}: {pool.size.name} has no {what}",
                    f"set option to on-demand, or take one of {', '.join(able)}",
                )


@check(
    "size-is-sold-here",
    "Azure's price list has every pool's VM size in the deployment's region.",
    source="https://prices.azure.com/api/retail/prices, as read for voice_blueprint/catalog/vm_sizes.yaml",
    level=Level.WARNING,
)
def size_is_sold_here(deployment: Deployment) -> Iterator[Violation]:
    location = deployment.azure.location
    for pool in cluster_in(deployment.azure).pools:
        if location in pool.size.unpriced_regions:
            yield Violation(
                pool.place.at("vm_size"),
                f"no source says that {pool.size.name} is sold in {location}",
                f"ask Azure (az vm list-skus --location {location} --size {pool.size.name}), or take a region of its "
                f"price list: {', '.join(pool.size.usd_per_hour)}",
            )


@cluster_check(
    "api-server-is-closed",
    "The API server of the cluster does not answer everybody.",
    source="https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges",
)
def api_server_is_closed(cluster: Cluster) -> Iterator[Violation]:
    ranges = cluster.authorized_ranges
    if ranges is not None and (not ranges or admits_everybody(ranges)):
        yield Violation(
            cluster.place.at("access", "authorized_ranges"),
            f"the API server answers {', '.join(ranges) or 'everybody'}, which is more than a /8 of all addresses",
            "name the ranges of your administrators, or take another kind of access",
        )


@check(
    "system-pool-survives",
    "In production the system pool has at least a node for each of two zones.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools (two nodes at least, three recommended)",
    level=Level.WARNING,
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
    "spot-holds-no-minimum",
    "A pool that has to keep nodes does not buy spot.",
    source="https://learn.microsoft.com/azure/aks/spot-node-pool (no availability guarantee)",
    level=Level.WARNING,
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
    "The Kubernetes minor is within its support.",
    source="https://kubernetes.io/releases and https://learn.microsoft.com/azure/aks/supported-kubernetes-versions",
    level=Level.WARNING,
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
    "The vCPU quotas that the pools count against are known and sufficient.",
    source="https://learn.microsoft.com/azure/quotas/per-vm-quota-requests",
    level=Level.INFO,
)
def family_quota_need(deployment: Deployment) -> Iterator[Violation]:
    counted: dict[str, list[Counted]] = defaultdict(list)
    for part in counted_vcpus(deployment.azure):
        counted[part.quota].append(part)
    for family, parts in counted.items():
        low, high = sum(part.low for part in parts), sum(part.high for part in parts)
        yield Violation(
            parts[0].at,
            f"{family}: {low} vCPU at the minimum, {high} at the maximum and in an upgrade",
            f"compare: az vm list-usage --location {deployment.azure.location} --output table",
        )
