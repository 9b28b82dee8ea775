"""The speech recognition tier."""

from aws_cdk import App

from blueprint.aws import names
from blueprint.contract.network import Tier
from blueprint.file.model.aws import AsrFleet
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import asr_images, held_back
from stacks.aws.fleet import FleetStack
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.stack import VoiceStack
from stacks.aws.state import StateStack
from voice_constructs.aws.accelerator import AcceleratorFleet, AcceleratorFleetProps
from voice_constructs.aws.artifacts_job import ArtifactsJob


class AsrStack(FleetStack):
    """What the fleets share: Neuron hosts first, GPUs when they are full, CPUs last."""

    tier = "asr"
    about = "what the hosts of speech recognition share, jobs of artifacts"
    hosts = Tier.ASR

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment, network=network, registry=registry, state=state)
        for fleet in deployment.aws.asr:
            if fleet.artifacts and not held_back(deployment, asr_images(fleet)):
                props = AcceleratorFleetProps(fleet=fleet, context=self.context)
                ArtifactsJob(self, f"{fleet.name.capitalize()}Artifacts", props=props)


class AcceleratorStack(VoiceStack):
    """One fleet. Where its type is sold out, this stack alone fails, and no other fleet rolls back."""

    def __init__(self, app: App, *, fleet: AsrFleet, asr: AsrStack) -> None:
        self.tier = names.fleet_tier(fleet.name)
        self.about = f"speech recognition on {fleet.instance_type}"
        super().__init__(app, asr.deployment)
        self.fleet = AcceleratorFleet(
            self, fleet.name.capitalize(), props=AcceleratorFleetProps(fleet=fleet, context=asr.context)
        )
