"""The agent tier: who answers callers by speech, on either cloud."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from blueprint.base import Model
from blueprint.file.model.base import HostCount, Name
from blueprint.file.model.edge import TaskCount
from blueprint.file.model.serving import ModelAgreement

SecretName = Annotated[str, Field(pattern=r"^[0-9a-zA-Z-]{1,127}$")]
"""Of a secret that exists already: in Secrets Manager on AWS, in the deployment's key vault on Azure."""
PublicUrl = Annotated[str, Field(pattern=r"^https://[^\s:/?#]+(/[^\s?#]*[^\s/?#])?$")]
"""On port 443, to which agents are let out, and without a slash at its end."""


class Endpoint(Model):
    """An engine outside this deployment, behind an API as OpenAI's."""

    url: PublicUrl
    """Address of the API, up to ``/v1``."""
    model: str = Field(min_length=1, max_length=128)
    """The model's name there."""
    key_secret: SecretName | None = None
    """Secret with the API's key; absent, it asks for none."""


class Elsewhere(Endpoint):
    """An engine outside the cluster, behind an API as OpenAI's."""

    kind: Literal["endpoint"]


class ClusterService(Model):
    """A service of the same cluster."""

    kind: Literal["service"]
    service: Name
    """Its name in `services`."""


AzureEngine = Annotated[Elsewhere | ClusterService, Field(discriminator="kind")]


class AgentRules(Model):
    """How conversations are held, whichever cloud holds them. The gateway of the same deployment lets callers in."""

    prompt: str | None = Field(default=None, min_length=1, max_length=16_384)
    """What the language model is told to be. Whoever may read the deployment reads it."""
    prompt_secret: SecretName | None = None
    """Secret that has the prompt instead."""
    voice: str = Field(min_length=1, max_length=128)
    """Voice of the engine that speaks."""
    speech_rate: int = Field(default=24_000, ge=16_000, le=48_000)
    """Sample rate of that engine's raw PCM, Hz."""
    conversations: int = Field(default=8, ge=1, le=64)
    """Conversations that one process holds on its one vCPU; callers beyond are held by another one with room."""
    language: Annotated[str, Field(pattern="^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")] | None = None
    """Language that callers speak, such as ``en``; absent, it is found out from the audio. The gateway is told."""
    answer_tokens: int = Field(default=200, ge=1, le=4096)
    """Most tokens of one answer."""
    listening: Literal["transcript", "audio"] = "transcript"
    """What the language model is given of a question: what the gateway heard, or the audio itself (Voxtral hears)."""
    tools_url: PublicUrl | None = None
    """Endpoint of yours whose tools the language model may call (docs/conversations.md)."""
    token_ttl_s: int = Field(default=3600, ge=60, le=86_400)
    """How long a conversation waits for a caller who comes back, seconds: its memory and its token live so long."""
    idle_timeout_s: int = Field(default=120, ge=5, le=3600)
    """How long neither side may say anything, seconds; then a conversation is closed."""

    @model_validator(mode="after")
    def _has_one_prompt(self) -> "AgentRules":
        if (self.prompt is None) == (self.prompt_secret is None):
            raise ValueError("the language model needs to be told what it is: give either `prompt` or `prompt_secret`")
        return self


class AwsAgents(AgentRules):
    """Agents on ECS Fargate, arm64: one process a task, of one vCPU."""

    chat: Endpoint
    """The language model that answers."""
    speech: Endpoint
    """What speaks: any engine with OpenAI's ``/v1/audio/speech`` and raw PCM."""
    tasks: TaskCount
    commercial: bool = True
    """Whether the deployment serves a business; licences of voices distinguish."""
    model_agreements: tuple[ModelAgreement, ...] = ()


class AgentPods(AgentRules):
    """Agents on the CPU pool: one process a pod, of one CPU."""

    chat: AzureEngine
    """The language model that answers: a service of this file, or an endpoint elsewhere."""
    speech: AzureEngine
    """What speaks: a service of kind `tts` of this file, or an endpoint elsewhere, such as one of a freer licence."""
    replicas: HostCount
    drain_timeout_s: int = Field(default=600, ge=30, le=3600)
    """Longest that a stopping pod may take for its conversations to end in, seconds."""
