"""The agent tier, which answers callers by speech on either cloud."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from voice_blueprint.base import Model
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.edge import TaskCount
from voice_blueprint.file.model.serving import ModelAgreement
from voice_blueprint.file.model.text import Language, Name, PublicUrl, SecretName, TwilioAccountSid


class Endpoint(Model):
    """An engine outside this deployment, with an OpenAI-compatible API."""

    url: PublicUrl
    """Base URL of the API, up to and including ``/v1``."""
    model: str = Field(min_length=1, max_length=128)
    """Name of the model in requests to that API."""
    key_secret: SecretName | None = None
    """Name of the secret that contains the API key. By default, requests are sent without a key."""


class ExternalEndpoint(Endpoint):
    """An engine outside the cluster, with an OpenAI-compatible API."""

    kind: Literal["endpoint"]


class ClusterService(Model):
    """A service in the same cluster."""

    kind: Literal["service"]
    service: Name
    """Name of the service under `services`."""


AzureEngine = Annotated[ExternalEndpoint | ClusterService, Field(discriminator="kind")]


class Twilio(Model):
    """The Twilio account whose calls agents answer. Without this section, agents do not accept calls from Twilio."""

    account: TwilioAccountSid
    """SID of the account. Calls from other accounts are rejected."""
    token_secret: SecretName
    """Name of the secret that contains the account's auth token. Agents use it to verify Twilio's signature before they
    accept a WebSocket."""


class ConversationSettings(Model):
    """Settings of conversations on either cloud. The gateway of the same deployment authenticates callers."""

    prompt: str | None = Field(default=None, min_length=1, max_length=16_384)
    """System prompt of the language model. It is readable by anyone who can read the deployment."""
    prompt_secret: SecretName | None = None
    """Name of a secret that contains the system prompt, instead of `prompt`."""
    voice: str = Field(min_length=1, max_length=128)
    """Voice of the text-to-speech engine."""
    speech_rate: int = Field(default=24_000, ge=16_000, le=48_000)
    """Sample rate of the raw PCM that the text-to-speech engine returns, Hz."""
    conversations: int = Field(default=8, ge=1, le=64)
    """Maximum conversations per process, which has one vCPU. Further callers are routed to another process with free
    capacity."""
    language: Language | None = None
    """Language that callers speak, such as ``en``. By default, the language is detected from the audio."""
    answer_tokens: int = Field(default=200, ge=1, le=4096)
    """Maximum tokens per answer."""
    listening: Literal["transcript", "audio"] = "transcript"
    """Input of the language model: the transcript of a question, or its audio. Of the catalogue's models, only Voxtral
    accepts audio."""
    tools_url: PublicUrl | None = None
    """URL of your own endpoint whose tools the language model may call (docs/conversations.md)."""
    tools_key_secret: SecretName | None = None
    """Name of the secret that contains the key for signing requests to `tools_url` (Standard Webhooks). By default,
    requests are unsigned."""
    twilio: Twilio | None = None
    token_ttl_s: int = Field(default=3600, ge=60, le=86_400)
    """Time during which a disconnected caller can resume a conversation, seconds. The history and the token expire
    afterwards."""
    idle_timeout_s: int = Field(default=120, ge=5, le=3600)
    """Maximum silence on both sides, seconds. A conversation that exceeds it is closed."""

    @model_validator(mode="after")
    def _check_prompt(self) -> "ConversationSettings":
        if (self.prompt is None) == (self.prompt_secret is None):
            raise ValueError("the language model requires a prompt: set either `prompt` or `prompt_secret`")
        return self


class AwsAgents(ConversationSettings):
    """Agents on ECS Fargate, arm64. Each task has one vCPU and runs one process."""

    chat: Endpoint
    """Language model that generates the answers."""
    speech: Endpoint
    """Text-to-speech engine. It must implement OpenAI's ``/v1/audio/speech`` and return raw PCM."""
    tasks: TaskCount
    commercial: bool = True
    """Whether the deployment is for commercial use, which the licences of some voices restrict."""
    model_agreements: tuple[ModelAgreement, ...] = ()


class AgentPods(ConversationSettings):
    """Agents on the CPU pool. Each pod has one CPU and runs one process."""

    chat: AzureEngine
    """Language model that generates the answers, either a service in this file or an external endpoint."""
    speech: AzureEngine
    """Text-to-speech engine, either a service of kind `tts` in this file or an external endpoint, for example one with
    a less restrictive licence."""
    replicas: HostCount
    drain_timeout_s: int = Field(default=600, ge=30, le=3600)
    """Maximum time for a terminating pod to finish its conversations, seconds."""
