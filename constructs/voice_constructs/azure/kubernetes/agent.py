"""Agents on the cluster: they hold spoken conversations, behind the edge's application gateway."""

import pulumi

from blueprint.azure.contract import AGENT_NODE_HEALTH, Component
from blueprint.azure.names import TOKEN_KEY_SECRET
from blueprint.azure.ranges import agent_address
from blueprint.checks.azure_callers import AGENT_CPUS
from blueprint.contract.environment import CHAT_KEY, PROMPT, SPEECH_KEY, TOKEN_KEY, Variable
from blueprint.contract.images import Image
from blueprint.contract.network import AGENT_HTTP, PROMETHEUS
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.engines.launch.callers import agent
from blueprint.file.model.agents import AgentPods, Endpoint
from blueprint.hosts import AGENT_POD_IMAGES
from blueprint.observability.azure_scaling import conversations_trigger
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import PRE_STOP_S, LaunchedContainer, Share, http_probe
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import METRICS_PORT
from voice_constructs.azure.kubernetes.vault_secrets import VaultSecrets

NAME = Component.AGENT.value
SHARE = Share(cpus=AGENT_CPUS, memory_gib=1)
"""Of a pod: one process uses one core; it takes 140 MiB, and 14 MiB a conversation (shared models of voice)."""


class Agents(pulumi.ComponentResource):
    """Their pods, the secrets that they are told, and a load balancer with an address of the nodes' range.

    Attributes:
        pods: The pods; they grow by the conversations that they hold.
        load_balancer: Leads the application gateway to them.
    """

    def __init__(
        self,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        settings: AgentPods,
        login: StateLogin,
        scaling: Scaling,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{TYPE_PREFIX}:Agents", NAME, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        secrets = VaultSecrets(
            Component.AGENT,
            context=context,
            cluster=cluster,
            login=login,
            secrets=_secrets(settings),
            opts=child,
        )
        main = LaunchedContainer(
            name=NAME,
            image=context.image_uri(Image.AGENT),
            launcher=agent(context.deployment, settings),
            share=SHARE,
            ports={"http": AGENT_HTTP, METRICS_PORT: PROMETHEUS},
            startup=http_probe(AGENT_HTTP, HEALTH_PATH, period_s=2, failures=60),
            # It says that it is unwell from the beginning of a drain, so that nobody new comes.
            readiness=http_probe(AGENT_HTTP, HEALTH_PATH, period_s=5, failures=2),
            extra_environment=login.environment(Component.AGENT),
            sources=secrets.sources,
            mounts=[*login.mounts(), secrets.mount()],
            pre_stop_s=PRE_STOP_S,
        )
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=Component.AGENT,
                main=main,
                sidecars=[login.sidecar(Component.AGENT)],
                bounds=settings.replicas,
                drain_s=settings.drain_timeout_s,
                images=AGENT_POD_IMAGES,
                volumes=[*login.volumes(), secrets.volume()],
                trigger=conversations_trigger(settings.conversations),
            ),
            needs=[login.config, secrets.provider],
            opts=child,
        )
        self.load_balancer = LoadBalancer(
            NAME,
            context=context,
            selector=self.pods.selector,
            ports=[AGENT_HTTP],
            health=AGENT_NODE_HEALTH,
            reason="the application gateway reaches it; its address is of the nodes' range",
            annotations={
                "azure-load-balancer-internal": "true",
                "azure-load-balancer-ipv4": agent_address(context.azure.network.cidr),
            },
            opts=child,
        )
        self.register_outputs({})


def _secrets(settings: AgentPods) -> dict[Variable, str]:
    """Return what stands in the vault and not in the file."""
    keys = {CHAT_KEY: settings.chat, SPEECH_KEY: settings.speech}
    asked = {
        TOKEN_KEY: TOKEN_KEY_SECRET,
        PROMPT: settings.prompt_secret,
        **{variable: engine.key_secret for variable, engine in keys.items() if isinstance(engine, Endpoint)},
    }
    return {variable: name for variable, name in asked.items() if name}
