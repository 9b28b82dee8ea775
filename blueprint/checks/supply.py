"""Checks on what hosts are made from: images, and the acceptances in the file itself."""

from collections.abc import Iterator

from blueprint.checks.base import Check, Level, Violation
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import images_of


class ImagesHaveDigests(Check):
    """A host or task without its image never becomes ready."""

    id = "images-have-digests"
    level = Level.WARNING
    about = "Every image that a fleet, the gateway or a service on Azure runs has a digest in the deployment file."
    source = "https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-tag-mutability.html"

    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Compare the images that run with those in the file."""
        missing = [image for image in images_of(deployment) if image not in deployment.images]
        if missing:
            yield Violation(
                ("images",),
                f"no digest for {', '.join(missing)}: what runs them is held at 0 hosts, tasks or replicas",
                "deploy the registry first, push the images (`voice images build-args`), and write their digests here",
            )


CHECKS: tuple[Check, ...] = (ImagesHaveDigests(),)
