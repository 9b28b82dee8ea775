"""What AWS allows at the edge, and what follows from it for the gateway."""

from blueprint.file.model.edge import Domain

FARGATE_STOP_TIMEOUT_S = 120
"""Longest from SIGTERM to SIGKILL that Fargate grants.
Source: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html (stopTimeout)"""

GATEWAY_DRAIN_TIMEOUT_S = FARGATE_STOP_TIMEOUT_S - 10
"""What a stopping task gives its callers to move; the rest is for its last logs and metrics."""

STREAM_TIMEOUT_S = 900
"""Longest that API Gateway keeps a streamed response open; callers resume with ``Last-Event-ID``."""
STREAM_IDLE_S = 300
"""Longest silence on a streamed response of a Regional endpoint.
Source of both: https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode.html"""

API_RATE_PER_S = 10_000
API_BURST = 5_000
"""Requests that API Gateway takes from an account in a region, by default.
Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html"""


def api_host(domain: Domain) -> str:
    """Return the host name of the session API."""
    return f"api.{domain.name}"


def media_host(domain: Domain) -> str:
    """Return the host name of the public load balancer's listeners."""
    return f"media.{domain.name}"
