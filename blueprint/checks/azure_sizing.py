"""Checks on what fits: weights and KV cache on GPUs, pods on nodes, sessions on replicas. The sums are sizing's."""

import math
from collections.abc import Iterator

from blueprint.azure.rollout import START_TIMEOUT_S
from blueprint.azure.topology import kube_reserved_cpus
from blueprint.capacity import peak_calls
from blueprint.catalog import Gpu
from blueprint.checks.azure_cluster import Cluster, Engine, cluster_in
from blueprint.checks.base import Level, Violation, check, cluster_check, place, refusal
from blueprint.contract.images import Image
from blueprint.contract.metrics import StartPhase
from blueprint.engines.launch.coldstart import BUDGETS
from blueprint.engines.sizing.fit import check_engine, check_memory
from blueprint.engines.sizing.host import FILE_SYSTEM_SHARE, HostBudget
from blueprint.engines.sizing.memory import KvMemory, replication, weights_gib
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.engines.sizing.service import listening, size_service
from blueprint.engines.sizing.tts import size_tts
from blueprint.file.model.azure import Azure, ChatService
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.serving import KvCacheType

RESERVATIONS = "https://learn.microsoft.com/azure/aks/node-resource-reservations"
DAEMON_CPUS = 1.0
"""What DaemonSets of a node ask for: network, metrics, device plugin, log agent. ASSUMED."""
START_WITHOUT_WEIGHTS_S = sum(
    phase.seconds or 0 for phase in BUDGETS[Image.ASR_VLLM] if phase.phase not in {StartPhase.PULL, StartPhase.WEIGHTS}
)
"""Of a first start of vLLM: compiling, graphs and warm-up."""
CACHE_OVER_WEIGHTS = 1.5
"""Room for compile caches and a second revision beside the weights of each model. ASSUMED."""


