"""The gateway service: sessions, WebSocket audio, event streams."""

from dataclasses import dataclass

from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from constructs import Construct

from voice_blueprint.aws import names
from voice_blueprint.aws.edge import build_api_hostname
from voice_blueprint.capacity.bounds import calculate_max_gateway_sockets
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION
from voice_blueprint.contract.environment import (
    API_URL,
    ARCHIVE_URL,
    OTHER_REGIONS,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA, VALKEY, Tier
from voice_blueprint.environment import build_gateway_environment
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.fargate import FargateProps, FargateTier
from voice_constructs.aws.transcripts import TranscriptArchive

UPLOADS_VOLUME = "uploads"


@dataclass(frozen=True)
class GatewayProps(FargateProps):
    """Properties of ``Gateway``.

    Attributes:
        media_host: Host name that callers send audio to.
        media_target_group: Target group of the WebSocket port.
        api_target_group: Target group of the session API's port.
    """

    media_host: str
    media_target_group: elbv2.NetworkTargetGroup
    api_target_group: elbv2.NetworkTargetGroup


class Gateway(FargateTier):
    """The tasks that serve callers.

    The session API and the audio have separate ports. API Gateway only reaches the API port, and the public load
    balancer only reaches the audio port, on which every request requires a session token.
    """

    tier = Tier.GATEWAY
    image = Image.GATEWAY

    def __init__(self, scope: Construct, id_: str, *, props: GatewayProps) -> None:
        super().__init__(scope, id_, props=props)
        settings = props.context.settings.gateway
        archive = self._build_archive()
        task = self._build_task(
            vcpu=settings.vcpu,
            memory_gib=settings.memory_gib,
            ports=(GATEWAY_HTTP, GATEWAY_MEDIA),
            environment={
                **_build_environment(props.context, props.media_host),
                ARCHIVE_URL: archive.url if archive else "",
            },
        )
        if archive:
            archive.grant_access(task.task_role, region=props.context.deployment.aws.region)
        # Volume for uploaded files; every task has 20 GiB of storage.
        task.add_volume(name=UPLOADS_VOLUME)
        container = task.default_container
        assert container is not None  # noqa: S101  the task was built with one
        container.add_mount_points(ecs.MountPoint(source_volume=UPLOADS_VOLUME, container_path="/tmp", read_only=False))  # noqa: S108
        self.service = self._build_service(
            task, {GATEWAY_MEDIA: props.media_target_group, GATEWAY_HTTP: props.api_target_group}
        )
        self._build_scaling(
            settings.tasks,
            "OpenSockets",
            names.GATEWAY_FLEET,
            TARGET_UTILIZATION * calculate_max_gateway_sockets(settings),
        )

    def _build_archive(self) -> TranscriptArchive | None:
        context = self._props.context
        if (settings := context.settings.archive) is None:
            return None
        return TranscriptArchive(
            self, "Archive", retention_days=settings.retention_days, removal_policy=context.retention.keys
        )


def _build_environment(context: EdgeContext, media_host: str) -> dict[Variable, str]:
    deployment, settings = context.deployment, context.settings
    own_domain = settings.domain
    shared = build_gateway_environment(
        deployment,
        settings,
        fleet=names.GATEWAY_FLEET,
        sockets=calculate_max_gateway_sockets(settings.gateway),
        media_host=media_host,
    )
    return shared | {
        VALKEY_PORT: str(VALKEY.number),
        VALKEY_USER: Tier.GATEWAY.value,
        OTHER_REGIONS: ",".join(f"https://{build_api_hostname(domain)}" for domain in deployment.other_region_domains),
        **({API_URL: f"https://{build_api_hostname(own_domain)}"} if own_domain and deployment.shared_domain else {}),
    }
