"""The packet tier."""

from aws_cdk import App

from blueprint.contract import Tier
from blueprint.model.deployment import Deployment
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.stack import VoiceStack
from stacks.aws.state import StateStack
from voice_constructs.aws.fleet import fleet_context
from voice_constructs.aws.vad import VadFleet


class VadStack(VoiceStack):
    """Graviton4 hosts that turn RTP into chunks of speech."""

    tier = "vad"
    about = "packet tier on Graviton4"

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment)
        context = fleet_context(
            self,
            tier=Tier.VAD,
            deployment=deployment,
            network=network.network,
            store=state.store,
            repositories=registry.registry.repositories,
            retention=self.retention,
        )
        self.log_group = context.log_group
        self.fleet = VadFleet(self, "Fleet", context=context)
