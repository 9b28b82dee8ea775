"""Checks on models: who may use them, which engine serves them, what an engine can do with them."""

from collections.abc import Iterator

from blueprint import catalog
from blueprint.catalog import ModelCard
from blueprint.catalog.inference import Task
from blueprint.checks.azure_pods import ServicePod, refused, service_pods
from blueprint.checks.base import Level, Violation, check
from blueprint.engines.sizing.fit import check_engine, check_load, check_reuse
from blueprint.file.model.azure import AzureService, ChatService, TtsService
from blueprint.file.model.deployment import Deployment, Environment
from blueprint.file.model.serving import KvCacheType, Quantization
from blueprint.hosts import service_images

HELD_BACK_DRIVERS = {"A10": "GRID 570.211.01"}
"""Drivers of AKS node images older than the R580 branch that CUDA 13 needs, by GPU model; others carry 580.159.04."""


@check(
    "licence-allows-use",
    Level.ERROR,
    "Every model's licence allows what the deployment is for, or an agreement does.",
    source="https://huggingface.co/mistralai/Voxtral-4B-TTS-2603 (CC BY-NC 4.0); each model's row names its licence",
)
def licence_allows_use(deployment: Deployment) -> Iterator[Violation]:
    azure = deployment.azure
    agreed = {agreement.model for agreement in azure.model_agreements}
    for index, service in enumerate(azure.services):
        card = catalog.models()[service.model]
        if azure.commercial and not card.commercial_use and card.name not in agreed:
            yield Violation(
                ("azure", "services", index, "model"),
                f"{card.name} is licensed {card.licence}, which forbids commercial use, and this deployment is "
                "commercial",
                "name the agreement with its owner under model_agreements, take another model, or set "
                "commercial: false where that is true",
            )


@check(
    "engine-serves-model",
    Level.ERROR,
    "Every service's engine serves its model: vLLM-Omni for speech, vLLM for everything else.",
    source="https://docs.vllm.ai/projects/vllm-omni and https://docs.vllm.ai/en/stable/models/supported_models.html",
)
def engine_serves_model(deployment: Deployment) -> Iterator[Violation]:
    for index, service in enumerate(deployment.azure.services):
        card = catalog.models()[service.model]
        if not _serves(service, card):
            yield Violation(
                ("azure", "services", index, "model"),
                f"{service.name} is a {service.kind} service, whose image is {service_images(service)[0]}; "
                f"{card.name} is a {card.task} model for {card.served_by}",
                f"take one of {', '.join(c.name for c in catalog.models().values() if _serves(service, c))}, or "
                "another kind of service",
            )


@check(
    "kv-transfer-supported",
    Level.ERROR,
    "LMCache and prefill/decode cells serve decoder-only models.",
    source="https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/sched/scheduler.py (asserted when it starts)",
)
def kv_transfer_supported(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.is_cell or pod.lmcache:
            yield from refused((*pod.location, "model"), pod, _check_reuse)


@check(
    "kv-type-supported",
    Level.ERROR,
    "The KV cache is FP8 only on GPUs whose attention backend reads it.",
    source="https://docs.vllm.ai/en/stable/features/quantization/quantized_kvcache.html (FlashAttention and Triton "
    "take FP8 from compute capability 8.9)",
)
def kv_type_supported(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.kv_cache_type is KvCacheType.FP8 and pod.model.served_by == "vllm":
            yield from refused((*pod.location, "kv_cache_type"), pod, _check_kv_type)


@check(
    "weights-type-computes",
    Level.INFO,
    "FP8 weights are computed with, not only stored.",
    source="https://docs.vllm.ai/en/stable/features/quantization/fp8.html (W8A16 through Marlin below 8.9)",
)
def weights_type_computes(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.quantization is Quantization.FP8 and pod.gpu and not pod.gpu.computes_fp8:
            yield Violation(
                (*pod.location, "quantization"),
                f"{pod.gpu.name} in pool {pod.pool.name} keeps FP8 weights of {pod.model.name} and computes in "
                "bfloat16: half the memory, the same speed",
                "expect room for KV cache from it, not throughput",
            )


@check(
    "driver-runs-engine",
    Level.WARNING,
    "The NVIDIA driver of every pool's node image runs the CUDA build of its engine.",
    source="https://github.com/Azure/AKS/issues/5875 and https://docs.nvidia.com/deploy/cuda-compatibility",
)
def driver_runs_engine(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        driver = HELD_BACK_DRIVERS.get(pod.size.gpu or "")
        engine = catalog.engines()[pod.model.served_by]
        if driver and engine.min_driver and not _runs(driver, engine.min_driver):
            yield Violation(
                pod.pool_at,
                f"{pod.size.name} comes with driver {driver}; {engine.name} {engine.version} is built for CUDA 13, "
                f"which needs {engine.min_driver}",
                "put the service on an A100, H100 or H200 pool, or bring a node image with that driver and accept "
                "this check",
            )


@check(
    "model-revision-pinned",
    Level.WARNING,
    "In production every model is fetched at a fixed commit.",
    source="https://huggingface.co/docs/huggingface_hub/guides/download (revision)",
)
def model_revision_pinned(deployment: Deployment) -> Iterator[Violation]:
    for index, service in enumerate(deployment.azure.services):
        if deployment.environment is Environment.PRODUCTION and service.revision is None:
            card = catalog.models()[service.model]
            yield Violation(
                ("azure", "services", index),
                f"{service.name} fetches {card.repository} at whatever commit is newest: replicas of different "
                "days may differ",
                "set revision to the commit that was tested",
            )


@check(
    "context-fits-model",
    Level.ERROR,
    "A session's tokens fit its context, and the context fits the model.",
    source="each model's max_context_tokens in the catalogue, from its configuration",
)
def context_fits_model(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if not isinstance(pod.service, TtsService):
            yield from refused((*pod.location, "load"), pod, _check_load)


def _check_reuse(pod: ServicePod) -> None:
    check_reuse(pod.model)


def _check_load(pod: ServicePod) -> None:
    if not isinstance(pod.service, TtsService):
        check_load(pod.model, pod.service.load)


def _check_kv_type(pod: ServicePod) -> None:
    if pod.gpu:
        check_engine(pod.model, pod.gpu, pod.kv_cache_type, tensor_parallel=1)


def _serves(service: AzureService, card: ModelCard) -> bool:
    if isinstance(service, TtsService):
        return card.task is Task.SPEECH and card.served_by == "vllm-omni"
    tasks = {Task.CHAT, Task.AUDIO_CHAT} if isinstance(service, ChatService) else set(Task) - {Task.SPEECH}
    return card.task in tasks and card.served_by == "vllm"


def _runs(driver: str, wanted: str) -> bool:
    """Whether ``GRID 570.211.01`` is of the branch ``R580`` or a later one."""
    branch = driver.rsplit(maxsplit=1)[-1].partition(".")[0]
    return int(branch) >= int(wanted.removeprefix("R"))
