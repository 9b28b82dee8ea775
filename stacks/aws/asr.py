"""The speech recognition tier."""

from aws_cdk import App

from blueprint.aws import names
from blueprint.contract.network import Tier
from blueprint.file.model.aws import AsrFleet
from stacks.aws.fleet import FleetStack
from stacks.aws.stack import VoiceStack
from voice_constructs.aws.accelerator import AcceleratorFleet, AcceleratorFleetProps


class AsrStack(FleetStack):
    """What the fleets share: Neuron hosts first, GPUs when they are full, CPUs last."""

    tier = "asr"
    about = "what the hosts of speech recognition share"
    hosts = Tier.ASR


class AcceleratorStack(VoiceStack):
    """One fleet. Where its type is sold out, this stack alone fails, and no other fleet rolls back."""

    def __init__(self, app: App, *, fleet: AsrFleet, asr: AsrStack) -> None:
        self.tier = names.fleet_tier(fleet.name)
        self.about = f"speech recognition on {fleet.instance_type}"
        super().__init__(app, asr.deployment)
        self.fleet = AcceleratorFleet(
            self, fleet.name.capitalize(), props=AcceleratorFleetProps(fleet=fleet, context=asr.context)
        )
