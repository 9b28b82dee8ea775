"""Checks on models: who may use them, which engine serves them, what an engine can do with them."""

from collections.abc import Iterator

from blueprint import catalog
from blueprint.catalog import ModelCard
from blueprint.checks.azure_cluster import Cluster, Engine, Pod, cluster_in
from blueprint.checks.base import Level, Violation, check, cluster_check, refusal
from blueprint.contract.images import Image
from blueprint.engines.sizing.fit import check_engine, check_load, check_reuse
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.serving import KvCacheType, Quantization

IMAGE_OF = {"vllm": Image.ASR_VLLM, "vllm-omni": Image.TTS_OMNI}
"""Images of the engines on Azure."""
HELD_BACK_DRIVERS = {"A10": "GRID 570.211.01"}
"""Drivers of AKS node images older than the R580 branch that CUDA 13 needs, by GPU model; others carry 580.159.04."""


@cluster_check(
    "licence-allows-use",
    "Every model's licence allows what the deployment is for, or an agreement does.",
    source="https://huggingface.co/mistralai/Voxtral-4B-TTS-2603 (CC BY-NC 4.0); each model's row names its licence",
)
def licence_allows_use(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _engines(cluster):
        card = engine.model
        if cluster.commercial and not card.commercial_use and card.name not in cluster.agreed:
            yield Violation(
                pod.place.at("model"),
                f"{card.name} is licensed {card.licence}, which forbids commercial use, and this deployment is "
                "commercial",
                "name the agreement with its owner under model_agreements, take another model, or set "
                "commercial: false where that is true",
            )


@cluster_check(
    "engine-serves-model",
    "Every service's engine serves its model: vLLM-Omni for speech, vLLM for everything else.",
    source="https://docs.vllm.ai/projects/vllm-omni and https://docs.vllm.ai/en/stable/models/supported_models.html",
    acceptable=False,
)
def engine_serves_model(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _engines(cluster):
        card = engine.model
        if not _serves(engine, card):
            yield Violation(
                pod.place.at("model"),
                f"{pod.name} runs image {IMAGE_OF[engine.kind]} for {', '.join(sorted(engine.tasks))}; "
                f"{card.name} is a {card.task} model for {card.served_by}",
                f"take one of {', '.join(c.name for c in catalog.models().values() if _serves(engine, c))}, or "
                "another kind of service",
            )


@cluster_check(
    "kv-transfer-supported",
    "LMCache and prefill/decode cells serve decoder-only models.",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/sched/scheduler.py (asserted when it starts)",
    acceptable=False,
)
def kv_transfer_supported(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _engines(cluster):
        if engine.hands_over_kv:
            yield from refusal(pod.place.at("model"), pod.title, check_reuse, engine.model)


@cluster_check(
    "kv-type-supported",
    "The KV cache is FP8 only on GPUs whose attention backend reads it.",
    source="https://docs.vllm.ai/en/stable/features/quantization/quantized_kvcache.html (FlashAttention and Triton "
    "take FP8 from compute capability 8.9)",
    acceptable=False,
)
def kv_type_supported(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _engines(cluster):
        kv_type, gpu = engine.kv_cache_type, pod.pool.gpu
        if kv_type is KvCacheType.FP8 and engine.model.served_by == "vllm" and gpu:
            yield from refusal(pod.place.at("kv_cache_type"), pod.title, check_engine, engine.model, gpu, kv_type, 1)


@cluster_check(
    "context-fits-model",
    "A session's tokens fit its context, and the context fits the model.",
    source="each model's max_context_tokens in the catalogue, from its configuration",
    acceptable=False,
)
def context_fits_model(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _engines(cluster):
        if load := engine.load:
            yield from refusal(pod.place.at("load"), pod.title, check_load, engine.model, load)


@check(
    "weights-type-computes",
    "FP8 weights are computed with, not only stored.",
    source="https://docs.vllm.ai/en/stable/features/quantization/fp8.html (W8A16 through Marlin below 8.9)",
    level=Level.INFO,
)
def weights_type_computes(deployment: Deployment) -> Iterator[Violation]:
    for pod, engine in _engines(cluster_in(deployment.azure)):
        gpu = pod.pool.gpu
        if engine.quantization is Quantization.FP8 and gpu and not gpu.computes_fp8:
            yield Violation(
                pod.place.at("quantization"),
                f"{gpu.name} in pool {pod.pool.name} keeps FP8 weights of {engine.model.name} and computes in "
                "bfloat16: half the memory, the same speed",
                "expect room for KV cache from it, not throughput",
            )


@cluster_check(
    "driver-runs-engine",
    "The NVIDIA driver of every pool's node image runs the CUDA build of its engine.",
    source="https://github.com/Azure/AKS/issues/5875 and https://docs.nvidia.com/deploy/cuda-compatibility",
)
def driver_runs_engine(cluster: Cluster) -> Iterator[Violation]:
    for pod, engine in _engines(cluster):
        driver = HELD_BACK_DRIVERS.get(pod.size.gpu or "")
        release = catalog.engines()[engine.kind]
        if driver and release.min_driver and not _runs(driver, release.min_driver):
            yield Violation(
                pod.pool_at,
                f"{pod.size.name} comes with driver {driver}; {release.name} {release.version} is built for CUDA 13, "
                f"which needs {release.min_driver}: the engine would start again and again, and the node be paid for",
                "put the service on an A100, H100 or H200 pool, or bring a node image with that driver and accept "
                "this check",
            )


def _engines(cluster: Cluster) -> Iterator[tuple[Pod, Engine]]:
    return ((pod, engine) for pod in cluster.pods for engine in pod.engines)


def _serves(engine: Engine, card: ModelCard) -> bool:
    return card.task in engine.tasks and card.served_by == engine.kind


def _runs(driver: str, wanted: str) -> bool:
    """Whether ``GRID 570.211.01`` is of the branch ``R580`` or a later one."""
    branch = driver.rsplit(maxsplit=1)[-1].partition(".")[0]
    return int(branch) >= int(wanted.removeprefix("R"))