@cluster_check(
    "engine-splits-model",
    "The attention heads of every model divide over the GPUs of its engine.",
    source="https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html (asserted when the model is loaded)",
    acceptable=False,
)
def engine_splits_model(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        for engine in pod.engines:
            gpu, width = pod.pool.gpu, engine.tensor_parallel
            if gpu and width and engine.kind == engine.model.served_by == "vllm":
                yield from refusal(
                    pod.place.at("tensor_parallel"), pod.title, check_engine, engine.model, gpu, KvCacheType.AUTO, width
                )


@check(
    "load-fits-services",
    "Services that take audio have room for the peak of the typed load at their most replicas.",
    source="blueprint/engines/sizing: sessions by memory, as `voice plan` shows them",
)
def load_fits_services(deployment: Deployment) -> Iterator[Violation]:
    load = deployment.load
    if load is None or deployment.azure_half is None or deployment.aws_half:
        return
    try:
        found, peak = list(listening(deployment.azure)), peak_calls(load)
    except LookupError:
        return  # a pool without GPUs is another check's
    most = sum(room.most * room.sessions for room in found)
    if most < peak:
        named = ", ".join(f"{room.service} {room.most} x {room.sessions}" for room in found) or "none takes audio"
        yield Violation(
            ("load", "calls"),
            f"the load's peak is {peak:,} ({load.calls:,} x {load.peak_factor:g}), the services have room for "
            f"{most:,} ({named})",
            f"{growth(deployment.azure, found[0].service, math.ceil((peak - most) / found[0].sessions))}, or lower "
            f"load.calls to {int(most / load.peak_factor)}"
            if found
            else "add a service whose model takes audio",
        )


def growth(azure: Azure, name: str, replicas: int) -> str:
    """Return the remedy that gives a service more replicas: on its first pool, with nodes for them."""
    index, service = next((index, each) for index, each in enumerate(azure.services) if each.name == name)
    first = size_service(azure, service).pools[0]
    own = [each.pool for each in service.pool_replicas] if isinstance(service, ChatService) else []
    bounds = ("pool_replicas", own.index(first.pool)) if first.pool in own else ("replicas",)
    at = place(("azure", "services", index, *bounds, "max"))
    pool = next(index for index, each in enumerate(azure.pools) if each.name == first.pool)
    nodes = first.nodes_max + math.ceil(replicas / first.replicas_per_node)
    return f"set {at} to {first.most_replicas + replicas}, {place(('azure', 'pools', pool, 'nodes', 'max'))} to {nodes}"


@cluster_check(
    "load-fits-gpus",
    "Weights and the KV cache of one session at full context fit the GPUs of every engine.",
    source="blueprint/engines/sizing/memory.py; https://docs.vllm.ai/en/stable/configuration/conserving_memory.html",
    acceptable=False,
)
def load_fits_gpus(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        for engine in pod.engines:
            gpu = pod.pool.gpu
            # A model of another kind is another check's.
            if gpu and engine.tensor_parallel and engine.kind == engine.model.served_by:
                yield from refusal(pod.pool_at, pod.title, _check_gpu_memory, engine, gpu)


def _check_gpu_memory(engine: Engine, gpu: Gpu) -> None:
    model, width = engine.model, engine.tensor_parallel
    if engine.load is None:
        size_tts(model, gpu)
        return
    weights = weights_gib(model, engine.quantization)
    memory = KvMemory(gpu, width, weights, replication(model, width), utilization=engine.utilization)
    check_memory(model, memory, engine.kv_cache_type, engine.load)


@cluster_check(
    "node-memory-holds-pods",
    "A node has memory for as many pods as it has GPUs for: engines, shared memory and LMCache.",
    source=f"{RESERVATIONS}; https://github.com/LMCache/LMCache/issues/796 (a pool of 200 GB that took its node down)",
    acceptable=False,
)
def node_memory_holds_pods(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        if pod.gpus:
            at = pod.place.at("lmcache") if pod.memory_gib.get("LMCache") else pod.pool_at
            yield from refusal(at, pod.title, HostBudget(pod.size, pod.on_a_node, pod.memory_gib).check)


@cluster_check("node-cpus-hold-pods", "A node has CPUs for as many pods as it has GPUs for.", source=RESERVATIONS)
def node_cpus_hold_pods(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        have = int(pod.size.vcpus - kube_reserved_cpus(pod.size) - DAEMON_CPUS)
        need = pod.on_a_node * pod.cpus
        if need > have:
            yield Violation(
                pod.place.at("cpus"),
                f"{pod.on_a_node} pod(s) of {pod.name} on {pod.size.name} ask for {need:g} CPUs; "
                f"{have} of {pod.size.vcpus} are left by the kubelet and DaemonSets",
                f"ask for at most {have // pod.on_a_node}",
            )
        least = min((request.cpus for request in pod.requests if request.cpus is not None), default=1)
        if least < 1:
            yield Violation(
                pod.place.at("cpus"),
                f"the helpers of {pod.name} leave {least} CPUs to an engine",
                f"ask for at least {1 - least} more",
            )


@cluster_check(
    "nvme-holds-kv",
    "A node has local NVMe for the second LMCache level of its pods.",
    source="https://learn.microsoft.com/azure/aks/best-practices-storage-nvme",
)
def nvme_holds_kv(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        need = pod.nvme_gib * pod.on_a_node
        if need > pod.size.nvme_gib:
            yield Violation(
                pod.place.at("lmcache", "l2_nvme_gib"),
                f"{pod.on_a_node} pod(s) of {pod.name} want volumes of {need:.1f} GiB on local NVMe; "
                f"{pod.size.name} has {pod.size.nvme_gib}",
                f"set l2_nvme_gib to at most {int(pod.size.nvme_gib / pod.on_a_node / FILE_SYSTEM_SHARE)}, or 0",
            )


@cluster_check(
    "model-cache-holds-models",
    "The shared model cache holds every model's weights and half as much again for compile caches.",
    source="each model's weights_gib in the catalogue",
)
def model_cache_holds_models(cluster: Cluster) -> Iterator[Violation]:
    for cache in cluster.caches:
        need = sum(model.weights_gib for model in cache.models.values()) * CACHE_OVER_WEIGHTS
        if need > cache.gib:
            weights = ", ".join(f"{model.name} {model.weights_gib:g}" for model in cache.models.values())
            yield Violation(
                cache.at,
                f"{cache.gib:g} GiB; {weights} with their caches take {need:.0f} GiB",
                f"set model_cache_gib to {int(need) + 1} or more",
            )


@check(
    "model-cache-feeds-nodes",
    "The shared model cache brings weights to every node at once before an engine's start runs out of time.",
    source="https://learn.microsoft.com/azure/storage/files/understanding-billing (provisioned v1: throughput of SSD "
    "shares), docs/cold-start.md",
    level=Level.WARNING,
)
def model_cache_feeds_nodes(deployment: Deployment) -> Iterator[Violation]:
    """After a zone's loss, or when spot nodes come back, all of them read: nothing of it is in their page caches."""
    readers = list(_readers(cluster_in(deployment.azure)))
    have, gib, nodes = (
        deployment.azure.model_cache_gib,
        sum(n * each for n, each in readers),
        sum(n for n, _ in readers),
    )
    limit_s = START_TIMEOUT_S - START_WITHOUT_WEIGHTS_S
    seconds = gib * 1024 / share_mib_s(have)
    if seconds > limit_s:
        enough = next(size for size in range(have, 2**20) if gib * 1024 / share_mib_s(size) <= limit_s)
        yield Violation(
            ("azure", "model_cache_gib"),
            f"{nodes} cold nodes read {gib:.0f} GiB of weights at {share_mib_s(have)} MiB/s: {seconds / 60:.1f} min, "
            f"and an engine has {limit_s / 60:.1f} min for it",
            f"set model_cache_gib to {enough} or more: a share's throughput grows with its size",
        )


def share_mib_s(gib: float) -> int:
    """Return the throughput of an SSD share of Azure Files by its size, MiB/s."""
    return 100 + math.ceil(0.04 * gib) + math.ceil(0.06 * gib)


def _readers(cluster: Cluster) -> Iterator[tuple[int, float]]:
    """Yield how many nodes of a pool may read, and what each of them reads, GiB; two pods of a node read once."""
    for pods in cluster.pods_by_pool().values():
        nodes = sum(math.ceil(pod.max_replicas / pod.per_node) for pod in pods)
        weights = {
            engine.model.name: weights_gib(engine.model, engine.quantization) for pod in pods for engine in pod.engines
        }
        yield min(nodes, pods[0].pool.max_nodes), sum(weights.values())


@check(
    "replicas-carry-load",
    "All replicas of a service together carry the sessions that it is asked for.",
    source="blueprint/engines/sizing: ceilings of memory, and for text to speech arXiv 2603.25551",
)
def replicas_carry_load(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    for index, service in enumerate(azure.services):
        try:
            sizing = size_service(azure, service)
        except (DoesNotFitError, LookupError):
            continue
        if (missing := sizing.asked - sizing.sessions) > 0:
            more = growth(azure, service.name, math.ceil(missing / sizing.pools[0].engine.sessions))
            yield Violation(
                ("azure", "services", index, "replicas"),
                f"{service.name}: {sizing.verdict}",
                f"{more}, or ask for fewer sessions",
            )
