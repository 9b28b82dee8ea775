"""Checks on engines and their models on either cloud: tasks, memory and performance."""

import math
from collections.abc import Iterable, Iterator

from voice_blueprint import catalog
from voice_blueprint.catalog import Gpu, ModelCard
from voice_blueprint.catalog.inference import ModelArchitecture
from voice_blueprint.checks.azure.cluster import Engine
from voice_blueprint.checks.azure.sizing import build_scale_out_remedy
from voice_blueprint.checks.base import Severity, Violation, deployment_check, engine_check, iter_sizing_violations
from voice_blueprint.checks.engine_gpus import EngineWithGpu
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.whisper import DEFAULT_WHISPER_MODEL_BY_KIND
from voice_blueprint.engines.sizing.fit import validate_engine_configuration, validate_gpu_memory, validate_load
from voice_blueprint.engines.sizing.host import calculate_pod_memory_by_purpose
from voice_blueprint.engines.sizing.memory import KvMemory, calculate_weights_gib, count_kv_head_copies
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.engines.sizing.service import select_fleet_engine, size_service
from voice_blueprint.engines.sizing.tts import size_tts
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.serving import KvCacheType, Quantization

IMAGE_BY_ENGINE = {"vllm": Image.ASR_VLLM, "vllm-omni": Image.TTS_OMNI}
"""Images for the engines."""


@engine_check(
    "engine-serves-model",
    "Every engine supports its model: vLLM-Omni for speech, vLLM for all others, and a transcription model in an ASR "
    "fleet.",
    source="https://docs.vllm.ai/projects/vllm-omni and https://docs.vllm.ai/en/stable/models/supported_models.html",
    is_acceptable=False,
)
def check_engine_serves_model(engines: Iterable[EngineWithGpu]) -> Iterator[Violation]:
    for candidate in engines:
        card, engine = candidate.engine.model, candidate.engine
        if not _supports_model(engine, card):
            yield Violation(
                candidate.location.locate_setting("model"),
                f"{candidate.name} runs image {IMAGE_BY_ENGINE[engine.kind]} for {', '.join(sorted(engine.tasks))}, "
                f"but {card.name} is a {card.task} model for {card.served_by}",
                f"use one of {', '.join(c.name for c in catalog.models().values() if _supports_model(engine, c))}, or "
                "another kind of service",
            )


@engine_check(
    "kv-type-supported",
    "The KV cache is FP8 only on GPUs whose attention backend supports it.",
    source="https://docs.vllm.ai/en/stable/features/quantization/quantized_kvcache.html (FlashAttention and Triton "
    "support FP8 from compute capability 8.9)",
    is_acceptable=False,
)
def check_kv_type_supported(engines: Iterable[EngineWithGpu]) -> Iterator[Violation]:
    for candidate in engines:
        engine, gpu = candidate.engine, candidate.gpu
        kv_type = engine.kv_cache_type
        if kv_type is KvCacheType.FP8 and engine.model.served_by == "vllm" and gpu:
            at = candidate.location.locate_setting("kv_cache_type")
            yield from iter_sizing_violations(
                at, candidate.title, validate_engine_configuration, engine.model, gpu, kv_type, 1
            )


@engine_check(
    "context-fits-model",
    "A session's tokens fit its context, and the context fits the model.",
    source="each model's max_context_tokens in the catalogue, from its configuration",
    is_acceptable=False,
)
def check_context_fits_model(engines: Iterable[EngineWithGpu]) -> Iterator[Violation]:
    for candidate in engines:
        if load := candidate.engine.load:
            yield from iter_sizing_violations(
                candidate.location.locate_setting("load"), candidate.title, validate_load, candidate.engine.model, load
            )


@engine_check(
    "load-fits-gpus",
    "Weights and the KV cache of one session at full context fit the GPUs of every engine.",
    source="voice_blueprint/engines/sizing/memory.py; https://docs.vllm.ai/en/stable/configuration/conserving_memory.html",
    is_acceptable=False,
)
def check_load_fits_gpus(engines: Iterable[EngineWithGpu]) -> Iterator[Violation]:
    for candidate in engines:
        engine, gpu = candidate.engine, candidate.gpu
        # Another check reports models of another kind.
        if gpu and engine.tensor_parallel and engine.kind == engine.model.served_by:
            yield from iter_sizing_violations(
                candidate.hardware_location, candidate.title, _check_gpu_memory, engine, gpu
            )


def _check_gpu_memory(engine: Engine, gpu: Gpu) -> None:
    model, width = engine.model, engine.tensor_parallel
    if engine.load is None:
        size_tts(model, gpu)
        return
    weights = calculate_weights_gib(model, engine.quantization)
    memory = KvMemory(gpu, width, weights, count_kv_head_copies(model, width), utilization=engine.utilization)
    validate_gpu_memory(model, memory, engine.kv_cache_type, engine.load)


