"""Image repositories, and the bucket of artifacts."""

from aws_cdk import App

from blueprint.file.model.deployment import Deployment
from stacks.aws.stack import VoiceStack
from voice_constructs.aws.registry import ImageRegistry


class RegistryStack(VoiceStack):
    """The repositories that hosts pull from. Deployed first, so that there is a place to push to."""

    tier = "registry"
    about = "container image repositories, artifacts"

    def __init__(self, app: App, deployment: Deployment) -> None:
        super().__init__(app, deployment)
        self.registry = ImageRegistry(self, "Registry", prefix=deployment.name, removal_policy=self.retention.keys)
