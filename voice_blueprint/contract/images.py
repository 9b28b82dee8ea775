"""The container images of this project."""

from enum import StrEnum

UNPRIVILEGED_UID = 10001
"""User of every image that does not specify why it needs root. The user owns only a folder for caches in the image."""


class Image(StrEnum):
    """A container image of this project; the value is its folder under ``images/`` and its repository."""

    GATEWAY = "gateway"
    VAD_DATAPLANE = "vad-dataplane"
    WHISPER_ENGINE = "whisper-engine"
    ASR_NEURON = "asr-neuron"
    ASR_VLLM = "asr-vllm"
    TELEMETRY = "telemetry"
    TTS_OMNI = "tts-omni"
    LMCACHE = "lmcache"
    ROUTER = "router"
    PD_ROUTER = "pd-router"
    """Routes a cell's requests to prefill and decode."""
    DEVICE_PLUGIN = "device-plugin"
    DCGM_EXPORTER = "dcgm-exporter"
    AGENT = "agent"
