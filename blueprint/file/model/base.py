"""Value types that several sections of a deployment file share."""

from ipaddress import IPv4Network
from typing import Annotated

from pydantic import Field, model_validator

from blueprint.base import Model

NAME_LENGTH = 32
Name = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=NAME_LENGTH),
]
"""Lower-case words joined by hyphens; it becomes part of AWS and Azure resource names."""

ImageDigest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""Content address of a container image; tags float and are not accepted."""

PRIVATE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
"""RFC 1918; Python's ``is_private`` also holds for loopback, link-local and reserved ranges."""


def private_network(value: str) -> IPv4Network:
    """Return an IPv4 range of private address space.

    Raises:
        ValueError: It is no range, has host bits, or is public.
    """
    network = IPv4Network(value, strict=False)
    if str(network) != value:
        raise ValueError(f"{value} is not how a cloud spells a range; write {network}")
    if not any(network.subnet_of(block) for block in PRIVATE_RANGES):
        raise ValueError(f"{value} is not private address space; use 10/8, 172.16/12 or 192.168/16")
    return network


class HostCount(Model):
    """Bounds of a fleet, pool or service. The number between them belongs to its scaling."""

    min: int = Field(ge=0)
    """Fewest that run; scaling never goes below."""
    max: int = Field(gt=0)
    """Most that run; scaling never goes above."""

    @model_validator(mode="after")
    def _ordered(self) -> "HostCount":
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self
