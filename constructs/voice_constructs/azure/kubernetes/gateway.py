"""The gateway on the cluster: sessions, WebSocket audio, event streams, behind the edge's application gateway."""

import pulumi
import pulumi_kubernetes as k8s

from blueprint.azure.contract import GATEWAY_HEALTH, Component
from blueprint.azure.names import TOKEN_KEY_SECRET, ClusterOutput
from blueprint.azure.ranges import gateway_address
from blueprint.capacity import gateway_pod_sockets
from blueprint.contract.environment import TOKEN_KEY
from blueprint.contract.images import Image
from blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA, PROMETHEUS
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.engines.launch.callers import GATEWAY_DRAIN_TIMEOUT_S, gateway
from blueprint.file.model.azure_callers import AzureEdge
from blueprint.hosts import CALLER_TIER_IMAGES
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import PRE_STOP_S, LaunchedContainer, Mount, Share, Volume, http_probe
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import METRICS_PORT

NAME = Component.GATEWAY.value
SECRETS = "gateway-secrets"
"""Name of what brings the key of session tokens from the vault, and of the secret that it becomes."""
SECRETS_DIR = "/run/voice/secrets"
"""Where the pod mounts it, without which there is no secret."""


class Gateway(pulumi.ComponentResource):
    """Its pods, the key that they sign tokens with, and a load balancer with an address of the nodes' range.

    Attributes:
        pods: The pods.
        load_balancer: Leads the application gateway to them, and shows them its address.
    """

    def __init__(
        self,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        edge: AzureEdge,
        login: StateLogin,
        scaling: Scaling,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{TYPE_PREFIX}:GatewayService", NAME, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        secrets = self._build_secrets(context, cluster, login)
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=Component.GATEWAY,
                main=self._container(context, edge, login),
                sidecars=[login.sidecar(Component.GATEWAY)],
                bounds=edge.gateway.replicas,
                drain_s=GATEWAY_DRAIN_TIMEOUT_S,
                images=CALLER_TIER_IMAGES[Component.GATEWAY],
                volumes=[*login.volumes(), _secrets_volume()],
            ),
            needs=[login.config, secrets],
            opts=child,
        )
        self.load_balancer = LoadBalancer(
            NAME,
            context=context,
            selector=self.pods.selector,
            ports=[GATEWAY_HTTP, GATEWAY_MEDIA],
            health=GATEWAY_HEALTH,
            reason="the application gateway reaches it; its address is of the nodes' range",
            annotations={
                "azure-load-balancer-internal": "true",
                "azure-load-balancer-ipv4": gateway_address(context.azure.network.cidr),
            },
            opts=child,
        )
        self.register_outputs({})

    def _build_secrets(
        self, context: ClusterContext, cluster: pulumi.StackReference, login: StateLogin
    ) -> k8s.apiextensions.CustomResource:
        return k8s.apiextensions.CustomResource(
            SECRETS,
            api_version="secrets-store.csi.x-k8s.io/v1",
            kind="SecretProviderClass",
            metadata=metadata(SECRETS, context.namespace),
            spec={
                "provider": "azure",
                "parameters": {
                    "clientID": login.client_id(Component.GATEWAY),
                    "tenantID": cluster.require_output(ClusterOutput.TENANT_ID),
                    "keyvaultName": cluster.require_output(ClusterOutput.VAULT_NAME),
                    "objects": f"array:\n  - |\n    objectName: {TOKEN_KEY_SECRET}\n    objectType: secret\n",
                },
                "secretObjects": [
                    {
                        "secretName": SECRETS,
                        "type": "Opaque",
                        "data": [{"objectName": TOKEN_KEY_SECRET, "key": TOKEN_KEY_SECRET}],
                    }
                ],
            },
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _container(self, context: ClusterContext, edge: AzureEdge, login: StateLogin) -> LaunchedContainer:
        key = k8s.core.v1.SecretKeySelectorArgs(name=SECRETS, key=TOKEN_KEY_SECRET)
        return LaunchedContainer(
            name=NAME,
            image=context.image_uri(Image.GATEWAY),
            launcher=gateway(context.deployment, edge, gateway_pod_sockets(edge.gateway)),
            share=Share(edge.gateway.cpus, edge.gateway.memory_gib),
            ports={"http": GATEWAY_HTTP, "media": GATEWAY_MEDIA, METRICS_PORT: PROMETHEUS},
            startup=http_probe(GATEWAY_HTTP, HEALTH_PATH, period_s=2, failures=60),
            # It says that it is unwell while the store is away, which no restart mends.
            readiness=http_probe(GATEWAY_HTTP, HEALTH_PATH, period_s=5, failures=2),
            extra_environment=login.environment(Component.GATEWAY),
            sources={TOKEN_KEY.name: k8s.core.v1.EnvVarSourceArgs(secret_key_ref=key)},
            mounts=[*login.mounts(), Mount(name="secrets", mount_path=SECRETS_DIR, read_only=True)],
            pre_stop_s=PRE_STOP_S,
        )


def _secrets_volume() -> Volume:
    source = k8s.core.v1.CSIVolumeSourceArgs(
        driver="secrets-store.csi.k8s.io", read_only=True, volume_attributes={"secretProviderClass": SECRETS}
    )
    return Volume(name="secrets", csi=source)
