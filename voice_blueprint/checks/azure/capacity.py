"""Checks on Azure's offering: sizes, zones, purchase options, quotas, Kubernetes versions."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.azure.ranges import are_effectively_public
from voice_blueprint.checks.azure.cluster import Cluster, build_configured_cluster
from voice_blueprint.checks.base import Severity, Violation, cluster_check, deployment_check
from voice_blueprint.file.model.azure import Azure, JumpHost, PeeredNetwork, SpotNodes
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.source import Location

AZURE_ZONES = ("1", "2", "3")
OLDEST_MINOR, NEWEST_MINOR = 35, 37
"""Supported Kubernetes minor versions in November 2026: support for 1.34 ended on 2026-10-27; 1.37 is the newest."""
MIN_SYSTEM_VCPUS = 4
"""Minimum vCPUs that AKS accepts for a system pool."""
SPOT_QUOTA_NAME = "lowPriorityCores"
HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class QuotaUsage:
    """vCPUs that count against a quota.

    Attributes:
        min_vcpus: vCPUs at the minimum number of nodes.
        max_vcpus: vCPUs at the maximum number of nodes, including those that an upgrade adds.
    """

    quota: str
    location: Location
    min_vcpus: int
    max_vcpus: int


def iter_quota_usages(azure: Azure) -> Iterator[QuotaUsage]:
    """Yield the vCPUs of every pool and of the jump host with their quotas."""
    for pool in build_configured_cluster(azure).pools:
        quota = SPOT_QUOTA_NAME if pool.is_spot else pool.size.quota_family
        max_nodes = pool.max_nodes + pool.surge_nodes
        yield QuotaUsage(
            quota, pool.location.locate_setting(), pool.min_nodes * pool.size.vcpus, max_nodes * pool.size.vcpus
        )
    if isinstance(azure.access, JumpHost):
        size = catalog.vm_sizes()[azure.access.vm_size]
        yield QuotaUsage(size.quota_family, ("azure", "access", "vm_size"), size.vcpus, size.vcpus)


@cluster_check(
    "vm-size-in-location",
    "A source shows that every pool's VM size is offered in the location.",
    source="https://learn.microsoft.com/azure/virtual-machines/sizes (rows of the catalogue, each with its source)",
)
def check_vm_size_in_location(cluster: Cluster) -> Iterator[Violation]:
    location = cluster.location
    for pool in cluster.pools:
        size = pool.size
        if location and location not in size.regions:
            common_regions = set.intersection(*(set(each.size.regions) for each in cluster.pools))
            yield Violation(
                pool.location.locate_setting("vm_size"),
                f"no source shows that {size.name} is offered in {location}",
                "use a location that offers every size of the cluster "
                f"({', '.join(sorted(common_regions)) or 'there is none'}), or accept this check once `az vm list-skus "
                f"--location {location} --size {size.name}` lists the size without restrictions",
            )


@deployment_check(
    "azure-budget-covers-minimum",
    "The budget covers the minimum number of nodes.",
    source="pay-as-you-go list prices of the catalogue; the bill may be in another currency",
    level=Severity.WARNING,
)
def check_azure_budget_covers_minimum(deployment: Deployment) -> Iterator[Violation]:
    azure, budget = deployment.azure, deployment.azure.observability.monthly_budget
    usd = HOURS_PER_MONTH * sum(
        pool.min_nodes * pool.size.usd_per_hour.get(azure.location, 0.0)
        for pool in build_configured_cluster(azure).pools
    )
    if budget and usd > budget:
        yield Violation(
            ("azure", "observability", "monthly_budget"),
            f"the minimum number of nodes costs {usd:,.0f} USD a month, but the budget is {budget:,}",
            # The budget includes more than nodes.
            f"set azure.observability.monthly_budget to {usd * 1.2:.0f} or more, or lower the number of nodes",
        )


@cluster_check(
    "pools-have-their-gpus",
    "The VM size of every GPU pool has GPUs; those of the system pool and CPU pool have none.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools",
    is_acceptable=False,
)
def check_pools_have_their_gpus(cluster: Cluster) -> Iterator[Violation]:
    for pool in cluster.pools:
        size, at = pool.size, pool.location.locate_setting("vm_size")
        if (pool.is_system or pool.is_cpu) and size.gpu_count:
            yield Violation(
                at,
                f"{size.name} has {size.gpu_count} GPU(s), which pods of the {pool.name} pool do not use",
                "use a size without GPUs, such as Standard_D8ds_v5",
            )
        if pool.is_system and size.vcpus < MIN_SYSTEM_VCPUS:
            yield Violation(
                at,
                f"{size.name} has {size.vcpus} vCPU, but AKS requires {MIN_SYSTEM_VCPUS} for a system pool",
                "use a larger size",
            )
        if not (pool.is_system or pool.is_cpu) and not size.gpu_count:
            yield Violation(
                at,
                f"pool {pool.name}: {size.name} has no GPU",
                "use an NC, ND or NV size; pods without GPUs run on the system pool",
            )


@cluster_check(
    "pool-zones-exist",
    "Availability zones are 1 to 3, and the cluster has every zone of a pool.",
    source="https://learn.microsoft.com/azure/aks/availability-zones-overview",
)
def check_pool_zones_exist(cluster: Cluster) -> Iterator[Violation]:
    zones = next((pool.zones for pool in cluster.pools if pool.is_system), AZURE_ZONES)
    for pool in cluster.pools:
        finding_location = cluster.finding_location if pool.is_system else pool.location
        known_zones = AZURE_ZONES if pool.is_system else zones
        for index, zone in enumerate(pool.zones):
            if zone not in known_zones:
                yield Violation(
                    finding_location.locate_setting("availability_zones", index),
                    f'pool {pool.name} uses zone "{zone}", which '
                    f"{'Azure' if pool.is_system else 'the cluster'} does not have",
                    f"choose among {', '.join(known_zones)}",
                )


@cluster_check(
    "system-pool-has-node",
    "The system pool has at least one node.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools",
)
def check_system_pool_has_node(cluster: Cluster) -> Iterator[Violation]:
    for pool in cluster.pools:
        if pool.is_system and pool.min_nodes < 1:
            yield Violation(
                pool.location.locate_setting("nodes"),
                f"system pool {pool.name} has a minimum of 0 nodes, but AKS requires at least one",
                "set min to 1",
            )


@cluster_check(
    "purchase-supported",
    "Capacity reservations and spot are used only with sizes that support them.",
    source="https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview (2026-02)",
)
def check_purchase_supported(cluster: Cluster) -> Iterator[Violation]:
    sizes = catalog.vm_sizes().values()
    for pool in cluster.pools:
        for is_requested, is_supported, feature, alternatives in (
            (
                pool.is_reserved,
                pool.size.capacity_reservation,
                "on-demand capacity reservations",
                [row.name for row in sizes if row.capacity_reservation and row.gpu],
            ),
            (pool.is_spot, pool.size.spot, "spot nodes", [row.name for row in sizes if row.spot and row.gpu]),
        ):
            if is_requested and not is_supported:
                yield Violation(
                    pool.location.locate_setting("purchase"),
                    f"pool {pool.name}: {pool.size.name} does not support {feature}",
                    f"set option to on-demand, or use one of {', '.join(alternatives)}",
                )


@deployment_check(
    "size-is-sold-here",
    "Azure's price list has every pool's VM size in the deployment's region.",
    source="https://prices.azure.com/api/retail/prices, as read for voice_blueprint/catalog/vm_sizes.yaml",
    level=Severity.WARNING,
)
def check_size_available_in_region(deployment: Deployment) -> Iterator[Violation]:
    location = deployment.azure.location
    for pool in build_configured_cluster(deployment.azure).pools:
        if location in pool.size.unpriced_regions:
            yield Violation(
                pool.location.locate_setting("vm_size"),
                f"no source shows that {pool.size.name} is sold in {location}",
                f"check az vm list-skus --location {location} --size {pool.size.name}, or use a region of the price "
                f"list: {', '.join(pool.size.usd_per_hour)}",
            )


@cluster_check(
    "api-server-is-closed",
    "The API server of the cluster is not reachable from every address.",
    source="https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges",
)
def check_api_server_is_closed(cluster: Cluster) -> Iterator[Violation]:
    ranges = cluster.authorized_ranges
    if ranges is not None and (not ranges or are_effectively_public(ranges)):
        yield Violation(
            cluster.finding_location.locate_setting("access", "authorized_ranges"),
            f"the API server is reachable from {', '.join(ranges) or 'every address'}, which is more than a /8 of "
            "all addresses",
            "specify the address ranges of your administrators, or use another kind of access",
        )


@deployment_check(
    "peered-cells-have-own-addresses",
    "Cells that are peered with the same network have different addresses.",
    source="https://learn.microsoft.com/azure/virtual-network/virtual-network-peering-overview (ranges cannot overlap)",
    level=Severity.WARNING,
)
def check_peered_cells_have_different_addresses(deployment: Deployment) -> Iterator[Violation]:
    whole, azure = deployment.whole_deployment, deployment.azure
    if whole and whole.cell_count > 1 and isinstance(azure.access, PeeredNetwork):
        yield Violation(
            ("azure", "network", "cidr"),
            f"all {whole.cell_count} cells have the addresses {azure.network.cidr}, and Azure rejects the peering of a "
            "second one with the same network",
            "with each `cells.number`, set another `cidr` and accept this check, or set access to a jump-host",
        )


@deployment_check(
    "system-pool-survives",
    "In production, the system pool has at least one node in each of two zones.",
    source="https://learn.microsoft.com/azure/aks/use-system-pools (two nodes at least, three recommended)",
    level=Severity.WARNING,
)
def check_system_pool_is_redundant(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    if deployment.environment is not Environment.PRODUCTION:
        return
    if azure.system_pool.nodes.min < 2:  # noqa: PLR2004  the limit in `source`
        yield Violation(
            ("azure", "system_pool", "nodes"),
            f"the system pool has a minimum of {azure.system_pool.nodes.min} node(s): the loss of a node stops the "
            "router and DNS",
            "set min to 3, one for each zone",
        )
    if len(azure.availability_zones) == 1:
        yield Violation(("azure", "availability_zones"), "production uses only 1 availability zone", "use two or three")


@deployment_check(
    "spot-holds-no-minimum",
    "A pool with a minimum number of nodes does not use spot.",
    source="https://learn.microsoft.com/azure/aks/spot-node-pool (no availability guarantee)",
    level=Severity.WARNING,
)
def check_spot_pool_has_no_minimum(deployment: Deployment) -> Iterator[Violation]:
    for index, pool in enumerate(deployment.azure.pools):
        if isinstance(pool.purchase, SpotNodes) and pool.nodes.min:
            yield Violation(
                ("azure", "pools", index, "purchase"),
                f"pool {pool.name} has a minimum of {pool.nodes.min} spot node(s), but Azure can evict all of them",
                "set nodes.min to 0 and add an on-demand pool, or set option to on-demand",
            )


@deployment_check(
    "kubernetes-version-supported",
    "The Kubernetes minor version is supported.",
    source="https://kubernetes.io/releases and https://learn.microsoft.com/azure/aks/supported-kubernetes-versions",
    level=Severity.WARNING,
)
def check_kubernetes_version_supported(deployment: Deployment) -> Iterator[Violation]:
    version = deployment.azure.kubernetes_version
    minor = int(version.partition(".")[2])
    if not OLDEST_MINOR <= minor <= NEWEST_MINOR:
        problem = "was out of support in November 2026" if minor < OLDEST_MINOR else "is unknown"
        yield Violation(
            ("azure", "kubernetes_version"),
            f"Kubernetes {version} {problem}",
            f"use 1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}; `az aks get-versions --location {deployment.azure.location}` "
            "lists the versions of AKS",
        )


@deployment_check(
    "family-quota-need",
    "The vCPU quotas of the pools' VM sizes are known and sufficient.",
    source="https://learn.microsoft.com/azure/quotas/per-vm-quota-requests",
    level=Severity.INFO,
)
def check_family_vcpu_quotas_suffice(deployment: Deployment) -> Iterator[Violation]:
    counted: dict[str, list[QuotaUsage]] = defaultdict(list)
    for part in iter_quota_usages(deployment.azure):
        counted[part.quota].append(part)
    for family, parts in counted.items():
        low, high = sum(part.min_vcpus for part in parts), sum(part.max_vcpus for part in parts)
        yield Violation(
            parts[0].location,
            f"{family}: {low} vCPU at the minimum, {high} at the maximum during an upgrade",
            f"compare with the output of az vm list-usage --location {deployment.azure.location} --output table",
        )
