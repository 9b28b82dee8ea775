"""The speech recognition tier."""

from aws_cdk import App

from blueprint.contract.network import Tier
from blueprint.file.model.deployment import Deployment
from stacks.aws.fleet import FleetStack
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.state import StateStack
from voice_constructs.aws.accelerator import AcceleratorFleet, AcceleratorFleetProps


class AsrStack(FleetStack):
    """Accelerator fleets: Neuron hosts first, GPUs when they are full."""

    tier = "asr"
    about = "speech recognition on Neuron and GPU hosts"
    hosts = Tier.ASR

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment, network=network, registry=registry, state=state)
        self.fleets = {
            fleet.name: AcceleratorFleet(
                self, fleet.name.capitalize(), props=AcceleratorFleetProps(fleet=fleet, context=self.context)
            )
            for fleet in deployment.aws.asr
        }
