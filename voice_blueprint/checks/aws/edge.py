"""Checks on callers' access to the platform."""

from collections.abc import Iterator

from voice_blueprint.aws import edge
from voice_blueprint.capacity.bounds import calculate_gateway_task_call_bounds, find_limiting_bound
from voice_blueprint.capacity.load import REQUESTS_PER_SESSION, calculate_peak_requests_per_s
from voice_blueprint.capacity.tiers import build_aws_tier_capacities, sum_calls_by_tier
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import HEARTBEATS_PER_IDLE_TIMEOUT
from voice_blueprint.environment import GATEWAY_DRAIN_TIMEOUT_S
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.model.edge import ApiKeyAuthorizer, IamAuthorizer, NoAuthorizer

PLACEHOLDER_DOMAINS = ("example.com", "example.net", "example.org", "example", "invalid", "test")
"""Domain names that RFC 2606 reserves."""

AUDIO_GB_PER_HOUR = 16_000 * 2 * 3600 / 1e9
"""Volume of a caller's L16 audio at 16 kHz, mono, without headers."""

MAX_CERTIFICATE_NAME_LENGTH = 64

WAF_WINDOW_S = 300

CROSS_ZONE_USD_PER_GB = 0.02
"""Price of traffic between zones: 0.01 in each direction."""


@deployment_check(
    "gateway-drain-exceeds-idle",
    "A stopping gateway task outlasts the idle timeout of a socket.",
    source="https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html (stopTimeout)",
)
def check_gateway_drain_exceeds_idle(deployment: Deployment) -> Iterator[Violation]:
    idle_s, drain_s = deployment.aws.edge.idle_timeout_s, GATEWAY_DRAIN_TIMEOUT_S
    if idle_s >= drain_s:
        yield Violation(
            ("aws", "edge", "idle_timeout_s"),
            f"idle_timeout_s {idle_s} is not below {drain_s} s, the drain time within Fargate's stop timeout of "
            f"{edge.FARGATE_STOP_TIMEOUT_S} s: sockets would be cut off",
            f"set idle_timeout_s to at most {drain_s - 1}",
        )


@deployment_check(
    "edge-authorizer-in-production",
    "In production, callers of the session API are authenticated.",
    source="https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-control-access-to-api.html",
)
def check_edge_authorizer_in_production(deployment: Deployment) -> Iterator[Violation]:
    authorizer = deployment.aws.edge.authorizer
    if deployment.environment is Environment.PRODUCTION and isinstance(authorizer, NoAuthorizer):
        yield Violation(
            ("aws", "edge", "authorizer", "kind"),
            f"kind {authorizer.kind}: anyone on the internet could open sessions of a production deployment",
            "choose iam, jwt or api-key",
        )


@deployment_check(
    "certificate-names-fit",
    "ACM issues a certificate for every host name of the domain.",
    source="https://docs.aws.amazon.com/acm/latest/APIReference/API_RequestCertificate.html (the first name of a "
    f"certificate has at most {MAX_CERTIFICATE_NAME_LENGTH} characters)",
    is_acceptable=False,
)
def check_certificate_names_fit(deployment: Deployment) -> Iterator[Violation]:
    domain = deployment.aws.edge.domain
    if domain is None:
        return
    hosts = [edge.build_api_hostname(domain), *([edge.build_agent_hostname(domain)] if deployment.aws.agents else [])]
    if deployment.shared_domain:
        hosts.append(edge.build_api_hostname(deployment.shared_domain))
    longest = max(hosts, key=len)
    excess = len(longest) - MAX_CERTIFICATE_NAME_LENGTH
    if excess > 0:
        yield Violation(
            ("aws", "edge", "domain", "name"),
            f"{longest} has {len(longest)} characters, but ACM accepts {MAX_CERTIFICATE_NAME_LENGTH} in a "
            "certificate's first name",
            f"use a name that is shorter by {excess}",
        )


