"""Whether an engine of some shape can serve a model at all; every refusal shows its arithmetic."""

from blueprint.catalog.inference import Architecture, Gpu, ModelCard
from blueprint.engines.sizing.live import check_call
from blueprint.engines.sizing.memory import KvMemory, kv_bytes_per_token, session_bytes
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.serving import KvCacheType, Load


def check_engine(model: ModelCard, gpu: Gpu, kv_cache_type: KvCacheType, tensor_parallel: int) -> None:
    """Refuse what the engine itself would refuse.

    Raises:
        DoesNotFitError: Another engine serves the model, its heads do not divide, or the GPU lacks FP8.
    """
    if model.served_by != "vllm":
        raise DoesNotFitError(f"{model.name} is served by {model.served_by}, not by vllm", "use a service of kind tts")
    heads, kv_heads = model.attention_heads, model.kv_heads
    if heads % tensor_parallel or (kv_heads % tensor_parallel and tensor_parallel % kv_heads):
        raise DoesNotFitError(
            f"{heads} attention heads and {kv_heads} KV heads of {model.name} do not divide over TP {tensor_parallel}",
            f"choose a TP that divides {heads}",
        )
    if kv_cache_type is KvCacheType.FP8 and not gpu.computes_fp8:
        major, minor = gpu.compute_capability
        raise DoesNotFitError(
            f"an FP8 KV cache needs compute capability 8.9 with vLLM's FlashAttention and Triton; {gpu.name} has "
            f"{major}.{minor}",
            "leave kv_cache_type at auto; FlashInfer lists FP8 there, but no run of it is known",
        )


def check_load(model: ModelCard, load: Load) -> None:
    """Refuse a load that the model cannot have.

    Raises:
        DoesNotFitError: The context is longer than the model's, or shorter than the sessions; or these than their call.
    """
    if load.context_tokens > model.max_context_tokens:
        raise DoesNotFitError(
            f"context_tokens {load.context_tokens} is more than the {model.max_context_tokens} that {model.name} has",
            f"ask for at most {model.max_context_tokens}",
        )
    if load.session_tokens > load.context_tokens:
        raise DoesNotFitError(
            f"session_tokens {load.session_tokens} is more than context_tokens {load.context_tokens}",
            "the longest context holds a typical session",
        )
    check_call(model, load)


def check_memory(model: ModelCard, memory: KvMemory, kv_cache_type: KvCacheType, load: Load) -> None:
    """Refuse an engine whose weights, or whose longest session, do not fit.

    Raises:
        DoesNotFitError: They do not.
    """
    remedy = "more GPUs per engine (tensor_parallel), a larger GPU, or FP8 weights"
    if memory.per_gpu_gib <= 0:
        raise DoesNotFitError(f"{model.name} does not fit: {memory.arithmetic()}", remedy)
    longest = session_bytes(model, load.context_tokens, kv_cache_type)
    if longest > memory.bytes:
        per_token = kv_bytes_per_token(model, kv_cache_type)
        raise DoesNotFitError(
            f"one session of {load.context_tokens} tokens takes {longest:,} bytes, more than the KV cache's "
            f"{memory.bytes:,} ({memory.bytes // per_token:,} tokens of {per_token:,} bytes): {memory.arithmetic()}",
            f"{remedy}; or a shorter context_tokens",
        )


def check_reuse(model: ModelCard) -> None:
    """Refuse prefix caching and KV transfer for models that cannot have them.

    Raises:
        DoesNotFitError: The model has cross-attention; vLLM's scheduler refuses a KV connector for it.
    """
    if model.architecture is Architecture.ENCODER_DECODER:
        raise DoesNotFitError(
            f"{model.name} has cross-attention: vLLM allows it neither prefix caching nor a KV connector "
            "(v1/core/sched/scheduler.py)",
            "no lmcache and no prefill-decode cell for it; an aggregated service without lmcache",
        )
