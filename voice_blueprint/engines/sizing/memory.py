"""GPU memory: weights, KV cache, and sessions.

``sessions = TP x (utilization x M - W / TP - A) / bytes of one session``, where M is the memory of one GPU, W the
weights and A the reserve for activations. All results are upper limits by memory, not by latency; none was measured on
a GPU.
"""

from dataclasses import dataclass

from voice_blueprint.catalog.inference import Gpu, ModelCard
from voice_blueprint.file.model.serving import KvCacheType, Quantization

BYTES_PER_GIB = 2**30

BF16_BYTES = 2
FP8_BYTES = 1

GPU_MEMORY_UTILIZATION = 0.92
"""vLLM 0.33's own default for ``--gpu-memory-utilization`` (engine/arg_utils.py)."""

ACTIVATION_RESERVE_GIB = 4.0
"""Reserve for activations, CUDA graphs and NCCL buffers of one GPU. ASSUMED, not measured: vLLM profiles the actual
figure at start and logs it. The figure grows with ``max_num_batched_tokens`` and is smaller for small models."""


def get_element_bytes(kv_cache_type: KvCacheType) -> int:
    return FP8_BYTES if kv_cache_type is KvCacheType.FP8 else BF16_BYTES


def calculate_kv_bytes_per_token(model: ModelCard, kv_cache_type: KvCacheType = KvCacheType.AUTO) -> int:
    """Return the bytes that a token occupies in the KV cache, over all GPUs.

    The number is 2 (K and V) x layers x KV heads x head size x element size.
    """
    return 2 * model.layers * model.kv_heads * model.head_dim * get_element_bytes(kv_cache_type)


def calculate_cross_attention_bytes(model: ModelCard, kv_cache_type: KvCacheType = KvCacheType.AUTO) -> int:
    """Return the bytes of a sequence's encoder output, regardless of its length; 0 without cross-attention."""
    return model.cross_attention_tokens * calculate_kv_bytes_per_token(model, kv_cache_type)


def calculate_session_bytes(model: ModelCard, tokens: int, kv_cache_type: KvCacheType = KvCacheType.AUTO) -> int:
    """Return the size of a session with ``tokens`` tokens in the KV cache, over all GPUs, bytes.

    With a sliding window, only the window is kept. The state of a streaming encoder, which is estimated from the
    model's configuration, is added.
    """
    cached_tokens = min(tokens, model.sliding_window) if model.sliding_window else tokens
    encoder = model.encoder_state_bytes * get_element_bytes(kv_cache_type) // BF16_BYTES
    return (
        cached_tokens * calculate_kv_bytes_per_token(model, kv_cache_type)
        + calculate_cross_attention_bytes(model, kv_cache_type)
        + encoder
    )


def calculate_weights_gib(model: ModelCard, quantization: Quantization = Quantization.NONE) -> float:
    """Return the size of the weights over all GPUs, GiB.

    FP8 halves the linear layers; embeddings and output head remain in bfloat16. Scales (a few megabytes) are ignored.
    """
    if quantization is Quantization.NONE:
        return model.weights_gib
    return (model.weights_gib - model.bf16_only_gib) * FP8_BYTES / BF16_BYTES + model.bf16_only_gib


def count_kv_head_copies(model: ModelCard, tensor_parallel: int) -> int:
    """Return the number of copies of each KV head: one, unless there are more GPUs than KV heads."""
    return max(1, tensor_parallel // model.kv_heads)


@dataclass(frozen=True)
class KvMemory:
    """GPU memory that remains for the KV cache of one engine.

    Attributes:
        gpu: The GPU model.
        tensor_parallel: Number of GPUs of the engine.
        weights_gib: Weights over all GPUs.
        replication: Number of copies of each KV head.
        reserve_gib: Reserve per GPU for activations.
        utilization: Maximum share of a GPU's memory.
    """

    gpu: Gpu
    tensor_parallel: int
    weights_gib: float
    replication: int = 1
    reserve_gib: float = ACTIVATION_RESERVE_GIB
    utilization: float = GPU_MEMORY_UTILIZATION

    @property
    def per_gpu_gib(self) -> float:
        """Remaining memory of one GPU; negative if the weights do not fit."""
        budget = self.utilization * self.gpu.memory_gib
        return budget - self.weights_gib / self.tensor_parallel - self.reserve_gib

    @property
    def total_bytes(self) -> int:
        """Remaining memory over all GPUs, bytes of distinct keys and values; 0 if the weights do not fit."""
        return int(max(0.0, self.per_gpu_gib) * self.tensor_parallel * BYTES_PER_GIB / self.replication)

    def format_arithmetic(self) -> str:
        """Return the calculation in readable form."""
        tp, share = self.tensor_parallel, f"{self.utilization:g} x {self.gpu.memory_gib:g} GiB of {self.gpu.name}"
        shards = f" / TP {tp}" if tp > 1 else ""
        return (
            f"{tp} x ({share} - {self.weights_gib:.1f} GiB weights{shards} - {self.reserve_gib:g} GiB activations)"
            f" = {self.per_gpu_gib * tp:.1f} GiB for the KV cache"
        )


def calculate_kv_memory(
    model: ModelCard, gpu: Gpu, *, tensor_parallel: int = 1, quantization: Quantization = Quantization.NONE
) -> KvMemory:
    """Return the memory for an engine's KV cache."""
    return KvMemory(
        gpu, tensor_parallel, calculate_weights_gib(model, quantization), count_kv_head_copies(model, tensor_parallel)
    )
