"""Checks on what fits: weights and KV cache on GPUs, pods on nodes, sessions on replicas. The sums are sizing's."""

from collections.abc import Iterator

from blueprint.azure.topology import kube_reserved_cpus
from blueprint.checks.azure_pods import ServicePod, refused, service_pods
from blueprint.checks.base import Level, Violation, check
from blueprint.engines.sizing.fit import check_engine, check_memory
from blueprint.engines.sizing.host import size_host
from blueprint.engines.sizing.memory import kv_memory
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.engines.sizing.service import size_service
from blueprint.engines.sizing.tts import size_tts
from blueprint.file.model.azure import TtsService
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.serving import KvCacheType

RESERVATIONS = "https://learn.microsoft.com/azure/aks/node-resource-reservations"
DAEMON_CPUS = 1.0
"""What DaemonSets of a node ask for: network, metrics, device plugin, log agent. ASSUMED."""
CACHE_OVER_WEIGHTS = 1.5
"""Room for compile caches and a second revision beside the weights of each model. ASSUMED."""


@check(
    "engine-splits-model",
    Level.ERROR,
    "The attention heads of every model divide over the GPUs of its engine.",
    source="https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html (asserted when the model is loaded)",
)
def engine_splits_model(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if _on_vllm(pod) and not pod.is_cell:
            yield from refused((*pod.location, "tensor_parallel"), pod, _check_heads)


@check(
    "load-fits-gpus",
    Level.ERROR,
    "Weights and the KV cache of one session at full context fit the GPUs of every engine.",
    source="blueprint/engines/sizing/memory.py; https://docs.vllm.ai/en/stable/configuration/conserving_memory.html",
)
def load_fits_gpus(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.gpu and pod.tensor_parallel:
            fits = _check_tts if isinstance(pod.service, TtsService) else _check_memory
            yield from refused(pod.pool_at, pod, fits)


@check(
    "node-memory-holds-pods",
    Level.ERROR,
    "A node has memory for as many pods as it has GPUs for: engines, shared memory and LMCache.",
    source=f"{RESERVATIONS}; https://github.com/LMCache/LMCache/issues/796 (a pool of 200 GB that took its node down)",
)
def node_memory_holds_pods(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.per_node:
            at = (*pod.location, "lmcache") if pod.lmcache else pod.pool_at
            yield from refused(at, pod, _check_host)


@check("node-cpus-hold-pods", Level.ERROR, "A node has CPUs for as many pods as it has GPUs for.", source=RESERVATIONS)
def node_cpus_hold_pods(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        have = int(pod.size.vcpus - kube_reserved_cpus(pod.size) - DAEMON_CPUS)
        need = pod.per_node * pod.service.cpus
        if need > have:
            yield Violation(
                (*pod.location, "cpus"),
                f"{pod.per_node} pod(s) of {pod.service.name} on {pod.size.name} ask for {need} CPUs; "
                f"{have} of {pod.size.vcpus} are left by the kubelet and DaemonSets",
                f"ask for at most {have // pod.per_node}",
            )


@check(
    "nvme-holds-kv",
    Level.ERROR,
    "A node has local NVMe for the second LMCache level of its pods.",
    source="https://learn.microsoft.com/azure/aks/best-practices-storage-nvme",
)
def nvme_holds_kv(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        need = pod.lmcache.l2_nvme_gib * pod.per_node if pod.lmcache else 0
        if need > pod.size.nvme_gib:
            yield Violation(
                (*pod.location, "lmcache", "l2_nvme_gib"),
                f"{pod.per_node} pod(s) of {pod.service.name} want {need} GiB of local NVMe; {pod.size.name} has "
                f"{pod.size.nvme_gib}",
                f"set l2_nvme_gib to at most {pod.size.nvme_gib // pod.per_node}, or 0",
            )


@check(
    "model-cache-holds-models",
    Level.ERROR,
    "The shared model cache holds every model's weights and half as much again for compile caches.",
    source="each model's weights_gib in the catalogue",
)
def model_cache_holds_models(deployment: Deployment) -> Iterator[Violation]:
    weights = {pod.model.name: pod.model.weights_gib for pod in service_pods(deployment.azure)}
    need = sum(weights.values()) * CACHE_OVER_WEIGHTS
    have = deployment.azure.model_cache_gib
    if need > have:
        yield Violation(
            ("azure", "model_cache_gib"),
            f"{have} GiB; {', '.join(f'{name} {gib:g}' for name, gib in weights.items())} with their caches take "
            f"{need:.0f} GiB",
            f"set model_cache_gib to {int(need) + 1} or more",
        )


@check(
    "replicas-carry-load",
    Level.WARNING,
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
        if not sizing.enough:
            yield Violation(
                ("azure", "services", index, "replicas"),
                f"{service.name}: {sizing.verdict}",
                "raise replicas.max and the pool's nodes.max, or ask for fewer sessions",
            )


def _on_vllm(pod: ServicePod) -> bool:
    return pod.model.served_by == "vllm" and not isinstance(pod.service, TtsService)


def _check_heads(pod: ServicePod) -> None:
    if pod.gpu:
        check_engine(pod.model, pod.gpu, KvCacheType.AUTO, pod.tensor_parallel)


def _check_memory(pod: ServicePod) -> None:
    if pod.gpu and not isinstance(pod.service, TtsService):
        memory = kv_memory(pod.model, pod.gpu, tensor_parallel=pod.tensor_parallel, quantization=pod.quantization)
        check_memory(pod.model, memory, pod.kv_cache_type, pod.service.load)


def _check_tts(pod: ServicePod) -> None:
    # A model of another kind is another check's.
    if pod.gpu and pod.model.served_by == "vllm-omni":
        size_tts(pod.model, pod.gpu)


def _check_host(pod: ServicePod) -> None:
    kv_pool_gib = pod.lmcache.l1_gib if pod.lmcache else 0
    size_host(pod.size, pods=pod.per_node, gpus_per_pod=pod.gpus, kv_pool_gib=kv_pool_gib)
