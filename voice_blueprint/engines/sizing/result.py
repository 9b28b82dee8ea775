"""Result of sizing: the settings of an engine, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from voice_blueprint.file.model.serving import KvCacheType, Profile, Quantization


class LimitingFactor(StrEnum):
    """Factor that limits an engine's sessions."""

    KV_MEMORY = "KV memory"
    """The KV cache in GPU memory is full."""
    MAX_NUM_SEQS = "batch size"
    """The engine's limit on sequences in a batch."""
    COMPUTE = "arithmetic"
    """Streaming audio arrives faster than the GPU computes."""
    BANDWIDTH = "memory bandwidth"
    """Every step reads the contexts of all calls, and must end before the next token is due."""
    THROUGHPUT = "throughput"
    """GPU time: the published throughput of the model."""


@dataclass(frozen=True)
class EngineSizing:
    """An engine: one model on ``tensor_parallel`` GPUs.

    Attributes:
        model: Name of the model in the catalogue.
        gpu: Name of the GPU in the catalogue.
        tensor_parallel: Number of GPUs that share each layer.
        profile: ``baseline`` keeps the engine's default for every setting that is ``None`` below.
        gpu_memory_utilization: Maximum share of GPU memory.
        max_model_len: Maximum context length, tokens.
        kv_cache_tokens: Capacity of the engine's KV cache, tokens.
        max_num_seqs: Maximum sequences per batch; ``None`` for the engine's default.
        max_num_batched_tokens: Maximum tokens per scheduler step; ``None`` for the engine's default.
        block_size: Tokens per block of the KV cache; ``None`` for the attention backend's choice.
        cudagraph_capture_sizes: Batch sizes for which CUDA graphs are captured; empty for the engine's default.
        max_queued_requests: Maximum requests in flight, waiting *and* running; further requests are rejected with 503.
            ``None`` for no limit. Name and meaning are those of vLLM's ``max_num_queued_reqs``.
        sessions: Sessions of the requested length.
        sessions_at_full_context: Sessions if each has ``max_model_len`` tokens.
        limit: Limiting factor of ``sessions``.
        reasons: Reason for each setting; keys are the attribute names above.
        arithmetic: Calculation of ``kv_cache_tokens`` and ``sessions``, on one line.
    """

    model: str
    gpu: str
    tensor_parallel: int
    profile: Profile
    quantization: Quantization
    kv_cache_type: KvCacheType
    gpu_memory_utilization: float
    max_model_len: int
    kv_cache_tokens: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    block_size: int | None
    cudagraph_capture_sizes: tuple[int, ...]
    max_queued_requests: int | None
    sessions: int
    sessions_at_full_context: float
    limit: LimitingFactor
    reasons: Mapping[str, str] = field(default_factory=dict)
    arithmetic: str = ""


class DoesNotFitError(ValueError):
    """No engine of this shape can serve the model. The message contains the arithmetic and a remedy."""

    def __init__(self, arithmetic: str, remedy: str) -> None:
        super().__init__(f"{arithmetic}; {remedy}")
        self.arithmetic = arithmetic
        self.remedy = remedy
