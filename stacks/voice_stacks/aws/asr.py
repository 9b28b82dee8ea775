"""The speech recognition tier."""

from aws_cdk import App

from voice_blueprint.aws import names
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import lacks_digests, list_asr_images
from voice_constructs.aws.accelerator import AcceleratorFleet, AcceleratorFleetProps
from voice_constructs.aws.artifacts_job import ArtifactsJob
from voice_stacks.aws.fleet import FleetStack
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.stack import VoiceStack
from voice_stacks.aws.state import StateStack


class AsrStack(FleetStack):
    """Resources that the ASR fleets share. Sessions use Neuron hosts first, then GPUs, then CPUs."""

    tier = "asr"
    description_text = "what the hosts of speech recognition share, jobs of artifacts"
    host_tier = Tier.ASR

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment, network=network, registry=registry, state=state)
        group = self.context.log_group
        self.export_values(group.log_group_name, group.log_group_arn, self.context.key.key_arn)
        for fleet in deployment.aws.asr:
            if fleet.artifacts and not lacks_digests(deployment, list_asr_images(fleet)):
                props = AcceleratorFleetProps(fleet=fleet, context=self.context)
                ArtifactsJob(self, f"{fleet.name.capitalize()}Artifacts", props=props)


class AsrFleetStack(VoiceStack):
    """The stack for one ASR fleet.

    If no capacity is available for the fleet's instance type, only this stack fails, and no other fleet is rolled back.
    """

    def __init__(self, app: App, *, fleet: AsrFleet, asr: AsrStack) -> None:
        self.tier = names.build_fleet_stack_suffix(fleet.name)
        self.description_text = f"speech recognition on {fleet.instance_type}"
        super().__init__(app, asr.deployment)
        self.fleet = AcceleratorFleet(
            self, fleet.name.capitalize(), props=AcceleratorFleetProps(fleet=fleet, context=asr.context)
        )
