"""Checks on capacity: weights and KV cache on GPUs, pods on nodes, sessions on replicas.

The ``sizing`` package calculates the required amounts.
"""

import math
from collections.abc import Iterator

from voice_blueprint.azure.rollout import ENGINE_STARTUP_TIMEOUT_S
from voice_blueprint.azure.topology import calculate_kube_reserved_cpus
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.checks.azure.cluster import Cluster, PodGroup, build_configured_cluster
from voice_blueprint.checks.base import (
    Severity,
    Violation,
    cluster_check,
    deployment_check,
    format_location,
    iter_sizing_violations,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import StartPhase
from voice_blueprint.engines.launch.coldstart import PHASE_BUDGETS_BY_IMAGE
from voice_blueprint.engines.sizing.fit import validate_engine_configuration
from voice_blueprint.engines.sizing.host import VOLUME_OVERHEAD_FACTOR, HostMemoryBudget
from voice_blueprint.engines.sizing.memory import calculate_weights_gib
from voice_blueprint.engines.sizing.service import iter_transcription_capacities, size_service
from voice_blueprint.file.model.azure import MAX_FILE_SHARE_GIB, Azure, ChatService
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.serving import KvCacheType

RESERVATIONS_DOCS = "https://learn.microsoft.com/azure/aks/node-resource-reservations"
DAEMONSET_CPUS = 1.0
"""CPU requests of a node's DaemonSets: network, metrics, device plugin, log agent. ASSUMED."""
START_DURATION_WITHOUT_WEIGHTS_S = sum(
    phase.seconds or 0
    for phase in PHASE_BUDGETS_BY_IMAGE[Image.ASR_VLLM]
    if phase.phase not in {StartPhase.PULL, StartPhase.WEIGHTS}
)
"""Duration of vLLM's first start, excluding the loading of weights: compilation, graph capture and warm-up."""
CACHED_REVISION_COUNT = 2
"""Number of revisions of a model in the cache: the served one, and the one that a rollout downloads. The hub's cache
does not delete revisions automatically."""
COMPILE_CACHES_GIB = 2
"""Size of the compile caches for a model, across all engines. ASSUMED."""


@cluster_check(
    "engine-splits-model",
    "The number of attention heads of every model is divisible by the number of GPUs of its engine.",
    source="https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html (asserted when the model is loaded)",
    is_acceptable=False,
)
def check_engine_splits_model(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        for engine in pod.engines:
            gpu, tensor_parallel = pod.pool.gpu, engine.tensor_parallel
            if gpu and tensor_parallel and engine.kind == engine.model.served_by == "vllm":
                yield from iter_sizing_violations(
                    pod.location.locate_setting("tensor_parallel"),
                    pod.title,
                    validate_engine_configuration,
                    engine.model,
                    gpu,
                    KvCacheType.AUTO,
                    tensor_parallel,
                )


@deployment_check(
    "load-fits-services",
    "At their maximum replicas, services that transcribe audio support the peak of the file's load.",
    source="voice_blueprint/engines/sizing: sessions by memory, as `voice plan` shows them",
)
def check_load_fits_services(deployment: Deployment) -> Iterator[Violation]:
    load = deployment.load
    if load is None or deployment.azure_section is None or deployment.aws_section:
        return
    try:
        result, peak = list(iter_transcription_capacities(deployment.azure)), calculate_peak_calls(load)
    except LookupError:
        return  # another check reports a pool without GPUs
    max_sessions = sum(pool.max_replicas * pool.sessions for pool in result)
    if max_sessions < peak:
        missing_replicas = math.ceil((peak - max_sessions) / result[0].sessions) if result else 0
        named = (
            ", ".join(f"{pool.service} {pool.max_replicas} x {pool.sessions}" for pool in result)
            or "none transcribes audio"
        )
        yield Violation(
            ("load", "calls"),
            f"the load's peak is {peak:,} ({load.calls:,} x {load.peak_factor:g}), but the services support "
            f"{max_sessions:,} ({named})",
            f"{build_scale_out_remedy(deployment.azure, result[0].service, missing_replicas)}, or "
            f"lower load.calls to {int(max_sessions / load.peak_factor)}"
            if result
            else "add a service whose model transcribes audio",
        )


def build_scale_out_remedy(azure: Azure, name: str, replicas: int) -> str:
    """Return the settings that add replicas to a service, and nodes to its first pool."""
    index, service = next((index, each) for index, each in enumerate(azure.services) if each.name == name)
    first = size_service(azure, service).pools[0]
    pool_names = [each.pool for each in service.pool_replicas] if isinstance(service, ChatService) else []
    bounds = ("pool_replicas", pool_names.index(first.pool)) if first.pool in pool_names else ("replicas",)
    at = format_location(("azure", "services", index, *bounds, "max"))
    pool = next(index for index, each in enumerate(azure.pools) if each.name == first.pool)
    nodes = first.nodes_max + math.ceil(replicas / first.replicas_per_node)
    max_nodes = format_location(("azure", "pools", pool, "nodes", "max"))
    return f"set {at} to {first.max_replicas + replicas}, {max_nodes} to {nodes}"


@cluster_check(
    "node-memory-holds-pods",
    "A node has memory for as many pods as its GPUs allow: engines, shared memory and LMCache.",
    source=f"{RESERVATIONS_DOCS}; https://github.com/LMCache/LMCache/issues/796 (a pool of 200 GB that took its node "
    "down)",
    is_acceptable=False,
)
def check_node_memory_holds_pods(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        if pod.gpus:
            at = pod.location.locate_setting("lmcache") if pod.memory_gib.get("LMCache") else pod.pool_location
            yield from iter_sizing_violations(
                at, pod.title, HostMemoryBudget(pod.size, pod.pods_on_full_node, pod.memory_gib).validate_memory
            )


@cluster_check("node-cpus-hold-pods", "A node has CPUs for as many pods as its GPUs allow.", source=RESERVATIONS_DOCS)
def check_node_cpus_hold_pods(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        available_cpus = int(pod.size.vcpus - calculate_kube_reserved_cpus(pod.size) - DAEMONSET_CPUS)
        required = pod.pods_on_full_node * pod.cpus
        if required > available_cpus:
            yield Violation(
                pod.location.locate_setting("cpus"),
                f"{pod.pods_on_full_node} pod(s) of {pod.name} on {pod.size.name} request {required:g} CPUs, but the "
                f"kubelet and DaemonSets leave {available_cpus} of {pod.size.vcpus}",
                f"request at most {available_cpus // pod.pods_on_full_node}",
            )
        min_cpus = min((request.cpus for request in pod.requests if request.cpus is not None), default=1)
        if min_cpus < 1:
            yield Violation(
                pod.location.locate_setting("cpus"),
                f"the sidecars of {pod.name} leave {min_cpus} CPUs for an engine",
                f"request at least {1 - min_cpus} more",
            )


@cluster_check(
    "nvme-holds-kv",
    "A node has local NVMe for the second LMCache level of its pods.",
    source="https://learn.microsoft.com/azure/aks/best-practices-storage-nvme",
)
def check_nvme_holds_kv(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        required = pod.nvme_gib * pod.pods_on_full_node
        if required > pod.size.nvme_gib:
            yield Violation(
                pod.location.locate_setting("lmcache", "l2_nvme_gib"),
                f"{pod.pods_on_full_node} pod(s) of {pod.name} need volumes of {required:.1f} GiB on local NVMe, but "
                f"{pod.size.name} has {pod.size.nvme_gib}",
                f"set l2_nvme_gib to at most {_calculate_max_l2_nvme_gib(pod)}, or 0",
            )


@deployment_check(
    "nvme-keeps-kv",
    "A node's local NVMe, which is included in its price, is used for the KV cache.",
    source="https://learn.microsoft.com/azure/aks/best-practices-storage-nvme",
    level=Severity.WARNING,
)
def check_nvme_used_for_kv_cache(deployment: Deployment) -> Iterator[Violation]:
    """Warn if the local NVMe in a pool is unused.

    The setting has no default, since a default would depend on the pool. A change of the pool would then also change
    the size of the volume, and therefore replace the pods.
    """
    for pod in build_configured_cluster(deployment.azure).pods:
        if pod.memory_gib["LMCache"] and not pod.nvme_gib and _calculate_max_l2_nvme_gib(pod):
            yield Violation(
                pod.location.locate_setting("lmcache", "l2_nvme_gib"),
                f"l2_nvme_gib is 0 GiB, but {pod.size.name} has {pod.size.nvme_gib} GiB of local NVMe, which is unused",
                f"set l2_nvme_gib to at most {_calculate_max_l2_nvme_gib(pod)}",
            )


def _calculate_max_l2_nvme_gib(pod: PodGroup) -> int:
    """Return the maximum size of a pod's second LMCache level on a full node, GiB."""
    return int(pod.size.nvme_gib / pod.pods_on_full_node / VOLUME_OVERHEAD_FACTOR)


@cluster_check(
    "model-cache-holds-models",
    "The shared model cache has space for the weights of all models, twice for a rollout, and their compile caches.",
    source="each model's weights_gib in the catalogue; voice_blueprint/engines/launch/download.py downloads one format",
)
def check_model_cache_holds_models(cluster: Cluster) -> Iterator[Violation]:
    for cache in cluster.model_caches:
        weights_gib = sum(model.weights_gib for model in cache.models.values())
        required = weights_gib * CACHED_REVISION_COUNT + COMPILE_CACHES_GIB * len(cache.models)
        if required > cache.size_gib:
            weights = ", ".join(f"{model.name} {model.weights_gib:g}" for model in cache.models.values())
            yield Violation(
                cache.location,
                f"the cache has {cache.size_gib:g} GiB, but {weights} in two revisions need {required:.0f} GiB with "
                "their compile caches",
                f"set model_cache_gib to {int(required) + 1} or more",
            )


@deployment_check(
    "model-cache-feeds-nodes",
    "The shared model cache delivers weights to all nodes at once within an engine's start-up limit.",
    source="https://learn.microsoft.com/azure/storage/files/understanding-billing (provisioned v1: throughput of SSD "
    "shares), docs/cold-start.md",
    level=Severity.WARNING,
)
def check_model_cache_throughput(deployment: Deployment) -> Iterator[Violation]:
    """Warn if cold nodes cannot load their weights before an engine's start-up timeout.

    After the loss of a zone, or when spot nodes return, all nodes read the model cache while their page caches are
    empty.
    """
    concurrent_reads = list(_iter_concurrent_reads(build_configured_cluster(deployment.azure)))
    bandwidth, gib, nodes = (
        deployment.azure.model_cache_gib,
        sum(n * each for n, each in concurrent_reads),
        sum(n for n, _ in concurrent_reads),
    )
    limit_s = ENGINE_STARTUP_TIMEOUT_S - START_DURATION_WITHOUT_WEIGHTS_S
    seconds = gib * 1024 / calculate_file_share_mib_per_s(bandwidth)
    if seconds > limit_s:
        sufficient = calculate_min_file_share_gib(gib, bandwidth)
        yield Violation(
            ("azure", "model_cache_gib"),
            f"{nodes} cold nodes read {gib:.0f} GiB of weights at {calculate_file_share_mib_per_s(bandwidth)} MiB/s, "
            f"which needs {seconds / 60:.1f} min, but an engine has {limit_s / 60:.1f} min",
            f"set model_cache_gib to {sufficient} or more: a share's throughput increases with its size"
            if sufficient
            else f"use fewer nodes: the largest share, {MAX_FILE_SHARE_GIB} GiB, delivers "
            f"{limit_s * calculate_file_share_mib_per_s(MAX_FILE_SHARE_GIB) / 1024:.0f} GiB in that time",
        )


def calculate_file_share_mib_per_s(gib: float) -> int:
    """Return the throughput of an SSD share of Azure Files, MiB/s.

    The throughput depends on the size of the share.
    """
    return 100 + math.ceil(0.04 * gib) + math.ceil(0.06 * gib)


def calculate_min_file_share_gib(read_gib: float, min_gib: int) -> int | None:
    """Return the minimum size of a share, GiB, from which nodes load weights within an engine's start-up timeout.

    The result is ``None`` if even the largest share is too slow.
    """
    limit_s = ENGINE_STARTUP_TIMEOUT_S - START_DURATION_WITHOUT_WEIGHTS_S
    sizes = range(min_gib, MAX_FILE_SHARE_GIB + 1)
    return next((size for size in sizes if read_gib * 1024 / calculate_file_share_mib_per_s(size) <= limit_s), None)


def _iter_concurrent_reads(cluster: Cluster) -> Iterator[tuple[int, float]]:
    """For each pool, yield the number of nodes that may read concurrently, and the amount that each reads, GiB.

    Pods on the same node read the weights only once.
    """
    for pods in cluster.group_pods_by_pool().values():
        nodes = sum(math.ceil(pod.max_replicas / pod.max_pods_per_node) for pod in pods)
        weights = {
            engine.model.name: calculate_weights_gib(engine.model, engine.quantization)
            for pod in pods
            for engine in pod.engines
        }
        yield min(nodes, pods[0].pool.max_nodes), sum(weights.values())
