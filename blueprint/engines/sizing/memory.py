"""What fits into GPU memory: weights, KV cache, and the sessions between them.

``sessions = TP x (utilization x M - W / TP - A) / bytes of one session``, with M the memory of one GPU, W the weights
and A the reserve for activations. All results are ceilings of memory, not of latency: none was measured on a GPU.
"""

from dataclasses import dataclass

from blueprint.catalog.inference import Gpu, ModelCard
from blueprint.file.model.serving import KvCacheType, Quantization

GIB = 2**30

BF16_BYTES = 2
FP8_BYTES = 1

GPU_MEMORY_UTILIZATION = 0.92
"""vLLM 0.33's own default of ``--gpu-memory-utilization`` (engine/arg_utils.py)."""

ACTIVATION_RESERVE_GIB = 4.0
"""Activations, CUDA graphs and NCCL buffers of one GPU. ASSUMED, not measured: vLLM profiles the real figure at start
and logs it; it grows with ``max_num_batched_tokens`` and is smaller for small models."""


def element_bytes(kv_cache_type: KvCacheType) -> int:
    return FP8_BYTES if kv_cache_type is KvCacheType.FP8 else BF16_BYTES


def kv_bytes_per_token(model: ModelCard, kv_cache_type: KvCacheType = KvCacheType.AUTO) -> int:
    """Bytes of one token in the KV cache, over all GPUs: 2 (K and V) x layers x KV heads x head size x element."""
    return 2 * model.layers * model.kv_heads * model.head_dim * element_bytes(kv_cache_type)


def cross_attention_bytes(model: ModelCard, kv_cache_type: KvCacheType = KvCacheType.AUTO) -> int:
    """Bytes that one sequence keeps of its encoder's output, whatever its length; 0 without cross-attention."""
    return model.cross_attention_tokens * kv_bytes_per_token(model, kv_cache_type)


def session_bytes(model: ModelCard, tokens: int, kv_cache_type: KvCacheType = KvCacheType.AUTO) -> int:
    """Bytes that one session of ``tokens`` tokens keeps in the KV cache, over all GPUs.

    A model with a sliding window keeps the window only. A streaming encoder's state is added; it is estimated from the
    model's configuration.
    """
    kept = min(tokens, model.sliding_window) if model.sliding_window else tokens
    encoder = model.encoder_state_bytes * element_bytes(kv_cache_type) // BF16_BYTES
    return kept * kv_bytes_per_token(model, kv_cache_type) + cross_attention_bytes(model, kv_cache_type) + encoder


def weights_gib(model: ModelCard, quantization: Quantization = Quantization.NONE) -> float:
    """Weights over all GPUs, GiB.

    FP8 halves the linear layers; embeddings and output head stay bfloat16. Scales (a few megabytes) are left out.
    """
    if quantization is Quantization.NONE:
        return model.weights_gib
    return (model.weights_gib - model.bf16_only_gib) * FP8_BYTES / BF16_BYTES + model.bf16_only_gib


def replication(model: ModelCard, tensor_parallel: int) -> int:
    """How often every KV head is kept: once, until there are more GPUs than KV heads."""
    return max(1, tensor_parallel // model.kv_heads)


@dataclass(frozen=True)
class KvMemory:
    """GPU memory that is left for the KV cache of one engine.

    Attributes:
        gpu: The GPU model.
        tensor_parallel: GPUs of the engine.
        weights_gib: Weights over all GPUs.
        replication: Copies of every KV head.
        reserve_gib: Reserve of one GPU for activations.
        utilization: Share of a GPU's memory that the engine may take.
    """

    gpu: Gpu
    tensor_parallel: int
    weights_gib: float
    replication: int = 1
    reserve_gib: float = ACTIVATION_RESERVE_GIB
    utilization: float = GPU_MEMORY_UTILIZATION

    @property
    def per_gpu_gib(self) -> float:
        """Left on one GPU; negative when the weights do not fit."""
        budget = self.utilization * self.gpu.memory_gib
        return budget - self.weights_gib / self.tensor_parallel - self.reserve_gib

    @property
    def bytes(self) -> int:
        """Left over all GPUs, bytes of distinct keys and values; 0 when the weights do not fit."""
        return int(max(0.0, self.per_gpu_gib) * self.tensor_parallel * GIB / self.replication)

    def arithmetic(self) -> str:
        """The sum, for people."""
        tp, share = self.tensor_parallel, f"{self.utilization:g} x {self.gpu.memory_gib:g} GiB of {self.gpu.name}"
        shards = f" / TP {tp}" if tp > 1 else ""
        return (
            f"{tp} x ({share} - {self.weights_gib:.1f} GiB weights{shards} - {self.reserve_gib:g} GiB activations)"
            f" = {self.per_gpu_gib * tp:.1f} GiB for the KV cache"
        )


def kv_memory(
    model: ModelCard, gpu: Gpu, *, tensor_parallel: int = 1, quantization: Quantization = Quantization.NONE
) -> KvMemory:
    """Return what an engine has for its KV cache."""
    return KvMemory(gpu, tensor_parallel, weights_gib(model, quantization), replication(model, tensor_parallel))
