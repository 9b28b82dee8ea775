"""The edge of the platform, to which callers connect."""

from aws_cdk import App, CfnOutput

from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.domain import EdgeDomain
from voice_constructs.aws.edge import create_edge_context
from voice_constructs.aws.gateway import Gateway, GatewayProps
from voice_constructs.aws.public_load_balancer import PublicLoadBalancer
from voice_constructs.aws.session_api import SessionApi
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.stack import VoiceStack
from voice_stacks.aws.state import StateStack
from voice_stacks.aws.vad import VadStack


class EdgeStack(VoiceStack):
    """Public load balancer for audio, session API for control and events, and the gateway service."""

    tier = "edge"
    description_text = "load balancers, session API, gateway service"

    def __init__(
        self,
        app: App,
        deployment: Deployment,
        *,
        network: NetworkStack,
        registry: RegistryStack,
        state: StateStack,
        vad: VadStack,
    ) -> None:
        super().__init__(app, deployment)
        context = create_edge_context(self, deployment=deployment, network=network.network, retention=self.retention)
        domain_config = deployment.aws.edge.domain
        domain = EdgeDomain(self, "Domain", domain=domain_config) if domain_config else None
        self.load_balancer = PublicLoadBalancer(
            self, "Public", context=context, domain=domain, rtp_targets=vad.fleet.target_group
        )
        CfnOutput(self, "MediaHost", value=self.load_balancer.host, description="Host of audio: TLS 443, UDP 5004")
        self.api = SessionApi(self, "Sessions", context=context, domain=domain)
        self.gateway = Gateway(
            self,
            "Gateway",
            props=GatewayProps(
                context=context,
                store=state.store,
                repositories=registry.registry.repositories,
                media_host=self.load_balancer.host,
                media_target_group=self.load_balancer.targets,
                api_target_group=self.api.link.gateway_targets,
            ),
        )
        link, gateway = self.api.link, self.gateway
        self.export_values(
            self.load_balancer.load_balancer.load_balancer_full_name,
            self.load_balancer.targets.target_group_full_name,
            link.load_balancer.load_balancer_dns_name,
            link.load_balancer.load_balancer_full_name,
            link.gateway_targets.target_group_full_name,
            self.api.stage.stage_name,
            gateway.cluster.cluster_name,
            gateway.service.service_name,
            gateway.log_group.log_group_name,
        )
