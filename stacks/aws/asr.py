"""The speech recognition tier."""

from aws_cdk import App

from blueprint.contract import Tier
from blueprint.model.deployment import Deployment
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.stack import VoiceStack
from stacks.aws.state import StateStack
from voice_constructs.aws.accelerator import AcceleratorFleet, AcceleratorFleetProps
from voice_constructs.aws.fleet import fleet_context


class AsrStack(VoiceStack):
    """Accelerator fleets: Neuron silicon first, GPUs when it is full."""

    tier = "asr"
    about = "speech recognition on Neuron and GPU hosts"

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment)
        context = fleet_context(
            self,
            tier=Tier.ASR,
            deployment=deployment,
            network=network.network,
            store=state.store,
            repositories=registry.registry.repositories,
            retention=self.retention,
        )
        self.log_group = context.log_group
        self.fleets = {
            fleet.name: AcceleratorFleet(
                self, fleet.name.capitalize(), props=AcceleratorFleetProps(fleet=fleet, context=context)
            )
            for fleet in deployment.aws.asr
        }
