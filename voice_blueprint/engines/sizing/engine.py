"""Sizing of a vLLM engine: its settings with their reasons, and its sessions."""

from dataclasses import dataclass

from voice_blueprint.catalog.inference import Gpu, ModelArchitecture, ModelCard, ModelTask
from voice_blueprint.engines.sizing.defaults import (
    MAX_CAPTURED_SEQS,
    SchedulerLimits,
    list_capture_sizes,
    round_up_to_graph_size,
    select_default_scheduler_limits,
)
from voice_blueprint.engines.sizing.fit import validate_engine_configuration, validate_gpu_memory, validate_load
from voice_blueprint.engines.sizing.live import calculate_max_calls_by_limit
from voice_blueprint.engines.sizing.memory import (
    GPU_MEMORY_UTILIZATION,
    calculate_kv_bytes_per_token,
    calculate_kv_memory,
    calculate_session_bytes,
)
from voice_blueprint.engines.sizing.result import EngineSizing, LimitingFactor
from voice_blueprint.file.model.serving import KvCacheType, Load, Profile, Quantization

STEP_TOKENS_FOR_ITL = 2048
"""Tokens per step that keep the time between tokens short, according to vLLM's optimization guide."""
STEP_TOKENS_FOR_TTFT = 8192
"""Tokens per step that keep the time to the first token short on Hopper and later, according to the same guide."""
STEP_TOKENS_FOR_THROUGHPUT = 16384
"""Tokens per step for throughput: values above 8192 improve it for small models on large GPUs, according to the same
guide."""
MAX_SMALL_MODEL_GIB = 20.0
"""Weights below which a model is treated as small: about 10 billion parameters in bfloat16. This is our choice, without
a source."""
MIN_LARGE_GPU_GIB = 120.0
"""Memory size from which a GPU is treated as large. This is our choice, without a source."""
MAX_STEP_TOKENS_BEFORE_HOPPER = 4096
"""Maximum step on an A100 or A10, so that a long prompt fits one step."""
HOPPER_COMPUTE_CAPABILITY = (9, 0)

MAX_QUEUE_FRACTION = 0.25
"""Queue depth as a share of the batch, since an additional replica is better than long waits. This is our choice, not
measured."""


@dataclass(frozen=True)
class _EngineLimits:
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    cudagraph_capture_sizes: tuple[int, ...]
    max_queued_requests: int | None
    reasons: dict[str, str]


def size_engine(
    model: ModelCard,
    gpu: Gpu,
    *,
    load: Load,
    tensor_parallel: int = 1,
    quantization: Quantization = Quantization.NONE,
    kv_cache_type: KvCacheType = KvCacheType.AUTO,
    profile: Profile = Profile.TUNED,
) -> EngineSizing:
    """Size an engine by memory, without regard to speed.

    Args:
        model: The served model.
        gpu: GPU model.
        load: Load. Only the length of sessions is used, since ``load.sessions`` applies to the service.
        tensor_parallel: Number of GPUs that share each layer.
        quantization: Data type of the weights.
        kv_cache_type: Data type of the KV cache.
        profile: ``BASELINE`` keeps the engine's defaults, ``TUNED`` sets them.

    Raises:
        DoesNotFitError: No engine of this shape can serve the model; the message contains the arithmetic.
    """
    validate_engine_configuration(model, gpu, kv_cache_type, tensor_parallel)
    validate_load(model, load)
    memory = calculate_kv_memory(model, gpu, tensor_parallel=tensor_parallel, quantization=quantization)
    validate_gpu_memory(model, memory, kv_cache_type, load)
    session_size = calculate_session_bytes(model, load.session_tokens, kv_cache_type)
    memory_sessions = memory.total_bytes // session_size
    bounds = {LimitingFactor.KV_MEMORY: memory_sessions} | calculate_max_calls_by_limit(
        model, gpu, tensor_parallel=tensor_parallel, weights_gib=memory.weights_gib, session_bytes=session_size
    )
    defaults = select_default_scheduler_limits(gpu)
    limits = (
        _BASELINE_LIMITS
        if profile is Profile.BASELINE
        else _tune_limits(model, gpu, load, min(bounds.values()), defaults)
    )
    max_batch = limits.max_num_seqs or defaults.max_num_seqs
    bounds[LimitingFactor.MAX_NUM_SEQS] = max_batch
    limit = min(bounds, key=lambda bound: bounds[bound])
    live = "".join(f", {count:,} by {bound}" for bound, count in bounds.items() if bound in _LIVE_LIMITS)
    return EngineSizing(
        model=model.name,
        gpu=gpu.name,
        tensor_parallel=tensor_parallel,
        profile=profile,
        quantization=quantization,
        kv_cache_type=kv_cache_type,
        gpu_memory_utilization=GPU_MEMORY_UTILIZATION,
        max_model_len=load.context_tokens,
        kv_cache_tokens=memory.total_bytes // calculate_kv_bytes_per_token(model, kv_cache_type),
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        block_size=None,
        cudagraph_capture_sizes=limits.cudagraph_capture_sizes,
        max_queued_requests=limits.max_queued_requests,
        sessions=bounds[limit],
        sessions_at_full_context=min(
            memory.total_bytes / calculate_session_bytes(model, load.context_tokens, kv_cache_type), float(max_batch)
        ),
        limit=limit,
        reasons={**_build_setting_reasons(gpu, quantization, tensor_parallel), **limits.reasons},
        arithmetic=f"{memory.format_arithmetic()}; {memory.total_bytes:,} bytes / {session_size:,} bytes of a session "
        f"of {load.session_tokens:,} tokens = {memory_sessions:,}{live}, at most {max_batch:,} in a batch",
    )


