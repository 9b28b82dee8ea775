"""The agent service, which runs spoken conversations with callers."""

from dataclasses import dataclass

from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from voice_blueprint.aws import names
from voice_blueprint.aws.edge import AGENT_DRAIN_TIMEOUT_S, AGENT_MEMORY_GIB, AGENT_VCPU
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION
from voice_blueprint.contract.environment import (
    CHAT_KEY,
    PROMPT,
    SPEECH_KEY,
    TOOLS_KEY,
    TWILIO_TOKEN,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import AGENT_HTTP, VALKEY, Tier
from voice_blueprint.environment import build_agent_environment
from voice_blueprint.file.model.agents import AwsAgents
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.fargate import FargateProps, FargateTier


@dataclass(frozen=True)
class AgentTierProps(FargateProps):
    """Properties of ``AgentTier``.

    Attributes:
        gateway_url: Internal URL of the gateway, which transcribes calls for the agents.
        targets: Target group of the public load balancer.
    """

    agents: AwsAgents
    gateway_url: str
    targets: elbv2.NetworkTargetGroup


class AgentTier(FargateTier):
    """Tasks with one process and one vCPU each.

    A full task forwards connections to other tasks, and scaling keeps spare capacity available.
    """

    tier = Tier.AGENT
    image = Image.AGENT

    def __init__(self, scope: Construct, id_: str, *, props: AgentTierProps) -> None:
        super().__init__(scope, id_, props=props)
        agents = props.agents
        secrets = {
            PROMPT: agents.prompt_secret,
            CHAT_KEY: agents.chat.key_secret,
            SPEECH_KEY: agents.speech.key_secret,
            TOOLS_KEY: agents.tools_key_secret,
            TWILIO_TOKEN: agents.twilio and agents.twilio.token_secret,
        }
        injected = {
            variable: self._reference_existing_secret(variable, name) for variable, name in secrets.items() if name
        }
        environment = {
            variable: value
            for variable, value in _build_environment(self._deployment, agents, props.gateway_url).items()
            if variable not in injected
        }
        task = self._build_task(
            vcpu=AGENT_VCPU,
            memory_gib=AGENT_MEMORY_GIB,
            ports=(AGENT_HTTP,),
            environment=environment,
            extra_secrets=injected,
        )
        self.service = self._build_service(task, {AGENT_HTTP: props.targets})
        self._build_scaling(agents.tasks, "Conversations", names.AGENT_FLEET, TARGET_UTILIZATION * agents.conversations)

    def _reference_existing_secret(self, variable: Variable, name: str) -> ecs.Secret:
        """Return a reference to a secret that an operator creates. A task does not start without it."""
        id_ = "".join(word.capitalize() for word in variable.name.removeprefix("VOICE_").split("_"))
        return ecs.Secret.from_secrets_manager(secretsmanager.Secret.from_secret_name_v2(self, id_, name))


def _build_environment(deployment: Deployment, agents: AwsAgents, gateway_url: str) -> dict[Variable, str]:
    shared = build_agent_environment(
        deployment,
        agents,
        deployment.aws.edge,
        fleet=names.AGENT_FLEET,
        gateway_url=gateway_url,
        drain_timeout_s=AGENT_DRAIN_TIMEOUT_S,
        chat=(agents.chat.url, agents.chat.model),
        speech=(agents.speech.url, agents.speech.model),
    )
    return shared | {VALKEY_PORT: str(VALKEY.number), VALKEY_USER: Tier.AGENT.value}
