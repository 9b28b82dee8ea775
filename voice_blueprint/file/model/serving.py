"""Settings of inference engines on either cloud."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.file.model.known import ModelName
from voice_blueprint.file.model.text import Revision


class ModelAgreement(Model):
    """A licence agreement with a model's owner, in addition to the published licence."""

    model: ModelName
    """Name of the model in the catalogue."""
    reference: Annotated[str, Field(min_length=10)]
    """Reference to the agreement, such as a contract number."""


class Profile(StrEnum):
    """The source of an engine's tuning parameters."""

    BASELINE = "baseline"
    """The engine's defaults."""
    TUNED = "tuned"
    """Calculated from the GPU, the model and the load."""


class Quantization(StrEnum):
    """Data type of the weights."""

    NONE = "none"
    """bfloat16."""
    FP8 = "fp8"


class KvCacheType(StrEnum):
    """Data type of the KV cache."""

    AUTO = "auto"
    """The model's own data type, bfloat16."""
    FP8 = "fp8"


class Load(Model):
    """Peak load of a service or a host."""

    sessions: int = Field(gt=0)
    """Concurrent sessions, across all replicas of a service or on one host of a fleet."""
    session_tokens: int = Field(gt=0)
    """Tokens that a typical session occupies in the KV cache: prompt, audio and answer."""
    context_tokens: int = Field(gt=0)
    """Maximum context length of a session, tokens."""
    longest_call_s: int | None = Field(default=None, gt=0)
    """Maximum duration of a call, seconds. Required by models with streaming input, whose context grows during a
    call."""


class VllmOptions(Model):
    """A model that vLLM serves on the hosts of a fleet."""

    model: ModelName
    """Name of the model in the catalogue."""
    revision: Revision | None = None
    """Commit of the model's repository. The default is the latest."""
    load: Load
    """Load per host."""
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    profile: Profile = Profile.TUNED
