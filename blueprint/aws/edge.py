"""What AWS allows at the edge, and what follows from it for the gateway."""

from blueprint.file.model.edge import Domain

FARGATE_STOP_TIMEOUT_S = 120
"""Longest from SIGTERM to SIGKILL that Fargate grants.
Source: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html (stopTimeout)"""

GATEWAY_DRAIN_TIMEOUT_S = FARGATE_STOP_TIMEOUT_S - 10
"""What a stopping task gives its callers to move; the rest is for its last logs and metrics."""

AGENT_DRAIN_TIMEOUT_S = GATEWAY_DRAIN_TIMEOUT_S
"""The same of an agent: conversations end in it, or are told between two turns to go on at another."""
AGENT_VCPU, AGENT_MEMORY_GIB = 1, 2
"""Of a task: one process uses one core, and 2 GiB are the least that Fargate sells with it; eight conversations take
0.3."""

STREAM_TIMEOUT_S = 900
"""Longest that API Gateway keeps a streamed response open; callers resume with ``Last-Event-ID``."""
STREAM_IDLE_S = 300
"""Longest silence on a streamed response of a Regional endpoint.
Source of both: https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode.html"""

API_RATE_PER_S = 10_000
API_BURST = 5_000
"""Requests that API Gateway takes from an account in a region, by default.
Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html"""


HEALTH_CHECK_INTERVAL_S = 10
"""Between two questions of each of Route 53's checkers; 30 would be a third of the price, and of the haste."""
HEALTH_CHECK_FAILURES = 3
"""Answers in a row that fail before a region counts as gone, as Route 53 has it by default."""
ALIAS_TTL_S = 60
"""How long resolvers keep an alias record.
Source of all: https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/health-checks-creating-values.html and
resource-record-sets-values-alias-common.html"""


def api_host(domain: Domain) -> str:
    """Return the host name of the session API."""
    return f"api.{domain.name}"


def agent_host(domain: Domain) -> str:
    """Return the host name of conversations."""
    return f"agent.{domain.name}"


def media_host(domain: Domain) -> str:
    """Return the host name of the public load balancer's listeners."""
    return f"media.{domain.name}"
