"""Agents for spoken conversations with callers."""

from aws_cdk import App, CfnOutput

from voice_blueprint.aws.edge import build_agent_hostname
from voice_blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, Tier
from voice_blueprint.file.model.agents import AwsAgents
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.agents import AgentTier, AgentTierProps
from voice_constructs.aws.domain import HostDomain
from voice_constructs.aws.edge import create_edge_context
from voice_constructs.aws.public_load_balancer import TlsLoadBalancer
from voice_stacks.aws.edge import EdgeStack
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.stack import VoiceStack
from voice_stacks.aws.state import StateStack


class AgentsStack(VoiceStack):
    """A load balancer for conversations, and the agents, which receive transcripts from the gateway."""

    tier = "agents"
    description_text = "load balancer and service of agents"

    def __init__(
        self,
        app: App,
        deployment: Deployment,
        agents: AwsAgents,
        *,
        network: NetworkStack,
        registry: RegistryStack,
        state: StateStack,
        edge: EdgeStack,
    ) -> None:
        super().__init__(app, deployment)
        context = create_edge_context(self, deployment=deployment, network=network.network, retention=self.retention)
        domain_config = deployment.aws.edge.domain
        domain = (
            HostDomain(self, "Domain", zone_id=domain_config.zone_id, hosts=(build_agent_hostname(domain_config),))
            if domain_config
            else None
        )
        self.load_balancer = TlsLoadBalancer(
            self,
            "Public",
            context=context,
            tier=Tier.AGENT_LOAD_BALANCER,
            port=AGENT_HTTP,
            target_id="Targets",
            domain=domain,
            host=build_agent_hostname(domain_config) if domain_config else None,
        )
        CfnOutput(self, "AgentHost", value=self.load_balancer.host, description="Host of conversations: TLS 443")
        self.agents = AgentTier(
            self,
            "Agents",
            props=AgentTierProps(
                context=context,
                store=state.store,
                repositories=registry.registry.repositories,
                agents=agents,
                gateway_url=f"http://{edge.api.link.load_balancer.load_balancer_dns_name}:{GATEWAY_HTTP.number}",
                targets=self.load_balancer.targets,
            ),
        )
