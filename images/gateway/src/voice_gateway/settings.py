"""What the gateway is told by its launcher, and the limits that it keeps."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from blueprint.contract.session_api import AUDIO_PATH
from voice_gateway.tokens import KEY_BYTES

Port = Annotated[int, Field(ge=1, le=65535)]


class GatewaySettings(BaseSettings):
    """The contract's variables without those of Valkey, and behind them variables of the gateway alone.

    Attributes:
        token_ttl_s: Seconds that a session token opens its session for; event streams bring fresh ones.
        authorizer: Who may open sessions, as the deployment file says it.
        media_host: Host name that callers send audio to.
        idle_timeout_s: Seconds without audio, or with a reader that takes nothing, before a connection is closed.
        drain_timeout_s: Seconds that callers have to finish in, once the process is told to stop.
        reconnect_grace_s: Seconds that a session waits for its caller, once its audio socket has broken off.
        end_of_turn_ms: Silence that ends a finished sentence, of sessions that do not say.
        session_max_s: Longest that a session lasts.
        caller_sessions: Live sessions of one caller.
        caller_creations_per_s: Sessions that one caller may open in a second, at all gateways together.
        max_connections: Audio sockets and event streams of this process.
        allowed_origins: Origins of web pages that may use the session API, comma-separated.
        other_regions: Session APIs of other regions, which callers are told of where there is no room; comma-separated.
        api_url: Session API of this region, where callers may have asked at a name of all regions.
        trace_collector: Where traces go, by OTLP over HTTP; empty: nowhere.
        traced_share: Of calls that are traced.
        bind_address: Address that both ports are on.
        rtp_host: Host name that SRTP is sent to, where it is another than ``media_host``.
        prometheus_port: Where metrics are asked for; without one they go to the log, for CloudWatch.
        media_tls: Whether something before ``media_port`` speaks TLS on port 443, as the load balancer does.
    """

    model_config = SettingsConfigDict(env_prefix="VOICE_", frozen=True)

    deployment: str = Field(min_length=1)
    fleet: str = Field(min_length=1)
    http_port: Port
    media_port: Port
    rtp_port: Port
    token_key: SecretStr
    token_ttl_s: int = Field(ge=1, le=86400)
    authorizer: Literal["iam", "jwt", "api-key", "none"]
    jwt_issuer: str = Field(default="", pattern="^(https?://.+)?$")
    jwt_audience: str = ""
    media_host: str = Field(min_length=1)
    idle_timeout_s: float = Field(gt=0)
    drain_timeout_s: float = Field(ge=0)
    reconnect_grace_s: int = Field(ge=1)
    end_of_turn_ms: int = Field(ge=0)
    session_max_s: int = Field(ge=1)
    caller_sessions: int = Field(ge=1)
    caller_creations_per_s: int = Field(ge=1)
    max_connections: int = Field(ge=1)
    allowed_origins: Annotated[tuple[str, ...], NoDecode]
    other_regions: Annotated[tuple[str, ...], NoDecode] = ()
    api_url: str = ""
    trace_collector: str = Field(default="", pattern="^(https?://.+)?$")
    traced_share: float = Field(default=0.01, ge=0, le=1)

    bind_address: str = "0.0.0.0"  # noqa: S104  a container: its ports are mapped, its security group lets in
    media_tls: bool = True
    rtp_host: str = ""
    prometheus_port: Port | None = None

    @field_validator("token_key")
    @classmethod
    def _is_long_enough(cls, key: SecretStr) -> SecretStr:
        size = len(key.get_secret_value().encode())
        if size < KEY_BYTES:
            raise ValueError(f"has {size} bytes, at least {KEY_BYTES} are needed")
        return key

    @field_validator("allowed_origins", "other_regions", mode="before")
    @classmethod
    def _split(cls, addresses: object) -> object:
        return tuple(filter(None, addresses.split(","))) if isinstance(addresses, str) else addresses

    @model_validator(mode="after")
    def _audience_with_issuer(self) -> Self:
        if bool(self.jwt_issuer) != bool(self.jwt_audience):
            raise ValueError("VOICE_JWT_ISSUER and VOICE_JWT_AUDIENCE go together: set both, or neither")
        if self.http_port == self.media_port:
            raise ValueError(f"VOICE_HTTP_PORT and VOICE_MEDIA_PORT are both {self.http_port}")
        return self

    def audio_url(self, session: str) -> str:
        """Return where a session's WebSocket is, as callers reach it."""
        place = f"wss://{self.media_host}" if self.media_tls else f"ws://{self.media_host}:{self.media_port}"
        return f"{place}{AUDIO_PATH.format(id=session)}"