@engine_check(
    "weights-type-computes",
    "FP8 weights are used for computation, not only for storage.",
    source="https://docs.vllm.ai/en/stable/features/quantization/fp8.html (W8A16 through Marlin below 8.9)",
    level=Severity.INFO,
)
def check_fp8_compute_supported(engines: Iterable[EngineWithGpu]) -> Iterator[Violation]:
    for candidate in engines:
        gpu = candidate.gpu
        if candidate.engine.quantization is Quantization.FP8 and gpu and not gpu.supports_fp8:
            yield Violation(
                candidate.location.locate_setting("quantization"),
                f"{candidate.title}: {gpu.name} stores FP8 weights of {candidate.engine.model.name} but computes in "
                "bfloat16, with half the memory and the same speed",
                "expect more memory for the KV cache, not more throughput",
            )


@deployment_check(
    "replicas-carry-load",
    "All replicas of a service together, and each host of a fleet, support the configured sessions.",
    source="voice_blueprint/engines/sizing: ceilings of memory, and for text to speech arXiv 2603.25551",
)
def check_replicas_support_load(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws_section.asr if deployment.aws_section else ()):
        try:
            engine = select_fleet_engine(fleet)
        except DoesNotFitError:
            continue  # reported by another check
        if engine and fleet.vllm and engine.sessions < fleet.vllm.load.sessions:
            yield Violation(
                ("aws", "asr", index, "vllm", "load"),
                f"{fleet.name}: one host is configured for {fleet.vllm.load.sessions:,} sessions, but vLLM on "
                f"{engine.tensor_parallel} x {engine.gpu} of {fleet.instance_type} supports {engine.sessions:,} "
                f"({engine.arithmetic})",
                f"set vllm.load.sessions to at most {engine.sessions}, and hosts.max to what the load needs"
                if engine.sessions
                else "shorten session_tokens, or use an instance type with more or larger GPUs",
            )
    if azure := deployment.azure_section:
        yield from _check_service_capacity(azure)


def _check_service_capacity(azure: Azure) -> Iterator[Violation]:
    for index, service in enumerate(azure.services):
        try:
            sizing = size_service(azure, service)
        except (DoesNotFitError, LookupError):
            continue
        if (missing := sizing.asked - sizing.sessions) > 0:
            advice = build_scale_out_remedy(azure, service.name, math.ceil(missing / sizing.pools[0].engine.sessions))
            yield Violation(
                ("azure", "services", index, "replicas"),
                f"{service.name}: {sizing.summary}",
                f"{advice}, or lower the number of sessions",
            )


@deployment_check(
    "host-memory-holds-engine",
    "A host of a vLLM fleet has memory for the engine's processes.",
    source="voice_blueprint/engines/sizing/host.py: the memory of a vLLM process per GPU is assumed",
    level=Severity.WARNING,
)
def check_host_memory_holds_engine(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws_section.asr if deployment.aws_section else ()):
        try:
            engine = select_fleet_engine(fleet)
        except DoesNotFitError:
            continue
        row = catalog.instance_types()[fleet.instance_type]
        need_gib = sum(calculate_pod_memory_by_purpose(engine.tensor_parallel).values()) if engine else 0
        if engine and need_gib > row.memory_gib:
            yield Violation(
                ("aws", "asr", index, "instance_type"),
                f"{fleet.name}: vLLM on {engine.tensor_parallel} GPU(s) is assumed to use {need_gib:g} GiB of host "
                f"memory, but {row.name} has {row.memory_gib:g} GiB",
                "use a larger size of the family, or measure a host with `voice calibrate` before callers depend on it",
            )


@deployment_check(
    "whisper-model-format",
    "A fleet with the Whisper engine uses a model in a format that its hosts can load.",
    source="https://github.com/SYSTRAN/faster-whisper (CTranslate2 models), and images/asr-neuron (OpenAI's)",
)
def check_whisper_model_format(deployment: Deployment) -> Iterator[Violation]:
    cards = {card.repository: card for card in catalog.models().values()}
    for index, fleet in enumerate(deployment.aws_section.asr if deployment.aws_section else ()):
        if fleet.model is None:
            continue
        compute_kind, card = catalog.instance_types()[fleet.instance_type].compute_kind, cards.get(fleet.model)
        neuron, is_converted = compute_kind == "neuron", "faster-whisper" in fleet.model.lower()
        problem = ""
        if card and not (neuron and card.architecture is ModelArchitecture.ENCODER_DECODER):
            problem = f"it is a {card.task} model for {card.served_by}"
        elif neuron and is_converted:
            problem = "it is in CTranslate2's format, but Neuron compiles models in OpenAI's format"
        elif not neuron and not is_converted and fleet.model.lower().startswith("openai/whisper"):
            problem = (
                f"it is in OpenAI's format, but hosts with a {compute_kind.upper()} load models in CTranslate2's format"
            )
        if problem:
            yield Violation(
                ("aws", "asr", index, "model"),
                f"{fleet.name} runs the Whisper engine on {fleet.instance_type}, which cannot load {fleet.model}: "
                f"{problem}",
                f"omit model to use {DEFAULT_WHISPER_MODEL_BY_KIND[compute_kind]}, or set engine: vllm with a model "
                f"of the catalogue",
            )


def _supports_model(engine: Engine, card: ModelCard) -> bool:
    return card.task in engine.tasks and card.served_by == engine.kind
