"""What an inference engine is asked for, on either cloud."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from blueprint.base import Model

Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
"""Commit of a model's repository."""


class ModelAgreement(Model):
    """A licence that was agreed with a model's owner, beyond the published one."""

    model: str
    """The model of the catalogue that was agreed on."""
    reference: Annotated[str, Field(min_length=10)]
    """Where the agreement can be found."""


class Profile(StrEnum):
    """Where an engine's tuning comes from."""

    BASELINE = "baseline"
    """The engine's defaults."""
    TUNED = "tuned"
    """``blueprint.engines.sizing``, from the GPU, the model and the load."""


class Quantization(StrEnum):
    """How weights are kept."""

    NONE = "none"
    """bfloat16."""
    FP8 = "fp8"


class KvCacheType(StrEnum):
    """How keys and values are kept."""

    AUTO = "auto"
    """As the model computes: bfloat16."""
    FP8 = "fp8"


class Load(Model):
    """What callers bring at the peak."""

    sessions: int = Field(gt=0)
    """Conversations alive at the same time, over all replicas of the service or on one host of the fleet."""
    session_tokens: int = Field(gt=0)
    """Tokens that a live session typically holds in the KV cache: prompt, audio and answer."""
    context_tokens: int = Field(gt=0)
    """Longest context that a session may reach."""
    longest_call_s: int | None = Field(default=None, gt=0)
    """Longest call, seconds. Needed for a model that takes audio as it comes: its sessions grow while a call lasts."""


class VllmOptions(Model):
    """The model that vLLM serves on the hosts of one fleet."""

    model: str
    """A model of the catalogue."""
    revision: Revision | None = None
    """Commit of the model's repository; absent, the newest is fetched."""
    load: Load
    """What one host has to carry."""
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    profile: Profile = Profile.TUNED
