"""Checks on names, the use of pools, the address ranges of nodes and pods, and the administrators of the cluster."""

import math
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv4Network

from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.names import (
    MODEL_FETCH_SERVICE_ACCOUNT,
    SERVICE_ACCOUNT_BY_TIER,
    build_engine_workload_name,
    list_service_pool_names,
)
from voice_blueprint.checks.azure.cluster import Cluster, PodGroup, build_configured_cluster
from voice_blueprint.checks.base import Severity, Violation, cluster_check, deployment_check
from voice_blueprint.file.model.azure import Azure, ChatService
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.azure.alerts import DEPLOYMENT_RULE_GROUPS

PLACEHOLDER_ID = "00000000-0000-0000-0000-000000000000"
POD_PREFIX_LENGTH = 24
"""Prefix length of the range of pod addresses that each node receives from the overlay network."""
AZURE_RESERVED_ADDRESS_COUNT = 5
"""Addresses that Azure reserves in every subnet."""

WORKLOAD_NAMES = (
    Component.ROUTER.value,
    Component.LMCACHE_COORDINATOR.value,
    MODEL_FETCH_SERVICE_ACCOUNT.name,
    *(account.name for account in SERVICE_ACCOUNT_BY_TIER.values()),
    "default",
)
"""Names of the deployment's own workloads and service accounts, and of the account that every namespace contains:
https://kubernetes.io/docs/concepts/security/service-accounts/#default-service-accounts"""


@deployment_check(
    "workload-names-are-unique",
    "No two workloads of the cluster have the same name, and no two groups of alert rules.",
    source="https://kubernetes.io/docs/concepts/overview/working-with-objects/names/",
    is_acceptable=False,
)
def check_workload_names_are_unique(deployment: Deployment) -> Iterator[Violation]:
    """Reject a name that several objects of the same kind would have in the namespace of all services.

    A service's Deployment and service account have its name; those of a chat service also contain the pool's name.
    Names of tiers are rejected even without callers, since callers may be added later.
    """
    services = deployment.azure.services
    owners = dict.fromkeys(WORKLOAD_NAMES, "one of the deployment's own workloads or accounts")
    for index, service in enumerate(services):
        at = ("azure", "services", index)
        if service.name in DEPLOYMENT_RULE_GROUPS:
            yield Violation(
                (*at, "name"),
                f"{service.name} is the name of a group of the deployment's own alert rules",
                "use another name",
            )
        for number, pool in enumerate(list_service_pool_names(service)):
            name = build_engine_workload_name(service, pool)
            if name in owners:
                yield Violation(
                    (*at, "pools", number) if isinstance(service, ChatService) else (*at, "name"),
                    f"the workload {name} of service {service.name} has the name of {owners[name]}",
                    "use another name for the service"
                    + (", or list each pool once" if pool in list_service_pool_names(service)[:number] else ""),
                )
            owners[name] = f"a workload of service {service.name}"


@deployment_check(
    "pool-has-service",
    "Every GPU pool has a service.",
    source="voice_blueprint/file/model/azure.py: pods choose their pool by name",
)
def check_pool_has_service(deployment: Deployment) -> Iterator[Violation]:
    used_pools = {pod.pool.name for pod in build_configured_cluster(deployment.azure).pods}
    for index, pool in enumerate(deployment.azure.pools):
        if pool.name not in used_pools:
            yield Violation(
                ("azure", "pools", index),
                f"no service runs on pool {pool.name} ({pool.nodes.min}-{pool.nodes.max} nodes of {pool.vm_size})",
                "remove the pool, or use it in a service",
            )


@cluster_check(
    "pool-holds-replicas",
    "Every pool at its maximum has GPUs for all replicas of its services, including those that a rollout adds.",
    source="https://learn.microsoft.com/azure/aks/cluster-autoscaler-overview and "
    "https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-surge",
)
def check_pool_holds_replicas(cluster: Cluster) -> Iterator[Violation]:
    for pods in cluster.group_pods_by_pool().values():
        pool = pods[0].pool
        required = sum(_calculate_required_nodes(pod, pod.max_replicas + pod.surge_replicas) for pod in pods)
        if required > pool.max_nodes:
            parts = ", ".join(
                f"{pod.max_replicas} replicas of "
                f"{pod.name}{f' and {pod.surge_replicas} of a rollout' if pod.surge_replicas else ''} "
                f"at {pod.max_pods_per_node} per node"
                for pod in pods
            )
            yield Violation(
                pods[0].location.locate_setting("replicas"),
                f"pool {pool.name} has a maximum of {pool.max_nodes} nodes, but {parts} need {required}",
                f"set nodes.max of the pool to {required}, or lower replicas.max",
            )


@deployment_check(
    "service-wakes",
    "Every service has at least one replica on its first pool.",
    source="https://keda.sh/docs/latest/concepts/scaling-deployments (a scaler wakes a workload by a metric; these are "
    "published by the engines themselves)",
)
def check_service_has_replica(deployment: Deployment) -> Iterator[Violation]:
    for index, service in enumerate(deployment.azure.services):
        pool = service.pools[0] if isinstance(service, ChatService) else service.pool
        if service.get_replica_bounds(pool).min == 0:
            yield Violation(
                ("azure", "services", index),
                f"{service.name} has a minimum of 0 replicas on pool {pool}: nothing would publish the metrics that "
                "scale it out",
                "set min to 1 or more; later pools of a chat service may have 0",
            )


