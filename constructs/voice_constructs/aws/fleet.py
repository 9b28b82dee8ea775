"""Common code for the VAD fleet and the accelerator fleets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

import voice_userdata
from voice_blueprint.contract.environment import (
    PROMETHEUS_PORT,
    TELEMETRY_SOURCES,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from voice_blueprint.contract.images import UNPRIVILEGED_UID, Image
from voice_blueprint.contract.network import PROMETHEUS, VALKEY, Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import get_image_digest, lacks_digests
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.host import HostRole, HostRoleProps
from voice_constructs.aws.logs import create_log_group
from voice_constructs.aws.network import VoiceNetwork
from voice_constructs.aws.registry import ImageRegistry
from voice_constructs.aws.retention import Retention
from voice_constructs.aws.state import PASSWORD_FIELD, ValkeyStore

Environment = Mapping[Variable, str]


@dataclass(frozen=True)
class FleetContext:
    """Context that the fleets of a tier share.

    Attributes:
        key: Encryption key of the tier's volumes and logs.
        log_group: Log group of the tier's hosts and containers.
    """

    deployment: Deployment
    network: VoiceNetwork
    store: ValkeyStore
    registry: ImageRegistry
    key: EncryptionKey
    log_group: logs.ILogGroup

    def get_security_group(self, tier: Tier) -> ec2.ISecurityGroup:
        return self.network.security_groups[tier]

    def calculate_min_hosts(self, configured: int, images: Sequence[Image]) -> int:
        """Return the minimum number of hosts in a group.

        The minimum is 0 while an image has no digest, since hosts could never become ready.
        """
        return 0 if lacks_digests(self.deployment, tuple(images)) else configured

    def get_image_uri(self, image: Image) -> str:
        """Return the URI of an image with its digest. The URI cannot be pulled if the image has no digest."""
        return self.registry.repositories[image].repository_uri_for_digest(get_image_digest(self.deployment, image))

    def create_role(
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
                store_host_parameter_name=self.store.host_parameter,
                secret=self.store.secrets[tier],
                secret_encryption_key=self.store.key,
            ),
        )

    def build_shared_environment(self, tier: Tier) -> dict[str, str]:
        """Return the variables for all containers on a tier's hosts: port and user of the state store."""
        return {
            VALKEY_PORT.name: str(VALKEY.number),
            VALKEY_USER.name: tier.value,
        }

    def create_state_access(self, tier: Tier) -> voice_userdata.StateStoreConnection:
        """Return the parameter with the state store's host name, and the secret with the tier's password."""
        return voice_userdata.StateStoreConnection(
            host_parameter=self.store.host_parameter,
            secret_arn=self.store.secrets[tier].secret_arn,
            password_field=PASSWORD_FIELD,
        )

    def create_container(
        self, image: Image, environment: Environment, health: voice_userdata.PortReadinessCheck, **hardware: object
    ) -> voice_userdata.Container:
        """Return a container for a host."""
        return voice_userdata.Container(
            name=image.value,
            image_uri=self.get_image_uri(image),
            environment={variable.name: value for variable, value in environment.items()},
            health=health,
            **hardware,  # type: ignore[arg-type]
        )

    def create_telemetry_container(self, sources: Sequence[str]) -> voice_userdata.Container:
        """Return the container that publishes the fleet's metrics."""
        return self.create_container(
            Image.TELEMETRY,
            {
                TELEMETRY_SOURCES: ",".join(sources),
                PROMETHEUS_PORT: str(PROMETHEUS.number),
            },
            voice_userdata.PortReadinessCheck(PROMETHEUS.number),
            user_id=UNPRIVILEGED_UID,
        )


def create_fleet_context(
    scope: Construct,
    *,
    tier: Tier,
    deployment: Deployment,
    network: VoiceNetwork,
    store: ValkeyStore,
    registry: ImageRegistry,
    retention: Retention,
) -> FleetContext:
    """Create the key and the log group for a tier, and return the context for its fleets."""
    key = EncryptionKey(scope, "Key", purpose=f"volumes and logs of the {tier} tier", removal_policy=retention.keys)
    key.allow_logs(deployment.aws.region)
    key.allow_auto_scaling()
    group = create_log_group(
        scope,
        "Logs",
        key=key,
        retention_days=deployment.aws.observability.log_retention_days,
        removal_policy=retention.logs,
        name=f"/voice/{deployment.name}/{tier}",
    )
    return FleetContext(deployment, network, store, registry, key, group)
