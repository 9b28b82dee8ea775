"""Inputs for engine sizing: rows of ``gpus.yaml``, ``models.yaml`` and ``engines.yaml``."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from voice_blueprint.base import Model


class Gpu(Model):
    """A GPU model."""

    name: str
    memory_gib: float = Field(gt=0)
    """Total memory as reported by CUDA, GiB: the base of ``gpu_memory_utilization``, and less than the nominal size."""
    compute_capability: tuple[int, int]
    memory_gb_per_s: float = 0
    """Peak memory bandwidth, GB/s; 0 if it is not used for sizing."""
    bf16_tflops: float = 0
    """Peak dense bfloat16 performance, TFLOP/s; 0 if it is not used for sizing."""
    nvlink_gb_per_s: float | None = None
    """Peak bandwidth of all NVLinks in one direction, GB/s; absent without NVLink."""
    pcie_gb_per_s: float = 0
    """Peak bandwidth of its PCIe link in one direction, GB/s; 0 if it is not used for sizing."""
    source: str

    @property
    def supports_fp8(self) -> bool:
        """Whether the GPU computes in FP8 (Ada, Hopper and later); otherwise FP8 is only a storage format."""
        return self.compute_capability >= (8, 9)


class ModelArchitecture(StrEnum):
    """Architecture of a model, which determines the kind of its cache."""

    DECODER_ONLY = "decoder-only"
    ENCODER_DECODER = "encoder-decoder"
    """Has cross-attention; KV transfer and prefix caching do not apply."""


class ModelTask(StrEnum):
    """Task of a model."""

    AUDIO_CHAT = "audio-chat"
    """Speech and text in, text out; this includes transcription."""
    TRANSCRIPTION = "transcription"
    SPEECH = "speech"
    """Text in, speech out."""
    CHAT = "chat"


class ModelCard(Model):
    """Properties of a model for sizing, launching and licensing."""

    name: str
    repository: str
    """Repository on Hugging Face."""
    task: ModelTask
    architecture: ModelArchitecture
    served_by: Literal["vllm", "vllm-omni"]
    file_format: Literal["hf", "mistral"] = "hf"
    """``mistral``: tokenizer, configuration and weights are in Mistral's own layout."""
    weights_gib: float = Field(gt=0)
    """Size of the weights in bfloat16, GiB."""
    bf16_only_gib: float = Field(ge=0)
    """The part of the weights that FP8 quantization does not convert (embeddings and output head, since it converts
    linear layers only), GiB."""
    layers: int
    kv_heads: int
    head_dim: int
    attention_heads: int
    max_context_tokens: int
    audio_tokens_per_s: float | None = None
    """Positions per second of audio: in the decoder's context, or in an encoder's output."""
    cross_attention_tokens: int = 0
    """Encoder positions that each sequence of an encoder-decoder model keeps."""
    hears_live: bool = False
    """Whether the model accepts streaming audio. A session is then a call, whose context grows over time."""
    sliding_window: int | None = None
    """Attention window in tokens, if every layer has one; older tokens leave the KV cache."""
    encoder_state_bytes: int = Field(default=0, ge=0)
    """KV cache of a streaming encoder for each sequence in bfloat16, bytes."""
    fp8_repository: str | None = None
    """Repository of weights published in FP8, if there is one."""
    licence: str
    """SPDX identifier."""
    commercial_use: bool
    source: str


class StreamCapacity(Model):
    """A published measurement: concurrent streams of live speech that a GPU transcribes."""

    name: str
    gpu: str
    """A GPU in ``gpus.yaml``, or one that this product does not support."""
    memory_gib: float = Field(gt=0)
    streams: int = Field(gt=0)
    source: str


class EngineVersion(Model):
    """Version of an engine, or of a related tool, that this project deploys."""

    name: str
    version: str
    package: str | None = None
    """Distribution on PyPI, if there is one."""
    upstream_image: str | None = None
    """Repository and tag of the publisher's image. The deployed image is a copy in the operator's registry, referenced
    by digest."""
    min_driver: str | None = None
    """Oldest NVIDIA driver branch that supports its CUDA build."""
    source: str
