"""The gateway service: sessions, WebSocket audio, event streams."""

from dataclasses import dataclass

from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from constructs import Construct

from blueprint.aws import names
from blueprint.aws.edge import GATEWAY_DRAIN_TIMEOUT_S, api_host
from blueprint.capacity import FILL, gateway_sockets
from blueprint.contract.environment import (
    ALLOWED_ORIGINS,
    API_URL,
    AUTHORIZER,
    CALLER_CREATIONS_PER_S,
    CALLER_SESSIONS,
    DEPLOYMENT,
    DRAIN_TIMEOUT_S,
    END_OF_TURN_MS,
    FLEET,
    HTTP_PORT,
    IDLE_TIMEOUT_S,
    JWT_AUDIENCE,
    JWT_ISSUER,
    MAX_CONNECTIONS,
    MEDIA_HOST,
    MEDIA_PORT,
    OTHER_REGIONS,
    RECONNECT_GRACE_S,
    RTP_PORT,
    SESSION_MAX_S,
    TOKEN_TTL_S,
    TRACE_COLLECTOR,
    TRACED_SHARE,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from blueprint.contract.images import Image
from blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA, RTP, VALKEY, Tier
from blueprint.file.model.edge import JwtAuthorizer
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.fargate import FargateProps, FargateTier

UPLOADS = "uploads"


@dataclass(frozen=True)
class GatewayProps(FargateProps):
    """What ``Gateway`` is made from.

    Attributes:
        media_host: Host name that callers send audio to.
        media_targets: Target group of the WebSocket port.
        api_targets: Target group of the session API's port.
    """

    media_host: str
    media_targets: elbv2.NetworkTargetGroup
    api_targets: elbv2.NetworkTargetGroup


class Gateway(FargateTier):
    """The tasks that callers reach.

    The session API and the audio have ports of their own: API Gateway lets callers into the first, and the public
    load balancer reaches the second only, where nothing can be had without a session token.
    """

    tier = Tier.GATEWAY
    image = Image.GATEWAY

    def __init__(self, scope: Construct, id_: str, *, props: GatewayProps) -> None:
        super().__init__(scope, id_, props=props)
        settings = props.context.settings.gateway
        task = self._build_task(
            vcpu=settings.vcpu,
            memory_gib=settings.memory_gib,
            ports=(GATEWAY_HTTP, GATEWAY_MEDIA),
            environment=_environment(props.context, props.media_host),
        )
        # Files that callers send; of the 20 GiB that every task has.
        task.add_volume(name=UPLOADS)
        container = task.default_container
        assert container is not None  # noqa: S101  the task was built with one
        container.add_mount_points(ecs.MountPoint(source_volume=UPLOADS, container_path="/tmp", read_only=False))  # noqa: S108
        self.service = self._build_service(task, {GATEWAY_MEDIA: props.media_targets, GATEWAY_HTTP: props.api_targets})
        self._build_scaling(settings.tasks, "OpenSockets", names.GATEWAY_FLEET, FILL * gateway_sockets(settings))


def _environment(context: EdgeContext, media_host: str) -> dict[Variable, str]:
    settings = context.settings
    own = settings.domain
    jwt = settings.authorizer if isinstance(settings.authorizer, JwtAuthorizer) else None
    return {
        DEPLOYMENT: context.deployment.name,
        FLEET: names.GATEWAY_FLEET,
        VALKEY_PORT: str(VALKEY.number),
        VALKEY_USER: Tier.GATEWAY.value,
        HTTP_PORT: str(GATEWAY_HTTP.number),
        MEDIA_PORT: str(GATEWAY_MEDIA.number),
        RTP_PORT: str(RTP.number),
        TOKEN_TTL_S: str(settings.token_ttl_s),
        AUTHORIZER: settings.authorizer.kind,
        JWT_ISSUER: jwt.issuer if jwt else "",
        JWT_AUDIENCE: jwt.audience if jwt else "",
        ALLOWED_ORIGINS: ",".join(settings.allowed_origins),
        OTHER_REGIONS: ",".join(f"https://{api_host(domain)}" for domain in context.deployment.elsewhere),
        API_URL: f"https://{api_host(own)}" if own and context.deployment.of_all_regions else "",
        TRACE_COLLECTOR: settings.trace_collector or "",
        TRACED_SHARE: str(settings.traced_share),
        END_OF_TURN_MS: str(settings.end_of_turn_ms),
        RECONNECT_GRACE_S: str(settings.reconnect_grace_s),
        SESSION_MAX_S: str(settings.session_max_s),
        CALLER_SESSIONS: str(settings.caller_sessions),
        CALLER_CREATIONS_PER_S: str(settings.caller_creations_per_s),
        MAX_CONNECTIONS: str(gateway_sockets(settings.gateway)),
        MEDIA_HOST: media_host,
        IDLE_TIMEOUT_S: str(settings.idle_timeout_s),
        DRAIN_TIMEOUT_S: str(GATEWAY_DRAIN_TIMEOUT_S),
    }
