"""Settings from the environment: variables in the contract, and variables that only images and measurements set."""

import os
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from voice_blueprint.contract.network import VLLM
from voice_runtime.hosts import HostKind

MAX_ENCODER_BATCH = 4
MAX_DECODER_BATCH = 8
"""Maximum number of utterances per batch in an encoder or decoder."""


class Layout(StrEnum):
    """Distribution of prefill and decode across processes."""

    DISAGGREGATED = "disaggregated"
    """Separate processes."""
    COLOCATED = "colocated"
    """Both in every process."""


class EngineSettings(BaseSettings):
    """Settings for a host's engine."""

    model_config = SettingsConfigDict(env_prefix="VOICE_", frozen=True)

    host: str = Field(min_length=1)
    host_address: IPv4Address
    host_kind: HostKind
    zone: str = ""
    chunk_port: int = Field(ge=1, le=65535)
    health_port: int = Field(ge=1, le=65535)
    engine: Literal["whisper", "vllm", "vllm-realtime"] = "whisper"
    drain_timeout_s: int = Field(ge=1)
    health_address: str = "127.0.0.1"
    """Address of the health port, which a cluster queries from outside the pod."""
    vllm_url: str = f"http://127.0.0.1:{VLLM.number}"
    """API of vLLM or a router for the engine ``vllm``; for ``vllm-realtime``, API of one vLLM server."""
    vllm_model: str = ""
    """Name of the model at that API; empty if there is only one model."""

    layout: Layout = Layout.DISAGGREGATED
    sessions: int = Field(default=64, ge=1, le=4096)
    """Maximum concurrent sessions."""
    encoders: int = Field(default=1, ge=1, le=64)
    """Worker processes for prefill."""
    decoders: int = Field(default=1, ge=1, le=64)
    """Worker processes for decode."""


class ModelSettings(BaseSettings):
    """Settings for a worker process."""

    model_config = SettingsConfigDict(env_prefix="VOICE_", frozen=True, protected_namespaces=())

    model: str = Field(min_length=1)
    """Folder of a converted model, or a Hugging Face repository that is downloaded at the first start."""
    model_revision: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    """Commit of that repository; empty for the latest."""
    cache_dir: Path
    backend: Literal["ctranslate2", "neuron"] = "ctranslate2"


def calculate_threads_per_worker(settings: EngineSettings) -> int:
    """Return the number of threads per worker. The workers share the cores evenly."""
    return max(1, len(os.sched_getaffinity(0)) // (settings.encoders + settings.decoders))
