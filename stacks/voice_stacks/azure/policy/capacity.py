"""Rules on values that must match between engines, caches and scaling."""

import json
from collections.abc import Iterator

from voice_blueprint.azure.contract import SERVICE_LABEL
from voice_blueprint.azure.metrics import CONTAINER_CPU_METRIC, AgentMetric, EngineMetric, SpeechMetric
from voice_blueprint.catalog import ModelCard
from voice_blueprint.catalog.inference import ModelTask
from voice_blueprint.contract.environment import CONVERSATIONS, MAX_CONNECTIONS
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.engines.launch.audio import calculate_audio_limits
from voice_blueprint.engines.sizing.defaults import round_up_to_graph_size
from voice_blueprint.engines.sizing.memory import (
    KvMemory,
    calculate_session_bytes,
    calculate_weights_gib,
    count_kv_head_copies,
)
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.engines.sizing.service import size_service
from voice_blueprint.engines.sizing.tts import TtsSizing
from voice_blueprint.file.model.azure import Azure, AzureService
from voice_blueprint.file.model.serving import KvCacheType, Quantization
from voice_stacks.azure.policy.cluster import iter_pods_with_pools
from voice_stacks.azure.policy.engines import Engine, list_engines
from voice_stacks.azure.policy.limits import read_deploy_config
from voice_stacks.azure.policy.pods import Container, PodTemplate, list_pods
from voice_stacks.azure.policy.promql import find_selectors
from voice_stacks.azure.policy.quantities import parse_quantity_or_zero
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.telemetry import parse_queries

AUDIO_WINDOW_S = 30
"""Voxtral pads audio to whole windows of this length (``AudioConfig.chunk_length_s``, mistral_common 1.8,
``tokens/tokenizers/audio.py``; arXiv 2507.13264)."""
DEFAULT_BLOCK_TOKENS = 16
"""vLLM's default block size of KV cache (``vllm/config/cache.py``); LMCache's chunks consist of whole blocks
(``lmcache/v1/platform/torch_ops/mp_mem_kernels.py`` of 0.5.6 rejects others)."""
CHUNK_SIZE_FLAG = "--chunk-size"


def find_service(stack: Stack, pod: PodTemplate) -> AzureService | None:
    """Return the service in the deployment file that a pod belongs to, or ``None``."""
    azure = stack.azure
    name = pod.labels.get(SERVICE_LABEL)
    return next((each for each in azure.services if each.name == name), None) if azure else None


@stack_rule(
    "batches-fit-kv-cache",
    "An engine must not run more sequences than its KV cache fits sessions, and must admit as many requests.",
    remedy="lower --max-num-seqs (max_num_seqs of a stage), or raise the limit that the message names",
    source="voice_blueprint/engines/sizing/memory.py; https://docs.vllm.ai/en/stable/configuration/optimization",
)
def check_batches_fit_kv_cache(stack: Stack) -> Iterator[Violation]:
    gpus = {pod.urn: pool.gpu for pod, pool in iter_pods_with_pools(stack)}
    azure = stack.azure
    for engine in list_engines(stack):
        service, gpu, model = find_service(stack, engine.pod), gpus.get(engine.pod.urn), engine.model
        if azure and service and engine.is_omni:
            yield from _find_stage_violations(azure, service, stack, engine)
        desired = engine.parse_int_flag("--max-num-seqs", 0)
        load = getattr(service, "load", None)
        if gpu and model and load and not engine.is_omni:
            kind = KvCacheType.FP8 if engine.flags.get("--kv-cache-dtype", "").startswith("fp8") else KvCacheType.AUTO
            memory = KvMemory(
                gpu, engine.tensor_parallel_size, _calculate_engine_weights_gib(engine, model),
                count_kv_head_copies(model, engine.tensor_parallel_size),
                utilization=engine.memory_fraction,
            )  # fmt: skip
            fits = memory.total_bytes // calculate_session_bytes(model, load.session_tokens, kind)
            if desired > round_up_to_graph_size(max(1, fits)):
                yield Violation(
                    engine.pod.urn,
                    f"{engine.name} runs {desired} sequences; its KV cache fits {fits} sessions of "
                    f"{load.session_tokens} tokens",
                )
        in_flight = engine.parse_int_flag("--max-num-queued-reqs", desired)
        if in_flight < desired:
            yield Violation(
                engine.pod.urn, f"{engine.name} runs {desired} sequences but admits only {in_flight} requests"
            )
        if (graphs := _parse_cuda_graph_sizes(engine)) and max(graphs) < desired:
            yield Violation(
                engine.pod.urn, f"{engine.name} runs {desired} sequences; its largest CUDA graph has {max(graphs)}"
            )


def _calculate_engine_weights_gib(engine: Engine, model: ModelCard) -> float:
    is_fp8 = engine.flags.get("--quantization") == "fp8" or engine.repository == model.fp8_repository
    return calculate_weights_gib(model, Quantization.FP8 if is_fp8 else Quantization.NONE)


def _parse_cuda_graph_sizes(engine: Engine) -> list[int]:
    try:
        return list(json.loads(engine.flags.get("--compilation-config") or "{}").get("cudagraph_capture_sizes", ()))
    except (json.JSONDecodeError, AttributeError):
        return []


def _find_stage_violations(azure: Azure, service: AzureService, stack: Stack, engine: Engine) -> Iterator[Violation]:
    try:
        engine_sizings = [pool.engine for pool in size_service(azure, service).pools if pool.pool == engine.pod.pool]
    except DoesNotFitError:
        return
    for stage in read_deploy_config(stack, engine)["stages"]:
        desired = stage["max_num_seqs"].number or 0
        for each in engine_sizings:
            if isinstance(each, TtsSizing) and desired > each.max_num_seqs:
                yield Violation(
                    engine.pod.urn,
                    f"stage {stage['stage_id'].text} of {engine.name} runs {desired:g} sequences; "
                    f"{each.max_num_seqs} were measured",
                )