@deployment_check(
    "upgrade-keeps-service",
    "No service is unavailable while a node of its pool is upgraded.",
    source="https://learn.microsoft.com/azure/aks/upgrade-aks-cluster#customize-node-surge-upgrade (node images come "
    "weekly)",
    level=Severity.WARNING,
)
def check_upgrade_keeps_service(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    services: dict[str, list[PodGroup]] = defaultdict(list)
    for pod in build_configured_cluster(azure).pods:
        if pod.max_pods_per_node and pod.min_replicas:
            services[pod.name].append(pod)
    for name, pods in services.items():
        pool = pods[0].pool
        if sum(_calculate_required_nodes(pod, pod.min_replicas) for pod in pods) == 1 and not pool.surge_nodes:
            window = azure.maintenance
            # AKS adds no nodes to a spot pool: https://github.com/hashicorp/terraform-provider-azurerm/issues/19355
            surge_remedy = "" if pool.is_spot else f"set surge_nodes: 1 (quota for {pool.size.vcpus} vCPU more), "
            yield Violation(
                pool.location.locate_setting("nodes"),
                f"{name} can run on a single node of pool {pool.name}, and an upgrade drains it before another one "
                f"serves: with each node image, {name} is unavailable on {window.day} from {window.start} UTC until "
                "a node has booted and its engine has loaded",
                f"{surge_remedy}raise the service's minimum beyond one node, or accept this check if there are no "
                "calls in that window",
            )


@deployment_check(
    "pool-minimum-used",
    "No pool keeps more nodes than its services need at their minimum replicas.",
    source="https://learn.microsoft.com/azure/aks/cluster-autoscaler-overview",
    level=Severity.WARNING,
)
def check_pool_minimum_used(deployment: Deployment) -> Iterator[Violation]:
    for pods in build_configured_cluster(deployment.azure).group_pods_by_pool().values():
        pool = pods[0].pool
        required = sum(_calculate_required_nodes(pod, pod.min_replicas) for pod in pods)
        if pool.min_nodes > required:
            yield Violation(
                pool.location.locate_setting("nodes"),
                f"pool {pool.name} keeps {pool.min_nodes} nodes, but its services need {required} at their minimum "
                "replicas",
                f"set nodes.min to {required}, or raise replicas.min",
            )


@cluster_check(
    "cell-pool-is-exclusive",
    "A pool of cells has one service.",
    source="https://github.com/NVIDIA/k8s-device-plugin/issues/1193",
)
def check_cell_pool_is_exclusive(cluster: Cluster) -> Iterator[Violation]:
    for pods in cluster.group_pods_by_pool().values():
        cell = next((pod for pod in pods if pod.is_cell), None)
        for other in pods:
            if cell is None or other is cell:
                continue
            yield Violation(
                other.pool_location,
                f"each pod of {other.name} uses {other.gpus} GPU(s) of pool {other.pool.name}, but each cell of "
                f"{cell.name} uses all {cell.gpus} of a node",
                "use a separate pool for each",
            )


@deployment_check(
    "pod-range-holds-nodes",
    "The pods' range has a /24 for every node that the pools can have, including those of an upgrade.",
    source="https://learn.microsoft.com/azure/aks/concepts-network-azure-cni-overlay",
)
def check_pod_range_holds_nodes(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    prefix = IPv4Network(azure.network.pod_cidr).prefixlen
    max_nodes = 2 ** (POD_PREFIX_LENGTH - prefix) if prefix <= POD_PREFIX_LENGTH else 0
    required = _sum_max_nodes(azure)
    if required > max_nodes:
        yield Violation(
            ("azure", "network", "pod_cidr"),
            f"{azure.network.pod_cidr} supports {max_nodes} nodes with a /{POD_PREFIX_LENGTH} each, but the pools "
            f"can have {required}",
            f"use a /{POD_PREFIX_LENGTH - math.ceil(math.log2(required))} or larger; a /16 supports 256",
        )


@deployment_check(
    "virtual-network-holds-nodes",
    "Half of the virtual network, the nodes' subnet, has an address for every node.",
    source="https://learn.microsoft.com/azure/virtual-network/virtual-networks-faq "
    "(five addresses a subnet are reserved)",
)
def check_virtual_network_holds_nodes(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    network = IPv4Network(azure.network.cidr)
    available = network.num_addresses // 2 - AZURE_RESERVED_ADDRESS_COUNT
    required = _sum_max_nodes(azure)
    if required > available:
        yield Violation(
            ("azure", "network", "cidr"),
            f"{network} has {available} addresses for nodes, but the pools can have {required}",
            "use a larger range; a /16 is free of charge",
        )


@deployment_check(
    "admin-group-is-real",
    "The groups that administer the cluster are not placeholders.",
    source="https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad",
    level=Severity.WARNING,
)
def check_admin_group_is_real(deployment: Deployment) -> Iterator[Violation]:
    for index, group in enumerate(deployment.azure.admin_groups):
        if group == PLACEHOLDER_ID:
            yield Violation(
                ("azure", "admin_groups", index),
                f"{group} is a placeholder; local accounts are disabled, so no user could administer the cluster",
                "`az ad group show --group NAME --query id` prints the id of a group",
            )


def _calculate_required_nodes(pod: PodGroup, replicas: int) -> int:
    return math.ceil(replicas / pod.max_pods_per_node)


def _sum_max_nodes(azure: Azure) -> int:
    return sum(pool.max_nodes + pool.surge_nodes for pool in build_configured_cluster(azure).pools)
