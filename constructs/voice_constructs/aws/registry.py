"""Image repositories, and the bucket for engine artifacts."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from voice_blueprint.contract.images import Image
from voice_blueprint.hosts import AWS_IMAGES
from voice_constructs.aws.artifacts import create_artifact_bucket
from voice_constructs.aws.encryption import EncryptionKey

MAX_UNTAGGED_IMAGES = 10
"""Maximum number of untagged images. These are replaced builds, a few of which are kept for rollbacks by digest."""


class ImageRegistry(Construct):
    """An encrypted ECR repository for each image, with scans on push and immutable tags.

    Attributes:
        repositories: Repositories by image.
        artifacts: The bucket of weights and compiled programs.
    """

    def __init__(self, scope: Construct, id_: str, *, prefix: str, removal_policy: RemovalPolicy) -> None:
        super().__init__(scope, id_)
        key = EncryptionKey(self, "Key", purpose="container images and artifacts", removal_policy=removal_policy)
        by_key = ecr.RepositoryEncryption.KMS
        self.repositories: dict[Image, ecr.Repository] = {
            image: ecr.Repository(
                self,
                "".join(word.capitalize() for word in image.split("-")),
                repository_name=f"{prefix}/{image}",
                encryption=by_key,
                encryption_key=key,
                image_scan_on_push=True,
                image_tag_mutability=ecr.TagMutability.IMMUTABLE,
                removal_policy=removal_policy,
                empty_on_delete=removal_policy is RemovalPolicy.DESTROY,
                lifecycle_rules=[
                    ecr.LifecycleRule(tag_status=ecr.TagStatus.UNTAGGED, max_image_count=MAX_UNTAGGED_IMAGES)
                ],
            )
            for image in AWS_IMAGES
        }
        self.artifacts = create_artifact_bucket(self, key=key, removal_policy=removal_policy)