@stack_rule(
    "chunks-fit-prompts",
    "LMCache's chunks must be a multiple of the block size, and no larger than the shortest prompt.",
    remedy=f"lower {CHUNK_SIZE_FLAG} to LMCache's default of 256",
    source="https://docs.lmcache.ai/getting_started/faq.html; voice_blueprint/engines/launch/lmcache.py",
)
def check_chunks_fit_prompts(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        shortest = _calculate_min_prompt_tokens(stack, engine)
        block = engine.parse_int_flag("--block-size", DEFAULT_BLOCK_TOKENS)
        for container in engine.pod.running_containers:
            text = container.get_option(CHUNK_SIZE_FLAG)
            label = f"{engine.pod.name}/{container.name}"
            if text.isdecimal() and shortest and int(text) > shortest:
                yield Violation(
                    engine.pod.urn,
                    f"{label} stores chunks of {text} tokens; the shortest prompt has {shortest:g} tokens and is "
                    "not cached",
                )
            if text.isdecimal() and (not int(text) or int(text) % block):
                yield Violation(
                    engine.pod.urn,
                    f"{label} stores chunks of {text} tokens, which is not a multiple of the block size {block}",
                )


def _calculate_min_prompt_tokens(stack: Stack, engine: Engine) -> float:
    load, model = getattr(find_service(stack, engine.pod), "load", None), engine.model
    results = [float(load.session_tokens)] if load else []
    if model and model.task is ModelTask.AUDIO_CHAT and model.audio_tokens_per_s:
        results.append(model.audio_tokens_per_s * AUDIO_WINDOW_S)
    return min(results, default=0)


@rule(
    "engines-decode-their-audio",
    "An engine's limits on audio files, bodies, length and decoded size must match its context length.",
    remedy="set the variables of blueprint.engines.launch.audio",
    source="voice_blueprint/engines/published/tables/vllm.json, which has the defaults of those variables",
)
def check_audio_limits_match_context(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        model = engine.model
        limits = (
            calculate_audio_limits(model, engine.parse_int_flag("--max-model-len", model.max_context_tokens))
            if model
            else None
        )
        for name, needed in (limits.build_environment() if limits else {}).items():
            configured = engine.container.environment.get(name)
            value = configured if configured is not None else str(engine.published_table.environment.get(name))
            if value.isdecimal() and int(value) < int(needed):
                reason = "configured" if configured is not None else f"the default of {engine.published_table.release}"
                yield Violation(
                    engine.pod.urn, f"{engine.name}: {name} is {value} ({reason}); its context length requires {needed}"
                )


@stack_rule(
    "scaling-thresholds-are-reachable",
    "The target value per replica must be above zero and below the maximum that a replica can reach.",
    remedy="use the threshold of voice_blueprint.observability.azure.scaling",
    source="https://keda.sh/docs/latest/scalers/prometheus",
)
def check_thresholds_are_reachable(stack: Stack) -> Iterator[Violation]:
    by_name = {(pod.namespace, pod.name): pod for pod in list_pods(stack)}
    for query, tree in parse_queries(stack):
        scaled = query.resource.props
        target = scaled.get("spec", "scaleTargetRef", "name").text
        pod = by_name.get((scaled.get("metadata", "namespace").text, target))
        if isinstance(tree, str) or pod is None:
            continue
        trigger = next(t for t in scaled.get("spec", "triggers") if t.get("metadata", "query").text == query.text)
        threshold = float(parse_quantity_or_zero(trigger.get("metadata", "threshold").text))
        max_value = max(
            (_calculate_max_metric_value(stack, pod, each.name) for each in find_selectors(tree)), default=0.0
        )
        if threshold <= 0 or (max_value and threshold >= max_value):
            yield Violation(
                query.resource.urn,
                f"{query.location} has a target of {threshold:g} per replica; one reaches at most {max_value:g}",
            )


def _calculate_max_metric_value(stack: Stack, pod: PodTemplate, metric: str) -> float:
    """Return the maximum value of a metric for one pod, or 0 if the maximum is unknown."""
    pod_engines = [engine for engine in list_engines(stack) if engine.pod.urn == pod.urn]
    match metric:
        case EngineMetric.KV_USAGE:
            return 1.0
        case EngineMetric.RUNNING | EngineMetric.WAITING:
            return float(
                sum(
                    e.parse_int_flag("--max-num-queued-reqs", e.parse_int_flag("--max-num-seqs", 0))
                    for e in pod_engines
                )
            )
        case SpeechMetric.RUNNING | SpeechMetric.WAITING:
            return max(
                (s["max_num_seqs"].number or 0 for e in pod_engines for s in read_deploy_config(stack, e)["stages"]),
                default=0.0,
            )
        case AgentMetric.CONVERSATIONS:
            return _read_configured_number(pod, CONVERSATIONS.name)
        case name if name == METRICS["OpenSockets"].prometheus_name:
            return _read_configured_number(pod, MAX_CONNECTIONS.name)
        case name if name == METRICS["SlotsTaken"].prometheus_name:
            return 100.0
        case name if name == CONTAINER_CPU_METRIC:
            return _find_max_cpu_limit(pod.running_containers)
    return 0.0


def _read_configured_number(pod: PodTemplate, variable: str) -> float:
    values = [container.environment.get(variable, "") for container in pod.running_containers]
    return max((float(value) for value in values if value.isdecimal()), default=0.0)


def _find_max_cpu_limit(containers: list[Container]) -> float:
    return max((float(parse_quantity_or_zero(container.get_limit("cpu"))) for container in containers), default=0.0)
