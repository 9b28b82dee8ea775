"""The machine image that each fleet boots from, and the newest one that it could."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blueprint.aws import machine_images, names
from blueprint.checks.fleets import Fleet, fleets
from ops.aws.account import Account

OWN = "baked for the fleet"
PUBLIC = "AWS's own"


@dataclass(frozen=True)
class Proposal:
    """An image for a fleet.

    Attributes:
        in_file: What the file says; ``None`` for AWS's newest at each deploy.
        proposed: What to write there; ``None`` where the region has no image.
        made: Whose it is.
        since: When it was made, or the version of AWS's parameter.
    """

    fleet: str
    in_file: str | None
    proposed: str | None
    made: str = ""
    since: str = ""


def proposals(account: Account) -> Iterator[Proposal]:
    """Yield an image for each fleet: the newest that a pipeline has baked for it, else the newest of AWS."""
    for fleet in fleets(account.deployment):
        yield _baked(account, fleet) or _public(account, fleet)


def _baked(account: Account, fleet: Fleet) -> Proposal | None:
    tags = names.baked_tags(account.deployment, fleet.name)
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    filters.append({"Name": "state", "Values": ["available"]})
    found = account.listed("ec2", "describe_images", "Images[]", Owners=["self"], Filters=filters)
    newest = max(found, key=lambda image: image["CreationDate"], default=None)
    return newest and Proposal(fleet.name, fleet.machine_image, newest["ImageId"], OWN, newest["CreationDate"])


def _public(account: Account, fleet: Fleet) -> Proposal:
    ssm: Any = account.session.client("ssm")
    try:
        answer = ssm.get_parameter(Name=machine_images.public_parameter(fleet.instance_type))["Parameter"]
    except ssm.exceptions.ParameterNotFound:
        return Proposal(fleet.name, fleet.machine_image, None)
    return Proposal(fleet.name, fleet.machine_image, answer["Value"], PUBLIC, f"version {answer['Version']}")
