"""What the VAD fleet and the accelerator fleets have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

import userdata
from blueprint.contract.environment import (
    PROMETHEUS_PORT,
    TELEMETRY_SOURCES,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from blueprint.contract.images import UNPRIVILEGED_USER, Image
from blueprint.contract.network import PROMETHEUS, VALKEY, Tier
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import digest, held_back
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.host import HostRole, HostRoleProps
from voice_constructs.aws.logs import log_group
from voice_constructs.aws.network import VoiceNetwork
from voice_constructs.aws.registry import ImageRegistry
from voice_constructs.aws.retention import Retention
from voice_constructs.aws.state import PASSWORD_FIELD, ValkeyStore

Environment = Mapping[Variable, str]


@dataclass(frozen=True)
class FleetContext:
    """What every fleet is deployed into.

    Attributes:
        key: Key of the tier's volumes and logs.
        log_group: Of the tier's hosts and containers.
    """

    deployment: Deployment
    network: VoiceNetwork
    store: ValkeyStore
    registry: ImageRegistry
    key: EncryptionKey
    log_group: logs.ILogGroup

    def security_group(self, tier: Tier) -> ec2.ISecurityGroup:
        return self.network.security_groups[tier]

    def min_hosts(self, asked: int, images: Sequence[Image]) -> int:
        """Return the fewest hosts of a group: none while an image has no digest, which could never be ready."""
        return 0 if held_back(self.deployment, tuple(images)) else asked

    def image_uri(self, image: Image) -> str:
        """Return an image's address by digest; for an image without one, an address that pulls nothing."""
        return self.registry.repositories[image].repository_uri_for_digest(digest(self.deployment, image))

    def role(
        self, scope: Construct, id_: str, *, groups: Sequence[str], tier: Tier, images: Sequence[Image]
    ) -> HostRole:
        return HostRole(
            scope,
            id_,
            props=HostRoleProps(
                groups=groups,
                region=self.deployment.aws.region,
                repositories=[self.registry.repositories[image] for image in images],
                log_group=self.log_group,
                host_parameter=self.store.host_parameter,
                secret=self.store.secrets[tier],
                secret_key=self.store.key,
            ),
        )

    def shared_environment(self, tier: Tier) -> dict[str, str]:
        """Return what every container of a tier's hosts gets: the state store's port and user."""
        return {
            VALKEY_PORT.name: str(VALKEY.number),
            VALKEY_USER.name: tier.value,
        }

    def state_access(self, tier: Tier) -> userdata.StateAccess:
        """Return where a host finds the state store and its tier's password."""
        return userdata.StateAccess(
            host_parameter=self.store.host_parameter,
            secret_arn=self.store.secrets[tier].secret_arn,
            field=PASSWORD_FIELD,
        )

    def container(
        self, image: Image, environment: Environment, health: userdata.HealthPort, **hardware: object
    ) -> userdata.Container:
        """Return one container of a host."""
        return userdata.Container(
            name=image.value,
            image_uri=self.image_uri(image),
            environment={variable.name: value for variable, value in environment.items()},
            health=health,
            **hardware,  # type: ignore[arg-type]
        )

    def telemetry(self, sources: Sequence[str]) -> userdata.Container:
        """Return the container that publishes the fleet's metrics."""
        return self.container(
            Image.TELEMETRY,
            {
                TELEMETRY_SOURCES: ",".join(sources),
                PROMETHEUS_PORT: str(PROMETHEUS.number),
            },
            userdata.HealthPort(PROMETHEUS.number),
            user_id=UNPRIVILEGED_USER,
        )


def fleet_context(
    scope: Construct,
    *,
    tier: Tier,
    deployment: Deployment,
    network: VoiceNetwork,
    store: ValkeyStore,
    registry: ImageRegistry,
    retention: Retention,
) -> FleetContext:
    """Make a tier's key and log group, and gather what its fleets need."""
    key = EncryptionKey(scope, "Key", purpose=f"volumes and logs of the {tier} tier", removal_policy=retention.keys)
    key.allow_logs(deployment.aws.region)
    key.allow_auto_scaling()
    group = log_group(
        scope,
        "Logs",
        key=key,
        retention_days=deployment.aws.observability.log_retention_days,
        removal_policy=retention.logs,
        name=f"/voice/{deployment.name}/{tier}",
    )
    return FleetContext(deployment, network, store, registry, key, group)
