"""Value types that several sections of a deployment file share."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network

from pydantic import Field, model_validator

from voice_blueprint.base import Model
from voice_blueprint.file.errors import SettingError

PRIVATE_ADDRESS_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
"""RFC 1918; Python's ``is_private`` also includes loopback, link-local and reserved ranges."""


def parse_private_network(value: str) -> IPv4Network:
    """Return an IPv4 range of private address space.

    Raises:
        ValueError: The value is not a range, has host bits, or is public.
    """
    if not re.fullmatch(r"[0-9.]+/[0-9.]+", value):
        raise ValueError(f"{value!r} should be an IPv4 range with its prefix length, such as 10.40.0.0/16")
    try:
        network = IPv4Network(value, strict=False)
    except ValueError as error:
        raise ValueError(f"{error}; write an IPv4 range such as 10.40.0.0/16") from None
    if str(network) != value:
        raise ValueError(f"{value} is not in canonical form; write {network}")
    if not any(network.subnet_of(block) for block in PRIVATE_ADDRESS_RANGES):
        raise ValueError(f"{value} is not private address space; use 10/8, 172.16/12 or 192.168/16")
    return network


def find_first_duplicate_index(names: Sequence[str]) -> int | None:
    """Return the index of the first name that repeats an earlier one, or ``None`` if all differ."""
    return next((index for index, name in enumerate(names) if name in names[:index]), None)


def format_construct_id(name: str) -> str:
    """Return the id of a construct: the words of a name, each with a capital letter."""
    return "".join(word.capitalize() for word in name.split("-"))


def check_unique_ids(section: tuple[str, ...], names: Sequence[str], ids: Sequence[str]) -> None:
    """Check that different names in a section's list have different construct ids.

    Raises:
        SettingError: Two elements have the same id.
    """
    if duplicate := find_first_duplicate_index(ids):
        raise SettingError(
            (*section, duplicate, "name"),
            f"{names[duplicate]} and {names[ids.index(ids[duplicate])]} give resources the same id; use a name that "
            "differs in more than hyphens",
        )


class HostCount(Model):
    """Minimum and maximum size of a fleet, pool or service. Scaling keeps the size within these bounds."""

    min: int = Field(ge=0)
    """Minimum number of hosts, nodes or replicas."""
    max: int = Field(gt=0)
    """Maximum number of hosts, nodes or replicas."""

    @model_validator(mode="after")
    def _check_bounds(self) -> "HostCount":
        if self.min > self.max:
            raise SettingError(("min",), f"min {self.min} is more than max {self.max}; lower it, or raise max")
        return self
