"""Checks on what hosts are made from: images, and the acceptances in the file itself."""

from collections.abc import Iterator

from blueprint.checks.base import Level, Violation, check
from blueprint.file.model.deployment import Deployment, Environment
from blueprint.hosts import images_of


@check(
    "production-protected",
    "A production deployment refuses deletion, once it is up.",
    source="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-protect-stacks.html",
    level=Level.WARNING,
)
def production_protected(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws_half
    if aws and deployment.environment is Environment.PRODUCTION and not aws.deletion_protection:
        yield Violation(
            ("aws", "deletion_protection"),
            "stacks and load balancers of production can be deleted",
            "after the first deploy has succeeded, set deletion_protection to true and deploy again",
        )


@check(
    "images-have-digests",
    "Every image that a fleet, the gateway or a service on Azure runs has a digest in the deployment file.",
    source="https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-tag-mutability.html",
    level=Level.WARNING,
)
def images_have_digests(deployment: Deployment) -> Iterator[Violation]:
    missing = [image for image in images_of(deployment) if image not in deployment.images]
    if missing:
        yield Violation(
            ("images",),
            f"no digest for {', '.join(missing)}: what runs them is held at 0 hosts, tasks or replicas",
            "deploy the registry first, push the images (`voice images build-args`), and write their digests here",
        )
