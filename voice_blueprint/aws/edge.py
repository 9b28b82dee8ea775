"""Limits of API Gateway, Fargate and Route 53, and the gateway settings that result from them."""

from voice_blueprint.environment import GATEWAY_DRAIN_TIMEOUT_S
from voice_blueprint.file.model.edge import Domain

FARGATE_STOP_TIMEOUT_S = 120
"""Maximum time from SIGTERM to SIGKILL on Fargate. Source:
https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html (stopTimeout)"""

AGENT_DRAIN_TIMEOUT_S = GATEWAY_DRAIN_TIMEOUT_S
"""Drain timeout of an agent. Within this time, each conversation ends or its client is instructed, between two turns,
to reconnect to another agent."""
AGENT_VCPU, AGENT_MEMORY_GIB = 1, 2
"""Size of an agent's task. One process uses one core, and Fargate requires at least 2 GiB for 1 vCPU. Eight
conversations use 0.3 GiB."""

STREAM_TIMEOUT_S = 900
"""Maximum duration of a streamed response on API Gateway; callers resume with ``Last-Event-ID``."""
STREAM_IDLE_TIMEOUT_S = 300
"""Idle timeout of a streamed response on a Regional endpoint. Source of both timeouts:
https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode.html"""

API_BURST_LIMIT = 5_000
"""Default burst quota of API Gateway per account and region, in requests. Source:
https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html"""


HEALTH_CHECK_INTERVAL_S = 10
"""Interval between the requests of each Route 53 health checker. An interval of 30 s would cost a third as much, but
would detect failures later."""
HEALTH_CHECK_FAILURE_THRESHOLD = 3
"""Number of consecutive failed health checks after which a region counts as unhealthy: Route 53's default."""
ALIAS_TTL_S = 60
"""TTL of alias records. Sources of the health check settings and the TTL:
https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/health-checks-creating-values.html and
resource-record-sets-values-alias-common.html"""


def build_api_hostname(domain: Domain) -> str:
    """Return the host name of the session API."""
    return f"api.{domain.name}"


def build_agent_hostname(domain: Domain) -> str:
    """Return the host name for the agents."""
    return f"agent.{domain.name}"


def build_media_hostname(domain: Domain) -> str:
    """Return the host name of the public load balancer's listeners."""
    return f"media.{domain.name}"
