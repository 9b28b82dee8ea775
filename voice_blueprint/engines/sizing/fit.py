"""Checks that an engine can serve a model. Every error contains its arithmetic."""

from voice_blueprint.catalog.inference import Gpu, ModelArchitecture, ModelCard
from voice_blueprint.engines.sizing.live import validate_call_duration
from voice_blueprint.engines.sizing.memory import KvMemory, calculate_kv_bytes_per_token, calculate_session_bytes
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.serving import KvCacheType, Load

LMCACHE_CHUNK_TOKENS = 256
"""Default size of an LMCache chunk, tokens. LMCache does not store shorter prompts."""


def validate_engine_configuration(model: ModelCard, gpu: Gpu, kv_cache_type: KvCacheType, tensor_parallel: int) -> None:
    """Reject a configuration that the engine itself would reject.

    Raises:
        DoesNotFitError: The model requires another engine, its attention heads are not divisible, or the GPU lacks FP8.
    """
    if model.served_by != "vllm":
        raise DoesNotFitError(f"{model.name} is served by {model.served_by}, not by vllm", "use a service of kind tts")
    heads, kv_heads = model.attention_heads, model.kv_heads
    if not can_split_heads(heads, kv_heads, tensor_parallel):
        raise DoesNotFitError(
            f"{heads} attention heads and {kv_heads} KV heads of {model.name} do not divide over TP {tensor_parallel}",
            f"choose a TP that divides {heads}",
        )
    if kv_cache_type is KvCacheType.FP8 and not gpu.supports_fp8:
        major, minor = gpu.compute_capability
        raise DoesNotFitError(
            f"an FP8 KV cache needs compute capability 8.9 with vLLM's FlashAttention and Triton; {gpu.name} has "
            f"{major}.{minor}",
            "leave kv_cache_type at auto; FlashInfer lists FP8 there, but no successful run is known",
        )


def can_split_heads(heads: int, kv_heads: int, tensor_parallel: int) -> bool:
    """Return True if the GPUs can share the attention heads evenly. KV heads are divided or replicated."""
    return not (heads % tensor_parallel or (kv_heads % tensor_parallel and tensor_parallel % kv_heads))


def validate_load(model: ModelCard, load: Load) -> None:
    """Reject a load that the model does not support.

    Raises:
        DoesNotFitError: The context is longer than the model's or shorter than a session, or a session is shorter than
            its call.
    """
    if load.context_tokens > model.max_context_tokens:
        raise DoesNotFitError(
            f"context_tokens {load.context_tokens} is more than the {model.max_context_tokens} that {model.name} has",
            f"request at most {model.max_context_tokens}",
        )
    if load.session_tokens > load.context_tokens:
        raise DoesNotFitError(
            f"session_tokens {load.session_tokens} is more than context_tokens {load.context_tokens}",
            "set context_tokens to at least session_tokens",
        )
    validate_call_duration(model, load)


def validate_cached_prompts(load: Load) -> None:
    """Reject a load whose prompts LMCache does not store.

    Raises:
        DoesNotFitError: A session is shorter than a chunk.
    """
    if load.session_tokens < LMCACHE_CHUNK_TOKENS:
        raise DoesNotFitError(
            f"session_tokens {load.session_tokens} is less than the {LMCACHE_CHUNK_TOKENS} tokens of an LMCache "
            f"chunk, so no "
            "session would be cached",
            f"set session_tokens to at least {LMCACHE_CHUNK_TOKENS}, or use an aggregated service without lmcache",
        )


def validate_gpu_memory(model: ModelCard, memory: KvMemory, kv_cache_type: KvCacheType, load: Load) -> None:
    """Reject an engine whose weights or longest session exceed the memory of its GPUs.

    Raises:
        DoesNotFitError: The weights or the longest session do not fit.
    """
    remedy = "use more or larger GPUs for an engine, or FP8 weights"
    if memory.per_gpu_gib <= 0:
        raise DoesNotFitError(f"{model.name} does not fit: {memory.format_arithmetic()}", remedy)
    longest_session_bytes = calculate_session_bytes(model, load.context_tokens, kv_cache_type)
    if longest_session_bytes > memory.total_bytes:
        per_token = calculate_kv_bytes_per_token(model, kv_cache_type)
        raise DoesNotFitError(
            f"one session of {load.context_tokens} tokens requires {longest_session_bytes:,} bytes, more than the KV "
            f"cache's {memory.total_bytes:,} ({memory.total_bytes // per_token:,} tokens of {per_token:,} bytes): "
            f"{memory.format_arithmetic()}",
            f"{remedy}; or a shorter context_tokens",
        )


def validate_kv_reuse(model: ModelCard) -> None:
    """Reject prefix caching and KV transfer for models that do not support them.

    Raises:
        DoesNotFitError: The model has cross-attention, for which vLLM's scheduler supports no KV connector.
    """
    if model.architecture is ModelArchitecture.ENCODER_DECODER:
        raise DoesNotFitError(
            f"{model.name} has cross-attention: vLLM allows it neither prefix caching nor a KV connector "
            "(v1/core/sched/scheduler.py)",
            "no lmcache and no prefill-decode cell for it; an aggregated service without lmcache",
        )
