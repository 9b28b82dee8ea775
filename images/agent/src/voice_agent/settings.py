"""Settings that the launcher sets, and limits for the agent."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from voice_agent.signing import decode_key
from voice_agent.tokens import MIN_KEY_BYTES

Url = Annotated[str, Field(pattern=r"^https?://[^/]+(/.*[^/])?$")]
"""URL without a trailing slash, since paths are appended to it."""

ALL_INTERFACES = "0.0.0.0"  # noqa: S104  a container, whose security group restricts access


class AgentSettings(BaseSettings):
    """The contract's variables except those for Valkey, followed by variables that only the agent uses.

    Attributes:
        deployment: Deployment in metrics.
        fleet: Fleet in metrics.
        conversations: Maximum conversations of this process; further callers are forwarded to a sibling with a free
            slot, or refused before their socket is open.
        token_ttl_s: Time for which a conversation can be resumed, seconds; its history and token expire afterwards.
        idle_timeout_s: Time without speech from either side after which a conversation is closed, seconds.
        drain_timeout_s: Maximum time for conversations to end after the stop signal, seconds.
        gateway_url: URL of the gateway, which transcribes and authenticates.
        chat_url: OpenAI-compatible API of the language model, up to ``/v1``.
        chat_key: Key of that API, or empty.
        speech_url: OpenAI-compatible API of the text-to-speech engine, up to ``/v1``.
        speech_key: Key of that API, or empty.
        speech_rate: Sample rate of the engine's raw PCM, Hz; OpenAI's is 24,000.
        prompt: System prompt of the language model.
        tools_url: Endpoint of the operator's tools, or empty.
        tools_key: Secret for signing requests to the tools; if empty, requests are unsigned.
        twilio_account: Twilio account whose calls are accepted; if empty, calls of all accounts are accepted.
        twilio_token: Auth token of that account for verifying Twilio's signatures; if empty, they are not verified.
        language: Spoken language, such as ``en``; if empty, it is detected from the audio.
        answer_tokens: Maximum tokens of an answer.
        listening: Input of the language model: the gateway's ``transcript`` of a question, or the question's ``audio``.
        trace_collector: OTLP/HTTP URL for traces, or empty.
        traced_share: Share of traced conversations.
        forwarded: Whether a proxy in front of the agent appends to X-Forwarded-For. Without such a proxy, clients could
            spoof their addresses.
        bind_address: Address of the port; an explicit address is also announced to siblings.
        prometheus_port: Port of the metrics, separate from callers; 0 disables them.
        final_within_s: Maximum time from the end of speech to a final transcript. A turn does not wait if its last
            final transcript is known to cover the whole turn.
        incomplete_within_s: Silence that ends a turn which the end-of-turn model classifies as incomplete, seconds.
        unheard_within_s: Silence that ends a turn without any recognized word, seconds.
    """

    model_config = SettingsConfigDict(env_prefix="VOICE_", frozen=True)

    deployment: str = Field(min_length=1)
    fleet: str = Field(min_length=1)
    http_port: int = Field(ge=1, le=65535)
    conversations: int = Field(ge=1)
    token_key: SecretStr
    token_ttl_s: int = Field(ge=1, le=86400)
    idle_timeout_s: float = Field(gt=0)
    drain_timeout_s: float = Field(ge=0)
    gateway_url: Url
    chat_url: Url
    chat_model: str = Field(min_length=1)
    chat_key: SecretStr
    speech_url: Url
    speech_model: str = Field(min_length=1)
    speech_key: SecretStr
    speech_voice: str = Field(min_length=1)
    speech_rate: int = Field(ge=16000, le=48000)
    prompt: str = Field(min_length=1)
    tools_url: Url | Literal[""]
    tools_key: SecretStr
    twilio_account: str
    twilio_token: SecretStr
    language: str = Field(pattern="^([a-z]{2,3}(-[A-Za-z0-9]{2,8})*)?$")
    answer_tokens: int = Field(ge=1)
    listening: Literal["transcript", "audio"]

    trace_collector: str = Field(default="", pattern="^(https?://.+)?$")
    traced_share: float = Field(default=0.01, ge=0, le=1)
    forwarded: bool = False
    bind_address: str = ALL_INTERFACES
    prometheus_port: int | None = Field(default=None, ge=1, le=65535)
    final_within_s: float = Field(default=1.5, gt=0)
    incomplete_within_s: float = Field(default=1.2, gt=0)
    unheard_within_s: float = Field(default=5.0, gt=0)

    @field_validator("tools_key")
    @classmethod
    def _check_key(cls, key: SecretStr) -> SecretStr:
        if key.get_secret_value():
            decode_key(key.get_secret_value())
        return key

    @field_validator("token_key")
    @classmethod
    def _check_key_length(cls, key: SecretStr) -> SecretStr:
        size = len(key.get_secret_value().encode())
        if size < MIN_KEY_BYTES:
            raise ValueError(f"has {size} bytes, at least {MIN_KEY_BYTES} are needed")
        return key
