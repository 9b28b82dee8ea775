"""Rollouts of engines, and upgrades of node pools."""

import math

from voice_blueprint import catalog
from voice_blueprint.file.model.azure import AggregatedService, AzureService, GpuPool, PrefillDecodeCell
from voice_blueprint.file.model.base import HostCount

ENGINE_STARTUP_TIMEOUT_S = 2400
"""Maximum start-up time of an engine, without the download of its weights. 11 min were measured with empty compile
caches (https://github.com/siderolabs/talos, pull request 1848); the first engine also reads its weights over NFS."""


def calculate_surge_pod_count(replicas: HostCount) -> int:
    """Return the number of pods that a rollout adds before it stops an old one.

    GPUs are scarce, so only a service with a single replica gets a second pod during a rollout; several replicas are
    replaced one after another. A service with a minimum of 0 needs no additional pod.
    """
    return 1 if replicas.min == 1 else 0


def calculate_max_pods_per_node(service: AzureService, pool: GpuPool) -> int:
    """Return the maximum number of pods that a service has on one node in a pool."""
    gpus = catalog.vm_sizes()[pool.vm_size].gpu_count
    match service:
        case PrefillDecodeCell():
            return 1
        case AggregatedService(tensor_parallel=gpus_per_pod):
            fitting = gpus // gpus_per_pod
        case _:
            fitting = gpus
    return max(1, min(fitting, service.get_replica_bounds(pool.name).max))


def calculate_evictable_pod_count(service: AzureService, pool: GpuPool) -> int:
    """Return the number of pods that may be evicted from a service before a replacement is ready.

    Without a surge node, there may be no room for the replacements of a node's pods until the node is upgraded. A
    disruption budget of one pod would then block all further evictions, and the upgrade would fail.
    """
    return 1 if pool.surge_nodes else calculate_max_pods_per_node(service, pool)


DEFAULT_DRAIN_MINUTES = 30
"""AKS's default drain timeout of a node, minutes:
https://learn.microsoft.com/azure/aks/upgrade-aks-cluster#set-node-drain-timeout-value"""
MAX_NODE_DRAIN_S = 1440 * 60
"""Maximum drain timeout of a node: https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters
(``drainTimeoutInMinutes``)."""
DRAIN_MARGIN_S = 120
"""Time for a pod to stop its engine after the drain timeout."""


def calculate_max_node_drain_s(service: AzureService, pool: GpuPool) -> int:
    """Return the maximum time until all pods of a service on one node have been evicted and have stopped.

    Each eviction waits until the replacements of previously evicted pods are ready.
    """
    rounds = math.ceil(calculate_max_pods_per_node(service, pool) / calculate_evictable_pod_count(service, pool))
    return min(MAX_NODE_DRAIN_S, rounds * (ENGINE_STARTUP_TIMEOUT_S + service.drain_timeout_s + DRAIN_MARGIN_S))


SURGE_PERCENT = 33
"""Nodes that AKS adds to a pool without GPUs during an upgrade: a percentage of the pool's nodes, rounded up.
https://learn.microsoft.com/azure/aks/upgrade-cluster#customize-node-surge-upgrade"""


def calculate_surge_node_count(nodes: int) -> int:
    """Return the number of nodes that an upgrade adds to a pool without GPUs."""
    return math.ceil(nodes * SURGE_PERCENT / 100)