_LIVE_LIMITS = (LimitingFactor.COMPUTE, LimitingFactor.BANDWIDTH)
_BASELINE_LIMITS = _EngineLimits(None, None, (), None, {})


def _build_setting_reasons(gpu: Gpu, quantization: Quantization, tensor_parallel: int) -> dict[str, str]:
    reasons = {
        "gpu_memory_utilization": "vLLM's own default; the rest is for CUDA contexts and other processes on the GPU"
    }
    if quantization is Quantization.FP8:
        reasons["quantization"] = (
            "FP8 is arithmetic on this GPU, and halves the linear weights"
            if gpu.supports_fp8
            else f"memory only: {gpu.name} has no FP8 arithmetic, vLLM computes in bfloat16 from FP8 weights (Marlin)"
        )
    if tensor_parallel > 1:
        reasons["tensor_parallel"] = (
            f"weights are sharded across {tensor_parallel} GPUs, which leaves more for the KV cache"
        )
    return reasons


def _tune_limits(
    model: ModelCard, gpu: Gpu, load: Load, memory_sessions: int, defaults: SchedulerLimits
) -> _EngineLimits:
    seqs = round_up_to_graph_size(min(memory_sessions, MAX_CAPTURED_SEQS))
    tokens, token_reason = _select_step_tokens(model, gpu, load, seqs)
    max_queued = seqs + max(1, round(seqs * MAX_QUEUE_FRACTION))
    cap_note = (
        f", capped at the largest batch with a CUDA graph ({memory_sessions:,} would fit)"
        if memory_sessions > seqs
        else ""
    )
    return _EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        cudagraph_capture_sizes=list_capture_sizes(seqs),
        max_queued_requests=max_queued,
        reasons={
            "max_num_seqs": f"sessions that fit, rounded up to a graph size{cap_note}; vLLM's default here is "
            f"{defaults.max_num_seqs}",
            "max_num_batched_tokens": f"{token_reason}; vLLM's default here is {defaults.max_num_batched_tokens}",
            "cudagraph_capture_sizes": f"vLLM's list up to {seqs}: every decode batch has a graph, and no graph "
            "is captured in vain",
            "max_queued_requests": f"{seqs} running and {max_queued - seqs} waiting; beyond, 503 sends the caller "
            "to another replica",
        },
    )


def _select_step_tokens(model: ModelCard, gpu: Gpu, load: Load, seqs: int) -> tuple[int, str]:
    """Return ``max_num_batched_tokens`` and its reason."""
    if gpu.compute_capability >= HOPPER_COMPUTE_CAPABILITY:
        if model.weights_gib <= MAX_SMALL_MODEL_GIB and gpu.memory_gib >= MIN_LARGE_GPU_GIB:
            return STEP_TOKENS_FOR_THROUGHPUT, "throughput: a small model on a large GPU"
        return STEP_TOKENS_FOR_TTFT, "time to the first token: prefill in few steps"
    if model.architecture is ModelArchitecture.ENCODER_DECODER:
        return (
            STEP_TOKENS_FOR_ITL,
            f"holds the {model.cross_attention_tokens} encoder positions of one clip in one step",
        )
    desired = max(load.session_tokens if model.task is ModelTask.AUDIO_CHAT else 0, seqs, STEP_TOKENS_FOR_ITL)
    tokens = min(1 << (desired - 1).bit_length(), MAX_STEP_TOKENS_BEFORE_HOPPER)
    if tokens > STEP_TOKENS_FOR_ITL:
        step_text = "in one step" if tokens >= desired else "in few steps"
        return (
            tokens,
            f"a typical prompt of {load.session_tokens} tokens with its audio {step_text}, at some cost between tokens",
        )
    return tokens, "time between tokens: on GPUs before Hopper larger steps stall decoding"
