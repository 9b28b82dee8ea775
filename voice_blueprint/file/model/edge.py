"""The edge on AWS, authorizers, and the limits of callers on either cloud."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from voice_blueprint.base import Model
from voice_blueprint.contract.session_api import DEFAULT_END_OF_TURN_MS, MAX_END_OF_TURN_MS
from voice_blueprint.file.errors import SettingError
from voice_blueprint.file.model.load import MeasuredCapacity
from voice_blueprint.file.model.text import CertificateArn, CollectorUrl, DomainName, HostedZoneId, HttpsUrl, Origin


class IamAuthorizer(Model):
    """Callers sign their requests with AWS credentials (SigV4)."""

    kind: Literal["iam"]


class JwtAuthorizer(Model):
    """Callers send a token from an OpenID Connect issuer, and the gateway verifies the token."""

    kind: Literal["jwt"]
    issuer: HttpsUrl
    """URL of the issuer, equal to the claim ``iss`` of its tokens."""
    audience: str = Field(min_length=1)
    """Required value of the claim ``aud``."""


class ApiKeyAuthorizer(Model):
    """Callers send a key in ``x-api-key``. This suits machines that can store a secret."""

    kind: Literal["api-key"]


class NoAuthorizer(Model):
    """No authentication. Anyone can open a session. Not allowed in production."""

    kind: Literal["none"]


Authorizer = Annotated[IamAuthorizer | JwtAuthorizer | ApiKeyAuthorizer | NoAuthorizer, Field(discriminator="kind")]


class Domain(Model):
    """A custom domain in a Route 53 zone of the same account, for ``api.<name>`` and ``media.<name>``."""

    name: DomainName
    """Parent of ``api.<name>`` and ``media.<name>``, within the zone."""
    zone_id: HostedZoneId
    """Id of the public hosted zone in Route 53."""
    zone_name: DomainName
    """Name of that zone."""

    @model_validator(mode="after")
    def _check_name(self) -> "Domain":
        if self.name != self.zone_name and not self.name.endswith(f".{self.zone_name}"):
            raise SettingError(
                ("name",),
                f"{self.name} is not in the zone {self.zone_name}; use a name that ends in .{self.zone_name}",
            )
        return self


class Throttle(Model):
    """Rate limits of the session API, for all callers together and for each address."""

    requests_per_s: int = Field(default=100, gt=0)
    """Requests per second of all callers together."""
    burst: int = Field(default=200, gt=0)
    """Maximum burst of requests above the rate."""
    requests_per_address_5_min: int = Field(default=10_000, ge=10, le=2_000_000_000)
    """Maximum requests from one IP address within five minutes. AWS WAF blocks an address that exceeds it."""


class TaskCount(Model):
    """Minimum and maximum number of a service's tasks."""

    min: int = Field(ge=1)
    """Minimum number of tasks."""
    max: int = Field(gt=0)
    """Maximum number of tasks."""

    @model_validator(mode="after")
    def _check_order(self) -> "TaskCount":
        if self.min > self.max:
            raise SettingError(("min",), f"min {self.min} is more than max {self.max}; lower it, or raise max")
        return self


FARGATE_MEMORY_GIB_BY_VCPU = {0.5: range(1, 5), 1: range(2, 9), 2: range(4, 17), 4: range(8, 31)}
"""Memory sizes of Fargate by vCPUs, GiB.
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html"""


