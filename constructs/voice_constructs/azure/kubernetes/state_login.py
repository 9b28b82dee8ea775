"""Signs pods in to the state store, with a file for the host name and a sidecar that refreshes a token file."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.contract.environment import ARCHIVE_URL, VALKEY_USER
from voice_blueprint.contract.images import Image
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext, create_metadata
from voice_constructs.azure.kubernetes.pods import ContainerResources, ContainerSpec, Mount, Probe, Volume
from voice_constructs.azure.kubernetes.programs import (
    IDENTITY_TOKEN_DIR,
    STATE_HOST_DIR,
    STATE_TOKEN_DIR,
    STATE_TOKEN_FILE,
    STATE_TOKEN_PROGRAM,
)

CONFIG_MAP_NAME = "state"
SIDECAR_RESOURCES = ContainerResources(cpus=0.05, memory_gib=0.125)
"""Resources of the sidecar, a Python program that mostly sleeps. ASSUMED, not measured."""
IDENTITY_MOUNT = Mount(name="identity", mount_path=IDENTITY_TOKEN_DIR, read_only=True)
TOKEN_AUDIENCE = "api://AzureADTokenExchange"  # noqa: S105  not a secret
IDENTITY_TOKEN_LIFETIME_S = 3600


class StateLogin(pulumi.ComponentResource):
    """The ConfigMap with the store's host name, and the sign-in parts of each tier's pods.

    A recreated store may have another host name. Pods detect the changed file and reconnect.

    Attributes:
        config: The ConfigMap.
    """

    def __init__(
        self, name: str, *, context: ClusterContext, cluster: pulumi.StackReference, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:StateLogin", name, None, opts)
        self._context = context
        self._identities = cluster.require_output(ClusterOutput.CALLER_IDENTITIES)
        self._tenant = cluster.require_output(ClusterOutput.TENANT_ID)
        self.config = k8s.core.v1.ConfigMap(
            CONFIG_MAP_NAME,
            metadata=create_metadata(CONFIG_MAP_NAME, context.namespace),
            data={"host": cluster.require_output(ClusterOutput.STATE_HOST)},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

    def get_client_id(self, tier: Component) -> pulumi.Output[str]:
        """Return the client id that a tier's pods use to sign in to Microsoft Entra."""
        return self._identities.apply(lambda identities: identities[tier.value]["clientId"])

    def build_environment(self, tier: Component) -> Mapping[str, pulumi.Input[str]]:
        """Return the variable with the tier's store user for the main container."""
        return {VALKEY_USER.name: self._identities.apply(lambda identities: identities[tier.value]["principalId"])}

    def build_archive_environment(
        self, cluster: pulumi.StackReference, tier: Component
    ) -> Mapping[str, pulumi.Input[str]]:
        """Return the variables with which a tier's main container accesses the archive."""
        return {
            ARCHIVE_URL.name: cluster.require_output(ClusterOutput.ARCHIVE_URL),
            "AZURE_CLIENT_ID": self.get_client_id(tier),
            "AZURE_TENANT_ID": self._tenant,
            "AZURE_FEDERATED_TOKEN_FILE": f"{IDENTITY_TOKEN_DIR}/token",
        }

    def create_mounts(self) -> Sequence[Mount]:
        """Return the mounts for the store's host name and token."""
        return [
            Mount(name="state", mount_path=STATE_HOST_DIR, read_only=True),
            Mount(name="token", mount_path=STATE_TOKEN_DIR, read_only=True),
        ]

    def create_sidecar(self, tier: Component) -> ContainerSpec:
        """Return the container that refreshes the token. The main container starts after the first token."""
        return ContainerSpec(
            name="state-token",
            image=self._context.get_image_uri(Image.GATEWAY),
            launcher=STATE_TOKEN_PROGRAM,
            resources=SIDECAR_RESOURCES,
            ports={},
            extra_environment={"AZURE_CLIENT_ID": self.get_client_id(tier), "AZURE_TENANT_ID": self._tenant},
            mounts=[Mount(name="token", mount_path=STATE_TOKEN_DIR), IDENTITY_MOUNT],
            startup=Probe(
                exec_=k8s.core.v1.ExecActionArgs(command=["test", "-s", STATE_TOKEN_FILE]),
                period_seconds=2,
                failure_threshold=150,
            ),
            is_sidecar=True,
        )

    def create_volumes(self) -> Sequence[Volume]:
        """Return the volumes for the mounts, including the service account token for Azure."""
        identity = k8s.core.v1.ServiceAccountTokenProjectionArgs(
            audience=TOKEN_AUDIENCE, expiration_seconds=IDENTITY_TOKEN_LIFETIME_S, path="token"
        )
        return [
            Volume(name="state", config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(name=CONFIG_MAP_NAME)),
            Volume(name="token", empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit="1Mi")),
            Volume(
                name="identity",
                projected=k8s.core.v1.ProjectedVolumeSourceArgs(
                    sources=[k8s.core.v1.VolumeProjectionArgs(service_account_token=identity)]
                ),
            ),
        ]
