"""What the stacks of EC2 hosts have in common."""

from typing import ClassVar

from aws_cdk import App

from blueprint.contract.network import Tier
from blueprint.file.model.deployment import Deployment
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.stack import VoiceStack
from stacks.aws.state import StateStack
from voice_constructs.aws.fleet import fleet_context


class FleetStack(VoiceStack):
    """A stack of hosts of one tier, with a key and a log group of their own.

    Attributes:
        context: What the tier's fleets are deployed into.
    """

    hosts: ClassVar[Tier]

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment)
        self.context = fleet_context(
            self,
            tier=self.hosts,
            deployment=deployment,
            network=network.network,
            store=state.store,
            registry=registry.registry,
            retention=self.retention,
        )
