"""VPC, endpoints and security groups."""

from aws_cdk import App

from blueprint.file.model.deployment import Deployment
from stacks.aws.stack import VoiceStack
from voice_constructs.aws.network import VoiceNetwork, VoiceNetworkProps


class NetworkStack(VoiceStack):
    """The network that every tier lives in."""

    tier = "network"
    about = "VPC, endpoints, security groups"

    def __init__(self, app: App, deployment: Deployment) -> None:
        super().__init__(app, deployment)
        self.network = VoiceNetwork(
            self,
            "Network",
            props=VoiceNetworkProps(
                network=deployment.aws.network,
                zones=deployment.aws.availability_zones,
                region=deployment.aws.region,
                removal_policy=self.retention.logs,
            ),
        )
