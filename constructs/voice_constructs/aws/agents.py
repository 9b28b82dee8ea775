"""The agent service: callers who are answered by speech."""

from dataclasses import dataclass

from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from blueprint.aws import names
from blueprint.aws.edge import AGENT_DRAIN_TIMEOUT_S, AGENT_MEMORY_GIB, AGENT_VCPU
from blueprint.capacity import FILL
from blueprint.contract.environment import (
    ANSWER_TOKENS,
    CHAT_KEY,
    CHAT_MODEL,
    CHAT_URL,
    CONVERSATIONS,
    DEPLOYMENT,
    DRAIN_TIMEOUT_S,
    FLEET,
    GATEWAY_URL,
    HTTP_PORT,
    IDLE_TIMEOUT_S,
    LANGUAGE,
    LISTENING,
    PROMPT,
    SPEECH_KEY,
    SPEECH_MODEL,
    SPEECH_RATE,
    SPEECH_URL,
    SPEECH_VOICE,
    TOKEN_TTL_S,
    TOOLS_URL,
    TRACE_COLLECTOR,
    TRACED_SHARE,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from blueprint.contract.images import Image
from blueprint.contract.network import AGENT_HTTP, VALKEY, Tier
from blueprint.file.model.agents import AwsAgents
from blueprint.file.model.deployment import Deployment
from voice_constructs.aws.fargate import FargateProps, FargateTier


@dataclass(frozen=True)
class AgentsProps(FargateProps):
    """What ``Agents`` are made from.

    Attributes:
        gateway_url: The gateway inside the network, which hears for them.
        targets: Target group of the public load balancer.
    """

    agents: AwsAgents
    gateway_url: str
    targets: elbv2.NetworkTargetGroup


class Agents(FargateTier):
    """Tasks of one process, of one vCPU; a full one hands over to others, and scaling keeps places free."""

    tier = Tier.AGENT
    image = Image.AGENT

    def __init__(self, scope: Construct, id_: str, *, props: AgentsProps) -> None:
        super().__init__(scope, id_, props=props)
        agents = props.agents
        kept = {PROMPT: agents.prompt_secret, CHAT_KEY: agents.chat.key_secret, SPEECH_KEY: agents.speech.key_secret}
        injected = {variable: self._existing(variable, name) for variable, name in kept.items() if name}
        environment = {
            variable: value
            for variable, value in _environment(self._deployment, agents, props.gateway_url).items()
            if variable not in injected
        }
        task = self._build_task(
            vcpu=AGENT_VCPU,
            memory_gib=AGENT_MEMORY_GIB,
            ports=(AGENT_HTTP,),
            environment=environment,
            more_secrets=injected,
        )
        self.service = self._build_service(task, {AGENT_HTTP: props.targets})
        self._build_scaling(agents.tasks, "Conversations", names.AGENT_FLEET, FILL * agents.conversations)

    def _existing(self, variable: Variable, name: str) -> ecs.Secret:
        """Refer to an operator's secret by name; the task's start fails where it is not there."""
        id_ = "".join(word.capitalize() for word in variable.name.removeprefix("VOICE_").split("_"))
        return ecs.Secret.from_secrets_manager(secretsmanager.Secret.from_secret_name_v2(self, id_, name))


def _environment(deployment: Deployment, agents: AwsAgents, gateway_url: str) -> dict[Variable, str]:
    edge = deployment.aws.edge
    return {
        DEPLOYMENT: deployment.name,
        FLEET: names.AGENT_FLEET,
        VALKEY_PORT: str(VALKEY.number),
        VALKEY_USER: Tier.AGENT.value,
        HTTP_PORT: str(AGENT_HTTP.number),
        TOKEN_TTL_S: str(agents.token_ttl_s),
        IDLE_TIMEOUT_S: str(agents.idle_timeout_s),
        DRAIN_TIMEOUT_S: str(AGENT_DRAIN_TIMEOUT_S),
        CONVERSATIONS: str(agents.conversations),
        GATEWAY_URL: gateway_url,
        CHAT_URL: agents.chat.url,
        CHAT_MODEL: agents.chat.model,
        CHAT_KEY: "",
        SPEECH_URL: agents.speech.url,
        SPEECH_MODEL: agents.speech.model,
        SPEECH_KEY: "",
        SPEECH_VOICE: agents.voice,
        SPEECH_RATE: str(agents.speech_rate),
        PROMPT: agents.prompt or "",
        TOOLS_URL: agents.tools_url or "",
        LANGUAGE: agents.language or "",
        ANSWER_TOKENS: str(agents.answer_tokens),
        LISTENING: agents.listening,
        TRACE_COLLECTOR: edge.trace_collector or "",
        TRACED_SHARE: str(edge.traced_share),
    }
