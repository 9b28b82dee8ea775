"""Image repositories and the artifact bucket."""

from aws_cdk import App

from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.registry import ImageRegistry
from voice_stacks.aws.stack import VoiceStack


class RegistryStack(VoiceStack):
    """The repositories that hosts pull from. They are deployed first, so that images can be pushed."""

    tier = "registry"
    description_text = "container image repositories, artifacts"

    def __init__(self, app: App, deployment: Deployment) -> None:
        super().__init__(app, deployment)
        self.registry = ImageRegistry(self, "Registry", prefix=deployment.name, removal_policy=self.retention.keys)
        for repository in self.registry.repositories.values():
            self.export_values(repository.repository_arn, repository.repository_name)
        bucket, key = self.registry.artifacts.bucket, self.registry.artifacts.key
        self.export_values(bucket.bucket_arn, bucket.bucket_name, key.key_arn)
