"""Gateway and agents on the cluster, as backends for the edge's application gateway."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from voice_blueprint.azure.contract import AGENT_NODE_HEALTH, GATEWAY_HEALTH, Component
from voice_blueprint.azure.names import TOKEN_KEY_SECRET_NAME
from voice_blueprint.azure.ranges import calculate_agent_address, calculate_gateway_address
from voice_blueprint.capacity.bounds import calculate_max_gateway_pod_sockets
from voice_blueprint.capacity.cpu_pods import AGENT_CPUS, AGENT_POD_MEMORY_GIB
from voice_blueprint.contract.environment import (
    CHAT_KEY,
    PROMPT,
    SPEECH_KEY,
    TOKEN_KEY,
    TOOLS_KEY,
    TWILIO_TOKEN,
    Variable,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA, PROMETHEUS, Port
from voice_blueprint.contract.session_api import HEALTH_PATH, LIVENESS_PATH
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.environment import GATEWAY_DRAIN_TIMEOUT_S
from voice_blueprint.file.model.agents import AgentPods, Endpoint
from voice_blueprint.file.model.azure_callers import AzureEdge
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.hosts import AGENT_POD_IMAGES, IMAGES_BY_CALLER_TIER
from voice_blueprint.observability.azure.scaling import (
    ScalingTrigger,
    build_conversations_trigger,
    build_cpu_trigger,
    build_sockets_trigger,
)
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import (
    PRE_STOP_S,
    ContainerResources,
    ContainerSpec,
    create_http_probe,
    create_liveness_probe,
)
from voice_constructs.azure.kubernetes.programs import create_agent_program, create_gateway_program
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import IDENTITY_MOUNT, StateLogin
from voice_constructs.azure.kubernetes.telemetry import METRICS_PORT_NAME
from voice_constructs.azure.kubernetes.vault_secrets import VaultSecrets

AGENT_RESOURCES = ContainerResources(cpus=AGENT_CPUS, memory_gib=AGENT_POD_MEMORY_GIB)
"""Resources of an agent's pod."""


@dataclass(frozen=True)
class EdgeTierProps:
    """Properties of ``EdgeTier``, which differ between gateway and agents.

    Attributes:
        kind: Last part of the component's Pulumi type, and prefix of its resources' addresses.
        ports: Ports that the application gateway reaches, by name; ``http`` responds to probes.
        address: Address of the load balancer, in the nodes' range.
        health_port: Health check port of the nodes, which reports whether a node has a ready pod.
        secrets: Names in the vault, by environment variable.
        triggers: Scaling triggers.
        writes_transcripts: Whether the pods write transcripts to the archive.
    """

    kind: str
    component: Component
    image: Image
    launcher: Launcher
    resources: ContainerResources
    ports: Mapping[str, Port]
    address: str
    health_port: Port
    secrets: Mapping[Variable, str]
    replica_bounds: HostCount
    drain_s: int
    images: tuple[Image, ...]
    triggers: tuple[ScalingTrigger, ...]
    writes_transcripts: bool = False


class EdgeTier(pulumi.ComponentResource):
    """Pods of one tier, their secrets, and an internal load balancer.

    Attributes:
        pods: The pods.
        load_balancer: Internal load balancer in front of them, which preserves the application gateway's address.
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
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:{props.kind}", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        secrets = VaultSecrets(
            component, context=context, cluster=cluster, login=login, secrets=props.secrets, opts=child
        )
        main = ContainerSpec(
            name=name,
            image=context.get_image_uri(props.image),
            launcher=props.launcher,
            resources=props.resources,
            ports={**props.ports, METRICS_PORT_NAME: PROMETHEUS},
            startup=create_http_probe(http, HEALTH_PATH, period_s=2, failures=60),
            # The health check fails while the pod drains and while the store is unavailable, which a restart does not
            # fix.
            readiness=create_http_probe(http, HEALTH_PATH, period_s=5, failures=2),
            liveness=create_liveness_probe(http, LIVENESS_PATH),
            extra_environment={
                **login.build_environment(component),
                **(login.build_archive_environment(cluster, component) if props.writes_transcripts else {}),
            },
            environment_sources=secrets.environment_sources,
            mounts=[
                *login.create_mounts(),
                *([IDENTITY_MOUNT] if props.writes_transcripts else ()),
                secrets.create_mount(),
            ],
            pre_stop_s=PRE_STOP_S,
        )
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=component,
                main_container=main,
                sidecars=[login.create_sidecar(component)],
                replica_bounds=props.replica_bounds,
                drain_s=props.drain_s,
                images=props.images,
                volumes=[*login.create_volumes(), secrets.create_volume()],
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
            health=props.health_port,
            reason="the application gateway connects to it; its address is in the nodes' range",
            annotations={"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": props.address},
            opts=child,
        )
        self.register_outputs({})


def create_gateway_tier_props(context: ClusterContext, edge: AzureEdge) -> EdgeTierProps:
    """Return the properties of the gateway, which handles sessions, audio and events, and signs session tokens."""
    sockets = calculate_max_gateway_pod_sockets(edge.gateway)
    return EdgeTierProps(
        kind="GatewayService",
        component=Component.GATEWAY,
        image=Image.GATEWAY,
        launcher=create_gateway_program(context.deployment, edge, sockets),
        resources=ContainerResources(edge.gateway.cpus, edge.gateway.memory_gib),
        ports={"http": GATEWAY_HTTP, "media": GATEWAY_MEDIA},
        address=calculate_gateway_address(context.azure.network.cidr),
        health_port=GATEWAY_HEALTH,
        secrets={TOKEN_KEY: TOKEN_KEY_SECRET_NAME},
        replica_bounds=edge.gateway.replicas,
        drain_s=GATEWAY_DRAIN_TIMEOUT_S,
        images=IMAGES_BY_CALLER_TIER[Component.GATEWAY],
        triggers=(build_sockets_trigger(sockets), build_cpu_trigger(Component.GATEWAY, edge.gateway.cpus)),
        writes_transcripts=edge.archive is not None,
    )


def create_agent_tier_props(context: ClusterContext, settings: AgentPods, edge: AzureEdge) -> EdgeTierProps:
    """Return the properties of the agents, which scale by their number of conversations."""
    keys = {CHAT_KEY: settings.chat, SPEECH_KEY: settings.speech}
    variables = {
        TOKEN_KEY: TOKEN_KEY_SECRET_NAME,
        PROMPT: settings.prompt_secret,
        TOOLS_KEY: settings.tools_key_secret,
        TWILIO_TOKEN: settings.twilio and settings.twilio.token_secret,
        **{variable: engine.key_secret for variable, engine in keys.items() if isinstance(engine, Endpoint)},
    }
    return EdgeTierProps(
        kind="Agents",
        component=Component.AGENT,
        image=Image.AGENT,
        launcher=create_agent_program(context.deployment, settings, edge),
        resources=AGENT_RESOURCES,
        ports={"http": AGENT_HTTP},
        address=calculate_agent_address(context.azure.network.cidr),
        health_port=AGENT_NODE_HEALTH,
        secrets={variable: name for variable, name in variables.items() if name},
        replica_bounds=settings.replicas,
        drain_s=settings.drain_timeout_s,
        images=AGENT_POD_IMAGES,
        triggers=(build_conversations_trigger(settings.conversations),),
    )
