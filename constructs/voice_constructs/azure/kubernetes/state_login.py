"""How pods sign in to the state store: its name in a file, and a sidecar that keeps a token fresh in another."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from blueprint.azure.contract import Component
from blueprint.azure.names import ClusterOutput
from blueprint.contract.environment import VALKEY_USER
from blueprint.contract.images import Image
from blueprint.engines.launch.callers import (
    IDENTITY_TOKEN_DIR,
    STATE_HOST_DIR,
    STATE_TOKEN,
    STATE_TOKEN_DIR,
    STATE_TOKEN_FILE,
)
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata
from voice_constructs.azure.kubernetes.pods import LaunchedContainer, Mount, Probe, Share, Volume

CONFIG = "state"
SHARE = Share(cpus=0.05, memory_gib=0.125)
"""Of the sidecar: Python that sleeps. ASSUMED, not measured."""
AUDIENCE = "api://AzureADTokenExchange"
IDENTITY_TOKEN_S = 3600


class StateLogin(pulumi.ComponentResource):
    """The ConfigMap with the store's name, and what each tier's pods need beside it.

    A store that is made anew has the same name or another: pods see the file change and connect again.

    Attributes:
        config: The ConfigMap.
    """

    def __init__(
        self, name: str, *, context: ClusterContext, cluster: pulumi.StackReference, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(f"{TYPE_PREFIX}:StateLogin", name, None, opts)
        self._context = context
        self._identities = cluster.require_output(ClusterOutput.CALLER_IDENTITIES)
        self._tenant = cluster.require_output(ClusterOutput.TENANT_ID)
        self.config = k8s.core.v1.ConfigMap(
            CONFIG,
            metadata=metadata(CONFIG, context.namespace),
            data={"host": cluster.require_output(ClusterOutput.STATE_HOST)},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

    def client_id(self, tier: Component) -> pulumi.Output[str]:
        """Return what a tier's pods sign in to Microsoft Entra as."""
        return self._identities.apply(lambda found: found[tier.value]["clientId"])

    def environment(self, tier: Component) -> Mapping[str, pulumi.Input[str]]:
        """Return the tier's user of the store, for its main container."""
        return {VALKEY_USER.name: self._identities.apply(lambda found: found[tier.value]["principalId"])}

    def mounts(self) -> Sequence[Mount]:
        """Return what the main container reads."""
        return [
            Mount(name="state", mount_path=STATE_HOST_DIR, read_only=True),
            Mount(name="token", mount_path=STATE_TOKEN_DIR, read_only=True),
        ]

    def sidecar(self, tier: Component) -> LaunchedContainer:
        """Return the container that keeps the token fresh; the main one starts when there is the first."""
        return LaunchedContainer(
            name="state-token",
            image=self._context.image_uri(Image.GATEWAY),
            launcher=STATE_TOKEN,
            share=SHARE,
            ports={},
            extra_environment={"AZURE_CLIENT_ID": self.client_id(tier), "AZURE_TENANT_ID": self._tenant},
            mounts=[
                Mount(name="token", mount_path=STATE_TOKEN_DIR),
                Mount(name="identity", mount_path=IDENTITY_TOKEN_DIR, read_only=True),
            ],
            startup=Probe(
                exec_=k8s.core.v1.ExecActionArgs(command=["test", "-s", STATE_TOKEN_FILE]),
                period_seconds=2,
                failure_threshold=150,
            ),
            sidecar=True,
        )

    def volumes(self) -> Sequence[Volume]:
        """Return the volumes behind the mounts. The service account's token is the sidecar's alone."""
        identity = k8s.core.v1.ServiceAccountTokenProjectionArgs(
            audience=AUDIENCE, expiration_seconds=IDENTITY_TOKEN_S, path="token"
        )
        return [
            Volume(name="state", config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(name=CONFIG)),
            Volume(name="token", empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit="1Mi")),
            Volume(
                name="identity",
                projected=k8s.core.v1.ProjectedVolumeSourceArgs(
                    sources=[k8s.core.v1.VolumeProjectionArgs(service_account_token=identity)]
                ),
            ),
        ]
