"""The current and the newest available machine image of each fleet."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from voice_blueprint.aws import machine_images, names
from voice_blueprint.aws.fleets import Fleet, iter_fleets
from voice_ops.aws.account import Account

BAKED_IMAGE_ORIGIN = "baked for the fleet"
PUBLIC_IMAGE_ORIGIN = "AWS's own"


@dataclass(frozen=True)
class ImageProposal:
    """A proposed image for a fleet.

    Attributes:
        in_file: Value in the file; ``None`` if each deploy uses AWS's latest image.
        proposed: Value to write; ``None`` if the region has no image.
        made: Origin of the image.
        since: Creation date, or the version of AWS's parameter.
    """

    fleet: str
    in_file: str | None
    proposed: str | None
    made: str = ""
    since: str = ""


def propose_images(account: Account) -> Iterator[ImageProposal]:
    """For each fleet, yield the newest image that its pipeline has built, or otherwise AWS's latest image."""
    for fleet in iter_fleets(account.deployment):
        yield _propose_baked_image(account, fleet) or _propose_public_image(account, fleet)


def _propose_baked_image(account: Account, fleet: Fleet) -> ImageProposal | None:
    tags = names.build_machine_image_tags(account.deployment, fleet.name)
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    filters.append({"Name": "state", "Values": ["available"]})
    result = account.iter_paginated_items("ec2", "describe_images", "Images[]", Owners=["self"], Filters=filters)
    newest = max(result, key=lambda image: image["CreationDate"], default=None)
    return newest and ImageProposal(
        fleet.name, fleet.machine_image, newest["ImageId"], BAKED_IMAGE_ORIGIN, newest["CreationDate"]
    )


def _propose_public_image(account: Account, fleet: Fleet) -> ImageProposal:
    ssm: Any = account.session.client("ssm")
    try:
        answer = ssm.get_parameter(Name=machine_images.get_public_image_parameter(fleet.instance_type))["Parameter"]
    except ssm.exceptions.ParameterNotFound:
        return ImageProposal(fleet.name, fleet.machine_image, None)
    return ImageProposal(
        fleet.name, fleet.machine_image, answer["Value"], PUBLIC_IMAGE_ORIGIN, f"version {answer['Version']}"
    )
