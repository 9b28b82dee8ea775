"""Settings that the launcher sets, and limits for the gateway."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from voice_blueprint.contract.session_api import AUDIO_PATH
from voice_gateway.tokens import MIN_KEY_BYTES

Port = Annotated[int, Field(ge=1, le=65535)]


class GatewaySettings(BaseSettings):
    """The contract's variables except those for Valkey, followed by variables that only the gateway uses.

    Attributes:
        token_ttl_s: Lifetime of a session token, seconds; event streams deliver new tokens.
        authorizer: Kind of authorizer, as in the deployment file.
        media_host: Host name for audio.
        idle_timeout_s: Time without audio, or without a reader's acknowledgement, after which a connection is closed,
            seconds.
        drain_timeout_s: Maximum time for callers to finish after the stop signal, seconds.
        reconnect_grace_s: Time for which a session waits for its caller after the audio socket was lost, seconds.
        end_of_turn_ms: Default silence that ends a complete sentence.
        session_max_s: Maximum duration of a session.
        caller_sessions: Maximum active sessions per caller.
        caller_minutes_per_day: Maximum audio per caller and day (UTC), minutes; empty or 0 for no limit.
        caller_creations_per_s: Maximum sessions that a caller may open per second, across all gateways.
        max_connections: Maximum audio sockets and event streams of this process.
        allowed_origins: Origins of web pages that may use the session API, comma-separated.
        other_regions: Session APIs of other regions, comma-separated, to which callers are referred if this region is
            full.
        api_host: Public host name of the session API, or empty.
        api_url: Session API of this region or cell, for callers that use another name.
        cells: Session API and health address of each cell, as ``api=health``, comma-separated.
        trace_collector: OTLP/HTTP URL for traces, or empty.
        traced_share: Share of traced calls.
        forwarded: Whether a proxy in front of the gateway appends to X-Forwarded-For. Without such a proxy, clients
            could spoof their addresses.
        archive_url: Bucket or container for transcripts, or empty.
        archive_endpoint: Server of the archive, if it differs from the cloud provider's own.
        bind_address: Address of both ports.
        rtp_host: Host name for SRTP, if it differs from ``media_host``.
        prometheus_port: Port of the metrics; without a port, metrics are logged for CloudWatch.
        media_tls: Whether a proxy in front of ``media_port`` terminates TLS on port 443, as the load balancer does.
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
    caller_minutes_per_day: int = Field(default=0, ge=0)
    max_connections: int = Field(ge=1)
    allowed_origins: Annotated[tuple[str, ...], NoDecode]
    other_regions: Annotated[tuple[str, ...], NoDecode] = ()
    api_host: str = ""
    api_url: str = ""
    cells: Annotated[dict[str, str], NoDecode] = {}
    trace_collector: str = Field(default="", pattern="^(https?://.+)?$")
    traced_share: float = Field(default=0.01, ge=0, le=1)
    archive_url: str = ""
    archive_endpoint: str = Field(default="", pattern="^(https?://.+)?$")

    forwarded: bool = False
    bind_address: str = "0.0.0.0"  # noqa: S104  a container, whose security group restricts access
    media_tls: bool = True
    rtp_host: str = ""
    prometheus_port: Port | None = None

    @field_validator("token_key")
    @classmethod
    def _check_key_length(cls, key: SecretStr) -> SecretStr:
        size = len(key.get_secret_value().encode())
        if size < MIN_KEY_BYTES:
            raise ValueError(f"has {size} bytes, at least {MIN_KEY_BYTES} are needed")
        return key

    @field_validator("allowed_origins", "other_regions", mode="before")
    @classmethod
    def _split_addresses(cls, addresses: object) -> object:
        return tuple(filter(None, addresses.split(","))) if isinstance(addresses, str) else addresses

    @field_validator("cells", mode="before")
    @classmethod
    def _parse_cells(cls, cells: object) -> object:
        return dict(each.split("=", 1) for each in filter(None, cells.split(","))) if isinstance(cells, str) else cells

    @field_validator("caller_minutes_per_day", mode="before")
    @classmethod
    def _default_to_unlimited(cls, minutes: object) -> object:
        return minutes or 0

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if bool(self.jwt_issuer) != bool(self.jwt_audience):
            raise ValueError("VOICE_JWT_ISSUER and VOICE_JWT_AUDIENCE go together: set both, or neither")
        if self.http_port == self.media_port:
            raise ValueError(f"VOICE_HTTP_PORT and VOICE_MEDIA_PORT are both {self.http_port}")
        if self.cells and self.api_url not in self.cells:
            raise ValueError(f"VOICE_CELLS does not contain this cell, whose VOICE_API_URL is {self.api_url!r}")
        return self

    def build_audio_url(self, session_id: str) -> str:
        """Return the public URL of a session's WebSocket."""
        base_url = f"wss://{self.media_host}" if self.media_tls else f"ws://{self.media_host}:{self.media_port}"
        return f"{base_url}{AUDIO_PATH.format(id=session_id)}"
