"""What the agent is told by its launcher, and the limits that it keeps."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from voice_agent.tokens import KEY_BYTES

Url = Annotated[str, Field(pattern=r"^https?://[^/]+(/.*[^/])?$")]
"""Without a slash at its end: paths are put behind it."""

ANYWHERE = "0.0.0.0"  # noqa: S104  a container: its ports are mapped, its security group lets in


class AgentSettings(BaseSettings):
    """The contract's variables without those of Valkey, and behind them variables of the agent alone.

    Attributes:
        deployment: What metrics are of.
        fleet: The same.
        conversations: Most of this process; whoever comes beyond them is handed to a sibling with room, or refused
            before its socket is open.
        token_ttl_s: How long a conversation waits for a caller that comes back, seconds: memory and token live so long.
        idle_timeout_s: Seconds in which neither side says anything, before a conversation is closed.
        drain_timeout_s: Seconds that conversations have to end in, once the process is told to stop.
        gateway_url: The gateway, which hears, and says who may be heard.
        chat_url: OpenAI-compatible API of the language model, up to ``/v1``.
        chat_key: Key of that API; empty: it asks for none.
        speech_url: OpenAI-compatible API of the engine that speaks, up to ``/v1``.
        speech_key: Key of that API; empty: it asks for none.
        speech_rate: Sample rate of its raw PCM, Hz; OpenAI's is 24,000.
        prompt: What the language model is told to be.
        tools_url: An operator's endpoint whose tools the language model may call; empty: it has none.
        language: Spoken, such as ``en``; empty: it is found out from the audio.
        answer_tokens: Most tokens of an answer.
        listening: What the language model is given of a question: its ``transcript`` by the gateway, or its ``audio``.
        trace_collector: Where traces go, by OTLP over HTTP; empty: nowhere.
        traced_share: Of conversations that are traced.
        bind_address: Address that the port is on; one that is given is also where siblings find it.
        prometheus_port: Where metrics are asked for, apart from callers; without one nobody can.
        final_within_s: How long after the end of speech a final transcript may come. A turn whose last final is known
            to cover it waits no longer.
        incomplete_within_s: Silence that ends a turn which the model of turns takes for unfinished, seconds.
        unheard_within_s: Silence after which a turn is over of which no word was understood, seconds.
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
    language: str = Field(pattern="^([a-z]{2,3}(-[A-Za-z0-9]{2,8})*)?$")
    answer_tokens: int = Field(ge=1)
    listening: Literal["transcript", "audio"]

    trace_collector: str = Field(default="", pattern="^(https?://.+)?$")
    traced_share: float = Field(default=0.01, ge=0, le=1)
    bind_address: str = ANYWHERE
    prometheus_port: int | None = Field(default=None, ge=1, le=65535)
    final_within_s: float = Field(default=1.5, gt=0)
    incomplete_within_s: float = Field(default=1.2, gt=0)
    unheard_within_s: float = Field(default=5.0, gt=0)

    @field_validator("token_key")
    @classmethod
    def _is_long_enough(cls, key: SecretStr) -> SecretStr:
        size = len(key.get_secret_value().encode())
        if size < KEY_BYTES:
            raise ValueError(f"has {size} bytes, at least {KEY_BYTES} are needed")
        return key
