"""Checks on interdependent limits for callers, and on URLs, on either cloud."""

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from voice_blueprint.checks.base import Violation, deployment_check
from voice_blueprint.day import LoadCurveError, resolve_design_load_curve
from voice_blueprint.file.model.agents import AgentPods, AwsAgents, Endpoint
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.model.edge import CallerSettings, JwtAuthorizer, NoAuthorizer
from voice_blueprint.file.source import Location

LOCAL_TOP_LEVEL_DOMAINS = (
    *("localhost", "local", "internal", "test", "invalid", "example"),
    *("arpa", "home", "corp", "lan"),
)
"""Top-level names without public web pages (RFC 2606, RFC 6761, RFC 6762, RFC 8375, ICANN's reservation of 2024 and its
resolution of 2018 on names of private networks)."""
RENEWALS_PER_TTL = 2
"""Ratio of a token's lifetime to the interval at which event streams deliver a new token
(images/gateway/src/voice_gateway/event_stream.py)."""


@deployment_check(
    "session-limits-agree",
    "A caller who reconnects within the grace period has a valid token for a session that still exists.",
    source="images/gateway/src/voice_gateway: a token is verified when a caller reconnects; event streams renew it",
)
def check_session_limits_agree(deployment: Deployment) -> Iterator[Violation]:
    for at, rules in _iter_caller_rules(deployment):
        min_validity_s = rules.token_ttl_s // RENEWALS_PER_TTL
        if rules.reconnect_grace_s > min_validity_s:
            yield Violation(
                (*at, "reconnect_grace_s"),
                f"reconnect_grace_s {rules.reconnect_grace_s} exceeds {min_validity_s} s, the minimum remaining "
                "validity of "
                f"a token (half of token_ttl_s {rules.token_ttl_s}, after which it is renewed): callers who "
                "reconnect later are refused",
                f"set reconnect_grace_s to at most {min_validity_s}, or token_ttl_s to at least "
                f"{rules.reconnect_grace_s * RENEWALS_PER_TTL}",
            )
        for name in ("reconnect_grace_s", "idle_timeout_s"):
            if (value := getattr(rules, name)) > rules.session_max_s:
                yield Violation(
                    (*at, name),
                    f"{name} {value} exceeds session_max_s {rules.session_max_s}: the session ends first",
                    f"set {name} to at most {rules.session_max_s}",
                )


@deployment_check(
    "archive-knows-callers",
    "Transcripts are archived only if callers are authenticated, since each may read and delete those of its own "
    "sessions.",
    source="images/gateway/src/voice_gateway/transcript_routes.py: a transcript belongs to the caller that opened the "
    "session",
)
def check_archive_callers_authenticated(deployment: Deployment) -> Iterator[Violation]:
    for at, rules in _iter_caller_rules(deployment):
        authorizer = getattr(rules, "authorizer", None)
        if rules.archive and isinstance(authorizer, NoAuthorizer):
            yield Violation(
                (*at, "archive"),
                "archive is set with authorizer none: callers are anonymous, so anyone could read and delete "
                "transcripts",
                "use another authorizer, or omit archive",
            )


@deployment_check(
    "calls-fit-session",
    "The mean call of the load is no longer than a session, nor than the longest call of an engine.",
    source="images/gateway/src/voice_gateway/session_routes.py: a session ends after session_max_s",
)
def check_calls_fit_session(deployment: Deployment) -> Iterator[Violation]:
    if deployment.load is None:
        return
    mean_s, minutes = deployment.load.minutes_each * 60, deployment.load.minutes_each
    limits = [("session_max_s", rules.session_max_s) for _, rules in _iter_caller_rules(deployment)]
    limits += [(f"longest_call_s of {name}", seconds) for name, seconds in _iter_max_call_durations(deployment)]
    for name, limit_s in limits:
        if mean_s > limit_s:
            yield Violation(
                ("load", "minutes_each"),
                f"minutes_each {minutes:g} exceeds {name} {limit_s} ({limit_s / 60:g} minutes): the mean cannot "
                "exceed the maximum",
                f"set minutes_each to at most {limit_s / 60:g}, or {name} to at least {mean_s:.0f}",
            )


