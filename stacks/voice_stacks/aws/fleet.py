"""Base for the stacks with EC2 hosts."""

from typing import ClassVar

from aws_cdk import App

from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.fleet import create_fleet_context
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.stack import VoiceStack
from voice_stacks.aws.state import StateStack


class FleetStack(VoiceStack):
    """A stack with the hosts of one tier, their encryption key and their log group.

    Attributes:
        context: Shared resources of the tier's fleets.
    """

    host_tier: ClassVar[Tier]

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment)
        self.context = create_fleet_context(
            self,
            tier=self.host_tier,
            deployment=deployment,
            network=network.network,
            store=state.store,
            registry=registry.registry,
            retention=self.retention,
        )
