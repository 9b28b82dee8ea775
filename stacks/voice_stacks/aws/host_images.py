"""Machine images for hosts."""

from aws_cdk import App

from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.host_images import HostImages, HostImagesProps
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.stack import VoiceStack


class HostImagesStack(VoiceStack):
    """One image pipeline per fleet. Each pipeline builds the machine image of the fleet's hosts."""

    tier = "host-images"
    description_text = "pipelines that bake host images"

    def __init__(self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack) -> None:
        super().__init__(app, deployment)
        HostImages(
            self,
            "HostImages",
            props=HostImagesProps(
                deployment=deployment, network=network.network, repositories=registry.registry.repositories
            ),
        )