@deployment_check(
    "day-fits-load",
    "The CSV file in `load.curve` is readable, and matches the mean and the peak of the load.",
    source="voice_blueprint/day.py: cost, simulation and alerts use the same day",
)
def check_load_curve_fits_load(deployment: Deployment) -> Iterator[Violation]:
    if deployment.load is None:
        return
    try:
        resolve_design_load_curve(deployment)
    except LoadCurveError as error:
        yield Violation(("load", "curve"), str(error), "create the file, or use flat, business-day or spike")


def _iter_max_call_durations(deployment: Deployment) -> Iterator[tuple[str, int]]:
    loads = (
        [(each.name, each.vllm.load) for each in deployment.aws_section.asr if each.vllm]
        if deployment.aws_section
        else []
    )
    loads += [
        (each.name, load)
        for each in (deployment.azure_section.services if deployment.azure_section else ())
        if (load := getattr(each, "load", None))
    ]
    for name, load in loads:
        if load.longest_call_s is not None:
            yield name, load.longest_call_s


@deployment_check(
    "origins-are-public",
    "In production, web pages with access to the session API are on the public internet.",
    source="https://fetch.spec.whatwg.org/#origin-header; any program on a caller's machine can serve localhost",
)
def check_origins_are_public(deployment: Deployment) -> Iterator[Violation]:
    if deployment.environment is not Environment.PRODUCTION:
        return
    for at, rules in _iter_caller_rules(deployment):
        for index, origin in enumerate(rules.allowed_origins):
            if is_local_url(origin):
                yield Violation(
                    (*at, "allowed_origins", index),
                    f"{origin} is on the caller's own machine or network, where any program can serve it",
                    "specify the https:// address of your page, and local addresses only in files of other "
                    "environments",
                )


@deployment_check(
    "endpoints-are-reachable",
    "Outside the sandbox, no program uses an address of the machine that it runs on.",
    source="RFC 6761, section 6.3 (localhost)",
)
def check_endpoints_are_reachable(deployment: Deployment) -> Iterator[Violation]:
    if deployment.environment is Environment.SANDBOX:
        return
    for at, url in _iter_called_urls(deployment):
        if is_local_url(url, private=False):
            yield Violation(
                at,
                f"{url} is an address of the task or pod itself, or of its link",
                "specify the address of the service",
            )


def is_local_url(url: str, *, private: bool = True) -> bool:
    """Return True if a URL refers to the local machine or to a link-local address.

    With ``private``, URLs of private networks count as well.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        parent, _, last_label = host.rpartition(".")
        return last_label in LOCAL_TOP_LEVEL_DOMAINS or not parent if private else last_label == "localhost"
    is_host_local = address.is_loopback or address.is_unspecified or address.is_link_local
    return is_host_local or (private and not address.is_global)


def _iter_called_urls(deployment: Deployment) -> Iterator[tuple[Location, str]]:
    """Yield every URL that a program of the deployment calls, with its location in the file."""
    sections: list[tuple[Location, AwsAgents | AgentPods | None]] = []
    if deployment.aws_section:
        sections.append((("aws",), deployment.aws_section.agents))
        if isinstance(authorizer := deployment.aws_section.edge.authorizer, JwtAuthorizer):
            yield ("aws", "edge", "authorizer", "issuer"), authorizer.issuer
    if deployment.azure_section:
        sections.append((("azure",), deployment.azure_section.agents))
    for at, rules in _iter_caller_rules(deployment):
        if rules.trace_collector:
            yield (*at, "trace_collector"), rules.trace_collector
    for at, agents in sections:
        for name in ("chat", "speech") if agents else ():
            if isinstance(engine := getattr(agents, name), Endpoint):
                yield (*at, "agents", name, "url"), engine.url
        if agents and agents.tools_url:
            yield (*at, "agents", "tools_url"), agents.tools_url


def _iter_caller_rules(deployment: Deployment) -> Iterator[tuple[Location, CallerSettings]]:
    if deployment.aws_section:
        yield ("aws", "edge"), deployment.aws_section.edge
    if deployment.azure_section and deployment.azure_section.callers:
        yield ("azure", "callers", "edge"), deployment.azure_section.callers.edge
