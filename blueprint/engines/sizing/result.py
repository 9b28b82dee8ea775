"""What sizing answers: the numbers that an engine is started with, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from blueprint.file.model.serving import KvCacheType, Profile, Quantization


class Limit(StrEnum):
    """What keeps an engine from carrying more sessions."""

    KV_MEMORY = "KV memory"
    """The KV cache in GPU memory is full."""
    MAX_NUM_SEQS = "batch size"
    """The engine's limit of sequences in a batch."""
    COMPUTE = "arithmetic"
    """Live audio comes faster than the GPU computes."""
    BANDWIDTH = "memory bandwidth"
    """Every step reads what all calls hold, and has to end before the next token is due."""
    THROUGHPUT = "throughput"
    """GPU time: the published throughput of the model."""


@dataclass(frozen=True)
class EngineSizing:
    """One engine: one model on ``tensor_parallel`` GPUs.

    Attributes:
        model: Name of the model in the catalogue.
        gpu: Name of the GPU in the catalogue.
        tensor_parallel: GPUs that share every layer.
        profile: ``baseline`` leaves every knob that is ``None`` below at the engine's default.
        gpu_memory_utilization: Share of GPU memory that the engine may take.
        max_model_len: Longest context, tokens.
        kv_cache_tokens: Tokens that fit the KV cache of the engine.
        max_num_seqs: Sequences in one batch; ``None`` is the engine's default.
        max_num_batched_tokens: Tokens in one scheduler step; ``None`` is the engine's default.
        block_size: Tokens in one block of the KV cache; ``None`` is the attention backend's own choice.
        cudagraph_capture_sizes: Batch sizes that CUDA graphs are captured for; empty is the engine's default.
        max_queued_requests: Requests in flight, waiting *and* running, before new ones are refused with 503;
            ``None`` is no limit. The name is vLLM's (``max_num_queued_reqs``), and so is what it counts.
        sessions: Sessions of the asked length that the engine carries.
        sessions_at_full_context: The same when every session has ``max_model_len`` tokens.
        limit: What binds ``sessions``.
        reasons: For each knob that is set, why it has its value; keys are the attribute names above.
        arithmetic: How ``kv_cache_tokens`` and ``sessions`` came about, on one line.
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
    limit: Limit
    reasons: Mapping[str, str] = field(default_factory=dict)
    arithmetic: str = ""


class DoesNotFitError(ValueError):
    """No engine of the asked shape can serve the model; the message holds the arithmetic and a remedy."""

    def __init__(self, arithmetic: str, remedy: str) -> None:
        super().__init__(f"{arithmetic}; {remedy}")
        self.arithmetic = arithmetic
        self.remedy = remedy
