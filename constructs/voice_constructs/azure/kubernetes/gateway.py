"""The gateway on the cluster: sessions, WebSocket audio, event streams, behind the edge's application gateway."""

import pulumi

from blueprint.azure.contract import GATEWAY_HEALTH, Component
from blueprint.azure.names import TOKEN_KEY_SECRET
from blueprint.azure.ranges import gateway_address
from blueprint.capacity import gateway_pod_sockets
from blueprint.contract.environment import TOKEN_KEY
from blueprint.contract.images import Image
from blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA, PROMETHEUS
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.engines.launch.callers import GATEWAY_DRAIN_TIMEOUT_S, gateway
from blueprint.file.model.azure_callers import AzureEdge
from blueprint.hosts import CALLER_TIER_IMAGES
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import PRE_STOP_S, LaunchedContainer, Share, http_probe
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import METRICS_PORT
from voice_constructs.azure.kubernetes.vault_secrets import VaultSecrets

NAME = Component.GATEWAY.value


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
        secrets = VaultSecrets(
            Component.GATEWAY,
            context=context,
            cluster=cluster,
            login=login,
            secrets={TOKEN_KEY: TOKEN_KEY_SECRET},
            opts=child,
        )
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=Component.GATEWAY,
                main=self._container(context, edge, login, secrets),
                sidecars=[login.sidecar(Component.GATEWAY)],
                bounds=edge.gateway.replicas,
                drain_s=GATEWAY_DRAIN_TIMEOUT_S,
                images=CALLER_TIER_IMAGES[Component.GATEWAY],
                volumes=[*login.volumes(), secrets.volume()],
            ),
            needs=[login.config, secrets.provider],
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

    def _container(
        self, context: ClusterContext, edge: AzureEdge, login: StateLogin, secrets: VaultSecrets
    ) -> LaunchedContainer:
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
            sources=secrets.sources,
            mounts=[*login.mounts(), secrets.mount()],
            pre_stop_s=PRE_STOP_S,
        )