class GatewayService(Model):
    """The gateway on ECS Fargate, arm64."""

    vcpu: float = 1
    """vCPUs per task, one of Fargate's sizes."""
    memory_gib: int = 2
    """Memory per task, GiB. Fargate's range depends on the vCPUs."""
    tasks: TaskCount
    sockets_per_task: int | None = Field(default=None, ge=2)
    """Maximum open sockets per task, two per call. The default follows from the task's vCPUs and memory."""
    measured: MeasuredCapacity | None = None
    """Measured calls per task. The default is an assumption per core."""

    @model_validator(mode="after")
    def _check_fargate_size(self) -> "GatewayService":
        if self.vcpu not in FARGATE_MEMORY_GIB_BY_VCPU:
            raise SettingError(
                ("vcpu",),
                f"Fargate has no {self.vcpu:g} vCPU; take {', '.join(f'{v:g}' for v in FARGATE_MEMORY_GIB_BY_VCPU)}",
            )
        memory_options = FARGATE_MEMORY_GIB_BY_VCPU[self.vcpu]
        if self.memory_gib not in memory_options:
            raise SettingError(
                ("memory_gib",),
                f"Fargate has no {self.memory_gib} GiB with {self.vcpu:g} vCPU; take {memory_options[0]} to "
                f"{memory_options[-1]} GiB",
            )
        return self


class TranscriptArchive(Model):
    """Archive for the transcripts of sessions that request it.

    Transcripts are stored in a bucket or storage account of the deployment (docs/archive.md).
    """

    retention_days: int = Field(default=30, ge=1, le=3650)
    """Retention of transcripts and their index entries, days."""


class CallerSettings(Model):
    """Limits of callers on either cloud."""

    token_ttl_s: int = Field(default=300, ge=30, le=3600)
    """Lifetime of a session token, seconds."""
    idle_timeout_s: int = Field(default=60, ge=5)
    """Maximum idle time, seconds. A socket or event stream that exceeds it is closed. The heartbeat interval is a third
    of this value."""
    reconnect_grace_s: int = Field(default=20, ge=5, le=300)
    """Time to wait for a caller to reconnect after the audio socket is lost, seconds."""
    end_of_turn_ms: int = Field(default=DEFAULT_END_OF_TURN_MS, ge=0, le=MAX_END_OF_TURN_MS)
    """Silence that ends a turn after a complete sentence, milliseconds. After an incomplete sentence, the value is
    doubled. Sessions can override it."""
    session_max_s: int = Field(default=3600, ge=60, le=86_400)
    """Maximum duration of a session, seconds. To continue, callers open another session."""
    caller_sessions: int = Field(default=1000, gt=0)
    """Maximum live sessions per caller, across all gateway tasks."""
    caller_creations_per_s: int = Field(default=10, gt=0)
    """Maximum sessions that a caller can open per second, across all gateway tasks."""
    caller_minutes_per_day: int | None = Field(default=None, gt=0)
    """Maximum minutes of audio per caller and day (UTC), in sessions and files. By default, audio is not limited."""
    allowed_origins: tuple[Origin, ...] = ()
    """Origins of web pages that may call the session API (CORS), such as ``https://app.example.com``."""
    archive: TranscriptArchive | None = None
    """Archive for the transcripts of sessions that request it. By default, transcripts expire within ten minutes after
    the session."""
    trace_collector: CollectorUrl | None = None
    """OTLP/HTTP URL of a trace collector, such as ADOT, on port 443. Gateways and agents are allowed to connect to it.
    By default, calls are not traced."""
    traced_share: float = Field(default=0.01, gt=0, le=1)
    """Fraction of calls and conversations to trace. Tracing a call uses 16 ms of gateway CPU time per minute, in
    addition to at least 190 ms for the call itself. Up to a fraction of 0.2, the overhead is less than 2 %."""


class Edge(CallerSettings):
    """A REST API for control and events, a network load balancer for audio, and the gateway service."""

    authorizer: Authorizer
    """Authentication of callers: AWS credentials, a token, an API key, or none."""
    gateway: GatewayService
    throttle: Throttle = Throttle()
    domain: Domain | None = None
    certificate_arn: CertificateArn | None = None
    """ARN of the TLS listener's certificate. Required unless `domain` is set, for which a certificate is created."""
    cross_zone: bool = False
    """Whether load balancing distributes callers across all zones. AWS charges for traffic between zones."""

    @model_validator(mode="after")
    def _check_certificate(self) -> "Edge":
        if (self.domain is None) == (self.certificate_arn is None):
            raise ValueError("the TLS listener requires a certificate: set either `domain` or `certificate_arn`")
        return self