@deployment_check(
    "api-limits",
    "Heartbeats, tokens and throttles are within the limits of API Gateway.",
    source="https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode.html (idle), "
    "https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html (requests)",
)
def check_api_gateway_limits(deployment: Deployment) -> Iterator[Violation]:
    settings = deployment.aws.edge
    longest_s = edge.STREAM_IDLE_TIMEOUT_S * HEARTBEATS_PER_IDLE_TIMEOUT
    if settings.idle_timeout_s >= longest_s:
        yield Violation(
            ("aws", "edge", "idle_timeout_s"),
            f"idle_timeout_s {settings.idle_timeout_s} results in a heartbeat every "
            f"{settings.idle_timeout_s / HEARTBEATS_PER_IDLE_TIMEOUT:g} s; API Gateway closes an event stream after "
            f"{edge.STREAM_IDLE_TIMEOUT_S} s of silence",
            f"set idle_timeout_s to at most {longest_s - 1}",
        )
    if settings.token_ttl_s <= settings.idle_timeout_s:
        yield Violation(
            ("aws", "edge", "token_ttl_s"),
            f"token_ttl_s {settings.token_ttl_s} is not above idle_timeout_s {settings.idle_timeout_s}: the token "
            "expires before a broken connection is noticed, and the caller cannot resume",
            f"set token_ttl_s to at least {settings.idle_timeout_s + 1}",
        )
    if settings.throttle.burst > edge.API_BURST_LIMIT:
        yield Violation(
            ("aws", "edge", "throttle", "burst"),
            f"burst {settings.throttle.burst} exceeds the {edge.API_BURST_LIMIT} that API Gateway accepts per account",
            f"set burst to at most {edge.API_BURST_LIMIT}",
        )


def _calculate_max_sessions(deployment: Deployment) -> int:
    """Return the maximum number of sessions, which the smaller of the VAD and ASR tiers limits."""
    ranges = sum_calls_by_tier(build_aws_tier_capacities(deployment.aws))
    return min(ranges[tier][1] for tier in (Tier.VAD, Tier.ASR) if tier in ranges)


@deployment_check(
    "edge-limits-fit-capacity",
    "The limits of callers allow as many sessions as the fleets support, and do not contradict each other.",
    source="https://docs.aws.amazon.com/waf/latest/developerguide/waf-rule-statement-type-rate-based.html; fleets at "
    "their maximum",
    level=Severity.WARNING,
)
def check_edge_limits_fit_capacity(deployment: Deployment) -> Iterator[Violation]:
    settings, capacity = deployment.aws.edge, _calculate_max_sessions(deployment)
    location: tuple[str, ...] = ("aws", "edge")
    creations_per_s = settings.caller_creations_per_s
    requests = creations_per_s * REQUESTS_PER_SESSION
    # A service may use one role session or API key for all of its users; a token belongs to one person.
    if isinstance(settings.authorizer, IamAuthorizer | ApiKeyAuthorizer):
        if settings.caller_sessions < capacity:
            yield Violation(
                (*location, "caller_sessions"),
                f"caller_sessions {settings.caller_sessions:,} limits a caller to "
                f"{settings.caller_sessions / capacity:.0%} of the {capacity:,} sessions that the fleets support; "
                f"with {settings.authorizer.kind}, a service is one caller",
                f"set caller_sessions to {capacity}, or accept this check if several services share the fleets",
            )
        limit, required = settings.throttle.requests_per_address_5_min, requests * WAF_WINDOW_S
        if limit < required:
            yield Violation(
                (*location, "throttle", "requests_per_address_5_min"),
                f"requests_per_address_5_min {limit:,} blocks an address that opens "
                f"{limit / required * creations_per_s:.1f} "
                f"sessions per second; caller_creations_per_s allows {creations_per_s}, which result in {required:,} "
                "requests",
                f"set requests_per_address_5_min to {required}, or lower caller_creations_per_s",
            )
    if settings.throttle.requests_per_s < requests:
        yield Violation(
            (*location, "throttle", "requests_per_s"),
            f"requests_per_s {settings.throttle.requests_per_s} for all callers is below the {requests} that a "
            f"single caller can cause with caller_creations_per_s {creations_per_s}, and block other callers",
            f"set requests_per_s to at least {requests}, or lower caller_creations_per_s",
        )
    load = deployment.load
    peak_rate = calculate_peak_requests_per_s(load) if load else 0
    if settings.throttle.requests_per_s < peak_rate:
        yield Violation(
            (*location, "throttle", "requests_per_s"),
            f"requests_per_s {settings.throttle.requests_per_s} for all callers is below the {peak_rate} of calls that "
            "begin at the peak, so API Gateway refuses some",
            f"set requests_per_s to at least {peak_rate}",
        )
    tasks, calls = (
        settings.gateway.tasks.max,
        find_limiting_bound(calculate_gateway_task_call_bounds(settings.gateway)).calls,
    )
    if tasks * calls < capacity:
        yield Violation(
            (*location, "gateway", "tasks", "max"),
            f"{tasks} tasks support {tasks * calls:,} sessions, {calls:,} each, but the fleets support {capacity:,}",
            f"set tasks.max to {-(-capacity // calls)}",
        )


