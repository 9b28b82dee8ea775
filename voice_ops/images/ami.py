"""The current and the newest available machine image of each fleet."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from voice_blueprint.aws import machine_images, names
from voice_blueprint.aws.fleets import Fleet, fleets
from voice_ops.aws.account import Account

OWN_IMAGE = "baked for the fleet"
PUBLIC_IMAGE = "AWS's own"


@dataclass(frozen=True)
class Proposal:
    """A proposed image for a fleet.

    Attributes:
        in_file: Value in the file; ``None`` for AWS's latest at each deploy.
        proposed: Value to write; ``None`` if the region has no image.
        made: Origin of the image.
        since: Creation date, or the version of AWS's parameter.
    """

    fleet: str
    in_file: str | None
    proposed: str | None
    made: str = ""
    since: str = ""


def propose_images(account: Account) -> Iterator[Proposal]:
    """Yield the newest image that the pipeline of each fleet has built, or otherwise AWS's latest image."""
    for fleet in fleets(account.deployment):
        yield _baked_image(account, fleet) or _public_image(account, fleet)


def _baked_image(account: Account, fleet: Fleet) -> Proposal | None:
    tags = names.machine_image_tags(account.deployment, fleet.name)
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    filters.append({"Name": "state", "Values": ["available"]})
    result = account.list_all("ec2", "describe_images", "Images[]", Owners=["self"], Filters=filters)
    newest = max(result, key=lambda image: image["CreationDate"], default=None)
    return newest and Proposal(fleet.name, fleet.machine_image, newest["ImageId"], OWN_IMAGE, newest["CreationDate"])


def _public_image(account: Account, fleet: Fleet) -> Proposal:
    ssm: Any = account.session.client("ssm")
    try:
        answer = ssm.get_parameter(Name=machine_images.public_parameter(fleet.instance_type))["Parameter"]
    except ssm.exceptions.ParameterNotFound:
        return Proposal(fleet.name, fleet.machine_image, None)
    return Proposal(fleet.name, fleet.machine_image, answer["Value"], PUBLIC_IMAGE, f"version {answer['Version']}")
