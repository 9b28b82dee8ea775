"""Gateway and agents on the cluster: pods behind the edge's application gateway."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from blueprint.azure.contract import AGENT_NODE_HEALTH, GATEWAY_HEALTH, Component
from blueprint.azure.names import TOKEN_KEY_SECRET
from blueprint.azure.ranges import agent_address, gateway_address
from blueprint.capacity import gateway_pod_sockets
from blueprint.checks.azure_callers import AGENT_CPUS
from blueprint.contract.environment import CHAT_KEY, PROMPT, SPEECH_KEY, TOKEN_KEY, Variable
from blueprint.contract.images import Image
from blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA, PROMETHEUS, Port
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.engines.launch.base import Launcher
from blueprint.engines.launch.callers import GATEWAY_DRAIN_TIMEOUT_S, agent, gateway
from blueprint.file.model.agents import AgentPods, Endpoint
from blueprint.file.model.azure_callers import AzureEdge
from blueprint.file.model.base import HostCount
from blueprint.hosts import AGENT_POD_IMAGES, CALLER_TIER_IMAGES
from blueprint.observability.azure_scaling import Trigger, conversations_trigger, cpu_trigger, sockets_trigger
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import PRE_STOP_S, LaunchedContainer, Share, http_probe
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import METRICS_PORT
from voice_constructs.azure.kubernetes.vault_secrets import VaultSecrets

AGENT_SHARE = Share(cpus=AGENT_CPUS, memory_gib=1)
"""Of a pod: one process uses one core; it takes 140 MiB, and 14 MiB a conversation (shared models of voice)."""


@dataclass(frozen=True)
class EdgeTierProps:
    """What sets one tier apart from the other.

    Attributes:
        kind: Last part of Pulumi's type, which the addresses of all its resources begin with.
        ports: What the application gateway reaches, by name; ``http`` answers the probes.
        address: Of the load balancer, in the nodes' range.
        health: Where nodes say whether they have a ready pod.
        secrets: Names in the vault by the variables that they become.
        triggers: What they are scaled by.
    """

    kind: str
    component: Component
    image: Image
    launcher: Launcher
    share: Share
    ports: Mapping[str, Port]
    address: str
    health: Port
    secrets: Mapping[Variable, str]
    bounds: HostCount
    drain_s: int
    images: tuple[Image, ...]
    triggers: tuple[Trigger, ...]


class EdgeTier(pulumi.ComponentResource):
    """Pods of one tier, the secrets that they are told, and a load balancer with an address of the nodes' range.

    Attributes:
        pods: The pods.
        load_balancer: Leads the application gateway to them, and shows them its address.
    """

    def __init__(
        self,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        props: EdgeTierProps,
        login: StateLogin,
        scaling: Scaling,
        opts: pulumi.ResourceOptions,
    ) -> None:
        component, name, http = props.component, props.component.value, props.ports["http"]
        super().__init__(f"{TYPE_PREFIX}:{props.kind}", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        secrets = VaultSecrets(
            component, context=context, cluster=cluster, login=login, secrets=props.secrets, opts=child
        )
        main = LaunchedContainer(
            name=name,
            image=context.image_uri(props.image),
            launcher=props.launcher,
            share=props.share,
            ports={**props.ports, METRICS_PORT: PROMETHEUS},
            startup=http_probe(http, HEALTH_PATH, period_s=2, failures=60),
            # It says that it is unwell while it drains and while the store is away, which no restart mends.
            readiness=http_probe(http, HEALTH_PATH, period_s=5, failures=2),
            extra_environment=login.environment(component),
            sources=secrets.sources,
            mounts=[*login.mounts(), secrets.mount()],
            pre_stop_s=PRE_STOP_S,
        )
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=component,
                main=main,
                sidecars=[login.sidecar(component)],
                bounds=props.bounds,
                drain_s=props.drain_s,
                images=props.images,
                volumes=[*login.volumes(), secrets.volume()],
                triggers=props.triggers,
            ),
            needs=[login.config, secrets.provider],
            opts=child,
        )
        self.load_balancer = LoadBalancer(
            name,
            context=context,
            selector=self.pods.selector,
            ports=list(props.ports.values()),
            health=props.health,
            reason="the application gateway reaches it; its address is of the nodes' range",
            annotations={"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": props.address},
            opts=child,
        )
        self.register_outputs({})


def gateway_tier(context: ClusterContext, edge: AzureEdge) -> EdgeTierProps:
    """Return the gateway's: sessions, WebSocket audio, event streams, and the key that signs tokens."""
    sockets = gateway_pod_sockets(edge.gateway)
    return EdgeTierProps(
        kind="GatewayService",
        component=Component.GATEWAY,
        image=Image.GATEWAY,
        launcher=gateway(context.deployment, edge, sockets),
        share=Share(edge.gateway.cpus, edge.gateway.memory_gib),
        ports={"http": GATEWAY_HTTP, "media": GATEWAY_MEDIA},
        address=gateway_address(context.azure.network.cidr),
        health=GATEWAY_HEALTH,
        secrets={TOKEN_KEY: TOKEN_KEY_SECRET},
        bounds=edge.gateway.replicas,
        drain_s=GATEWAY_DRAIN_TIMEOUT_S,
        images=CALLER_TIER_IMAGES[Component.GATEWAY],
        triggers=(sockets_trigger(sockets), cpu_trigger(Component.GATEWAY, edge.gateway.cpus)),
    )


def agent_tier(context: ClusterContext, settings: AgentPods, edge: AzureEdge) -> EdgeTierProps:
    """Return the agents', which hold spoken conversations and grow by those that they hold."""
    keys = {CHAT_KEY: settings.chat, SPEECH_KEY: settings.speech}
    asked = {
        TOKEN_KEY: TOKEN_KEY_SECRET,
        PROMPT: settings.prompt_secret,
        **{variable: engine.key_secret for variable, engine in keys.items() if isinstance(engine, Endpoint)},
    }
    return EdgeTierProps(
        kind="Agents",
        component=Component.AGENT,
        image=Image.AGENT,
        launcher=agent(context.deployment, settings, edge),
        share=AGENT_SHARE,
        ports={"http": AGENT_HTTP},
        address=agent_address(context.azure.network.cidr),
        health=AGENT_NODE_HEALTH,
        secrets={variable: name for variable, name in asked.items() if name},
        bounds=settings.replicas,
        drain_s=settings.drain_timeout_s,
        images=AGENT_POD_IMAGES,
        triggers=(conversations_trigger(settings.conversations),),
    )