@deployment_check(
    "placeholder-domain",
    "Outside the sandbox, the domain is not a reserved name.",
    source="RFC 2606, https://www.rfc-editor.org/rfc/rfc2606",
    level=Severity.WARNING,
)
def check_placeholder_domain(deployment: Deployment) -> Iterator[Violation]:
    domain = deployment.aws.edge.domain
    if domain is None or deployment.environment is Environment.SANDBOX:
        return
    if any(f".{domain.zone_name}".endswith(f".{reserved}") for reserved in PLACEHOLDER_DOMAINS):
        yield Violation(
            ("aws", "edge", "domain"),
            f"{domain.zone_name} is reserved for documentation: its certificate cannot be validated, so the deploy "
            "would not complete",
            "set zone_name to your own Route 53 zone",
        )


@deployment_check(
    "certificate-names-media-host",
    "The certificate of the TLS listener contains the host name that callers receive.",
    source="https://docs.aws.amazon.com/elasticloadbalancing/latest/network/tls-listener-certificates.html",
    level=Severity.WARNING,
)
def check_certificate_names_media_host(deployment: Deployment) -> Iterator[Violation]:
    settings = deployment.aws.edge
    if settings.certificate_arn is not None:
        yield Violation(
            ("aws", "edge", "certificate_arn"),
            f"{settings.certificate_arn} is set without a domain: callers receive the load balancer's own name, "
            "which your certificate does not contain",
            "set `domain` to your Route 53 zone instead, or map the names in the clients",
        )


@deployment_check(
    "certificate-in-region",
    "The certificate of the TLS listener is in the deployment's region and account.",
    source="https://docs.aws.amazon.com/acm/latest/userguide/acm-regions.html (certificates are regional)",
)
def check_certificate_in_region(deployment: Deployment) -> Iterator[Violation]:
    arn, aws = deployment.aws.edge.certificate_arn, deployment.aws
    if arn is None:
        return
    region, account = arn.split(":")[3:5]
    for attribute, actual, expected in (("region", region, aws.region), ("account", account, aws.account)):
        if expected and actual != expected:
            yield Violation(
                ("aws", "edge", "certificate_arn"),
                f"the certificate is in {attribute} {actual}, but the load balancer is in {expected}",
                f"request a certificate in {expected} and set its ARN here, or set `domain` to your Route 53 zone",
            )


@deployment_check(
    "cross-zone-cost",
    "Callers' audio incurs no charge for traffic between zones.",
    source="https://aws.amazon.com/ec2/pricing/on-demand/ (data transfer between zones, 0.01 USD/GB each way)",
    level=Severity.INFO,
)
def check_cross_zone_cost(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws
    zones = len(aws.availability_zones)
    if aws.edge.cross_zone and zones > 1:
        share = (zones - 1) / zones
        cost = 1000 * AUDIO_GB_PER_HOUR * share * CROSS_ZONE_USD_PER_GB
        yield Violation(
            ("aws", "edge", "cross_zone"),
            f"{share:.0%} of the audio crosses zones, which costs {cost:.2f} USD per hour with 1,000 callers",
            "keep it if callers overload the hosts of one zone while others are idle, or set cross_zone: false",
        )
