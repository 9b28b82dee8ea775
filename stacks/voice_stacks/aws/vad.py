"""The packet tier."""

from aws_cdk import App

from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.vad import VadFleet
from voice_stacks.aws.fleet import FleetStack
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.state import StateStack


class VadStack(FleetStack):
    """Graviton4 hosts that convert RTP to chunks of speech."""

    tier = "vad"
    description_text = "packet tier on Graviton4"
    host_tier = Tier.VAD

    def __init__(
        self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack, state: StateStack
    ) -> None:
        super().__init__(app, deployment, network=network, registry=registry, state=state)
        self.fleet = VadFleet(self, "Fleet", context=self.context)
        targets = self.fleet.instance_targets, self.fleet.address_targets
        self.export_values(
            *(value for group in targets for value in (group.target_group_arn, group.target_group_full_name))
        )
        self.export_values(self.context.log_group.log_group_name)
