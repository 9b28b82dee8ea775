"""Machine images of hosts."""

from aws_cdk import App

from blueprint.file.model.deployment import Deployment
from stacks.aws.network import NetworkStack
from stacks.aws.registry import RegistryStack
from stacks.aws.stack import VoiceStack
from voice_constructs.aws.host_images import HostImages, HostImagesProps


class HostImagesStack(VoiceStack):
    """A pipeline for each fleet, which bakes what its hosts boot from."""

    tier = "host-images"
    about = "pipelines that bake host images"

    def __init__(self, app: App, deployment: Deployment, *, network: NetworkStack, registry: RegistryStack) -> None:
        super().__init__(app, deployment)
        HostImages(
            self,
            "HostImages",
            props=HostImagesProps(
                deployment=deployment, network=network.network, repositories=registry.registry.repositories
            ),
        )
