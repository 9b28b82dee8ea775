"""The packet tier."""

from aws_cdk import App

from blueprint.contract.network import Tier
from blueprint.file.model.deployment import Deployment
from stacks.aws.fleet import FleetStack
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.state import StateStack
from voice_constructs.aws.vad import VadFleet


class VadStack(FleetStack):
    """Graviton4 hosts that turn RTP into chunks of speech."""

    tier = "vad"
    about = "packet tier on Graviton4"
    hosts = Tier.VAD

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment, network=network, registry=registry, state=state)
        self.fleet = VadFleet(self, "Fleet", context=self.context)
