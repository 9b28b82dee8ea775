"""What inference is sized from: rows of ``gpus.yaml``, ``models.yaml`` and ``engines.yaml``."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from blueprint.base import Model


class Gpu(Model):
    """One GPU model."""

    name: str
    memory_gib: float = Field(gt=0)
    """What CUDA reports as total, GiB: the base of ``gpu_memory_utilization``, and less than the number on the box."""
    compute_capability: tuple[int, int]
    memory_gb_per_s: float = 0
    """Peak bandwidth of its memory, GB/s; 0 where nothing is sized by it."""
    bf16_tflops: float = 0
    """Peak of dense bfloat16 arithmetic, TFLOP/s; 0 as above."""
    nvlink_gb_per_s: float | None = None
    """Peak of all its NVLinks in one direction, GB/s; absent without NVLink."""
    source: str

    @property
    def computes_fp8(self) -> bool:
        """Whether FP8 is arithmetic here (Ada, Hopper and later) rather than a storage format."""
        return self.compute_capability >= (8, 9)


class Architecture(StrEnum):
    """How a model keeps what it has read."""

    DECODER_ONLY = "decoder-only"
    ENCODER_DECODER = "encoder-decoder"
    """Has cross-attention; KV transfer and prefix caching do not apply."""


class Task(StrEnum):
    """What callers ask of a model."""

    AUDIO_CHAT = "audio-chat"
    """Speech and text in, text out; transcription is one of its uses."""
    TRANSCRIPTION = "transcription"
    SPEECH = "speech"
    """Text in, speech out."""
    CHAT = "chat"


class ModelCard(Model):
    """One model, as far as sizing, launching and licensing need to know it."""

    name: str
    repository: str
    """On Hugging Face."""
    task: Task
    architecture: Architecture
    served_by: Literal["vllm", "vllm-omni"]
    file_format: Literal["hf", "mistral"] = "hf"
    """``mistral``: tokenizer, configuration and weights in Mistral's own layout."""
    weights_gib: float = Field(gt=0)
    """Weights as bfloat16, GiB."""
    bf16_only_gib: float = Field(ge=0)
    """Of these, embeddings and output head: FP8 converts linear layers only."""
    layers: int
    kv_heads: int
    head_dim: int
    attention_heads: int
    max_context_tokens: int
    audio_tokens_per_s: float | None = None
    """Positions that one second of audio takes: in the decoder's context, or in an encoder's output."""
    cross_attention_tokens: int = 0
    """Encoder positions that each sequence keeps, for encoder-decoder models."""
    hears_live: bool = False
    """Whether it takes audio as it comes: a session is a call then, which grows while it lasts."""
    sliding_window: int | None = None
    """Tokens that attention looks back on, where every layer has such a window; older ones leave the KV cache."""
    encoder_state_bytes: int = Field(default=0, ge=0)
    """KV that a streaming encoder keeps for each sequence as bfloat16, bytes."""
    fp8_repository: str | None = None
    """Weights published as FP8, where they are."""
    licence: str
    """SPDX identifier."""
    commercial_use: bool
    source: str


class LiveStreams(Model):
    """One published measurement: streams of live speech that a GPU transcribes as they come."""

    name: str
    gpu: str
    """A GPU of ``gpus.yaml``, or one that this product does not deploy to."""
    memory_gib: float = Field(gt=0)
    streams: int = Field(gt=0)
    source: str


class EngineVersion(Model):
    """One engine, or tool beside it, at the version that this project deploys."""

    name: str
    version: str
    package: str | None = None
    """Its distribution on PyPI, where there is one."""
    upstream_image: str | None = None
    """Repository and tag of the publisher's image; deployed by the digest of the copy in the own registry."""
    min_driver: str | None = None
    """Oldest NVIDIA driver branch that its CUDA build runs on."""
    source: str
