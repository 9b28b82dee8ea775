"""How a virtual network's range is shared out."""

from ipaddress import IPv4Network
from itertools import islice
from typing import NamedTuple

_SMALL_PREFIX = 26
"""59 usable addresses: two endpoints take four of them, Bastion asks for as many, and an application gateway takes one
for each of its instances."""


class SmallRanges(NamedTuple):
    """The first ranges of the upper half."""

    endpoints: str
    jump: str
    bastion: str
    edge: str


def nodes_range(cidr: str) -> str:
    """Return the lower half of a virtual network's range: the nodes'."""
    return str(next(IPv4Network(cidr).subnets()))


def small_ranges(cidr: str) -> SmallRanges:
    """Return the ranges of everything but nodes."""
    _, upper = IPv4Network(cidr).subnets()
    return SmallRanges(*(str(each) for each in islice(upper.subnets(new_prefix=_SMALL_PREFIX), 4)))


def gateway_address(cidr: str) -> str:
    """Return the address of the load balancer before the gateway: the last one of the nodes' that Azure gives away."""
    return str(IPv4Network(nodes_range(cidr))[-2])


def agent_address(cidr: str) -> str:
    """Return the address of the load balancer before the agents: the one before."""
    return str(IPv4Network(nodes_range(cidr))[-3])
