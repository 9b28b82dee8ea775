"""How callers reach the platform on AWS, who is let in, and what they may do on either cloud."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from blueprint.base import Model
from blueprint.contract.session_api import END_OF_TURN_MS, MOST_END_OF_TURN_MS
from blueprint.file.model.load import Measured

HttpsUrl = Annotated[str, Field(pattern=r"^https://[^\s/]+(/\S*)?$")]


Origin = Annotated[str, Field(pattern=r"^(https://[^\s/,*]+|http://localhost(:[0-9]+)?)$")]
"""Scheme, host and port of a web page, as browsers send them. ``*`` is none: it would let in every page there is."""


class IamAuthorizer(Model):
    """Callers sign their requests with AWS credentials (SigV4)."""

    kind: Literal["iam"]


class JwtAuthorizer(Model):
    """Callers bring a token of an OpenID Connect issuer; the gateway service verifies it."""

    kind: Literal["jwt"]
    issuer: HttpsUrl
    """Address of the issuer, as its tokens have it in ``iss``."""
    audience: str = Field(min_length=1)
    """What tokens have to have in ``aud``."""


class ApiKeyAuthorizer(Model):
    """Callers send a key in ``x-api-key``; for machines that can keep a secret."""

    kind: Literal["api-key"]


class NoAuthorizer(Model):
    """Anybody may open a session. Refused in production."""

    kind: Literal["none"]


Authorizer = Annotated[IamAuthorizer | JwtAuthorizer | ApiKeyAuthorizer | NoAuthorizer, Field(discriminator="kind")]


class Domain(Model):
    """A name of one's own in a Route 53 zone of the same account: ``api.<name>`` and ``media.<name>``."""

    name: Annotated[str, Field(pattern=r"^([a-z0-9-]+\.)+[a-z]{2,}$")]
    """Name that ``api.`` and ``media.`` are put before; it lies in the zone."""
    zone_id: Annotated[str, Field(pattern=r"^Z[A-Z0-9]{1,31}$")]
    """Id of the public hosted zone in Route 53."""
    zone_name: Annotated[str, Field(pattern=r"^([a-z0-9-]+\.)+[a-z]{2,}$")]
    """Name of that zone."""

    @model_validator(mode="after")
    def _name_in_zone(self) -> "Domain":
        if self.name != self.zone_name and not self.name.endswith(f".{self.zone_name}"):
            raise ValueError(f"name {self.name} does not lie in zone {self.zone_name}")
        return self


class Throttle(Model):
    """Limits of the session API, for all callers together and for one address."""

    requests_per_s: int = Field(default=100, gt=0)
    """Requests of all callers together, in a second."""
    burst: int = Field(default=200, gt=0)
    """Requests that may come at once, beyond the rate."""
    requests_per_address_5_min: int = Field(default=10_000, ge=10, le=2_000_000_000)
    """WAF blocks an address above this rate; AWS counts over five minutes."""


class TaskCount(Model):
    """Bounds of the gateway service."""

    min: int = Field(ge=1)
    """Fewest tasks that run."""
    max: int = Field(gt=0)
    """Most tasks that run."""

    @model_validator(mode="after")
    def _ordered(self) -> "TaskCount":
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


FARGATE_MEMORY_GIB = {0.5: range(1, 5), 1: range(2, 9), 2: range(4, 17), 4: range(8, 31)}
"""Memory that Fargate sells with each number of vCPUs, GiB.
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html"""


class GatewayService(Model):
    """The gateway on ECS Fargate, arm64."""

    vcpu: float = 1
    """vCPUs of a task, as Fargate sells them."""
    memory_gib: int = 2
    """Memory of a task, GiB; each number of vCPUs has a range of its own."""
    tasks: TaskCount
    sockets_per_task: int | None = Field(default=None, ge=2)
    """Open sockets at which a task refuses more, two a call; without it as many as its core and its memory carry."""
    measured: Measured | None = None
    """Calls that a task carries, instead of what one core is counted on for."""

    @model_validator(mode="after")
    def _is_a_fargate_size(self) -> "GatewayService":
        if self.vcpu not in FARGATE_MEMORY_GIB:
            raise ValueError(
                f"Fargate has no {self.vcpu:g} vCPU; take {', '.join(f'{v:g}' for v in FARGATE_MEMORY_GIB)}"
            )
        sold = FARGATE_MEMORY_GIB[self.vcpu]
        if self.memory_gib not in sold:
            raise ValueError(
                f"Fargate has no {self.memory_gib} GiB with {self.vcpu:g} vCPU; take {sold[0]} to {sold[-1]} GiB"
            )
        return self


class CallerRules(Model):
    """What callers may do, whichever cloud lets them in."""

    token_ttl_s: int = Field(default=300, ge=30, le=3600)
    """Lifetime of a session token, seconds."""
    idle_timeout_s: int = Field(default=60, ge=5)
    """Longest silence on a socket or event stream before it is closed, seconds; heartbeats come at a third of it."""
    reconnect_grace_s: int = Field(default=20, ge=5, le=300)
    """How long a session waits for its caller after the audio socket has broken off, seconds."""
    end_of_turn_ms: int = Field(default=END_OF_TURN_MS, ge=0, le=MOST_END_OF_TURN_MS)
    """Silence that ends a turn where the text sounds finished, milliseconds; where it does not, twice as much. A
    session may ask for another."""
    session_max_s: int = Field(default=3600, ge=60, le=86_400)
    """Longest that a session lasts, seconds; callers who have more to say open another."""
    caller_sessions: int = Field(default=1000, gt=0)
    """Live sessions of one caller, at all tasks together."""
    caller_creations_per_s: int = Field(default=10, gt=0)
    """Sessions that one caller may open in a second, at all tasks together."""
    allowed_origins: tuple[Origin, ...] = ()
    """Web pages that may use the session API from a browser, such as ``https://app.example.com``."""
    trace_collector: Annotated[str, Field(pattern=r"^https://[^\s:/]+(/\S*)?$")] | None = None
    """Where traces of calls go: the OTLP/HTTP address of a collector such as ADOT, on port 443, to which gateways
    and agents are let out. Without it there are none."""
    traced_share: float = Field(default=0.01, gt=0, le=1)
    """Of calls, and of conversations, that are traced, where there is a collector. A gateway's CPU has 16 ms a minute
    for each call, beside 190 or more for the call itself: up to 0.2 they stay below 2 % of it."""


class Edge(CallerRules):
    """REST API for control and events, network load balancer for audio, gateway service behind both."""

    authorizer: Authorizer
    """Who may open a session: callers with AWS credentials, a token, a key, or anybody."""
    gateway: GatewayService
    throttle: Throttle = Throttle()
    domain: Domain | None = None
    certificate_arn: (
        Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/\S+$")] | None
    ) = None
    """Certificate of the TLS listener, where no domain is given to make one for."""
    cross_zone: bool = False
    """Spread callers over all zones, at the price of traffic between zones."""

    @model_validator(mode="after")
    def _has_certificate(self) -> "Edge":
        if (self.domain is None) == (self.certificate_arn is None):
            raise ValueError("the TLS listener needs a certificate: give either `domain` or `certificate_arn`")
        return self
