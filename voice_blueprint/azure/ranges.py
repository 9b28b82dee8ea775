"""Subnets in a virtual network's range, and the size of public ranges."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from itertools import islice
from typing import NamedTuple

ANY_ADDRESS_KEYWORDS = frozenset({"*", "any", "internet"})
"""Azure's names for all addresses, in lower case."""
MAX_ADDRESS_FRACTION = 2**-8
"""Share of the address space above which ranges do not identify a single organisation. The share corresponds to a /8,
the largest range of one organisation (https://www.iana.org/assignments/ipv4-address-space)."""

_INFRASTRUCTURE_PREFIX_LENGTH = 26
"""Prefix length of a small range, with 59 usable addresses. Two endpoints use four addresses, Bastion requires this
prefix length, and an application gateway uses one address per instance."""


class InfrastructureRanges(NamedTuple):
    """The first ranges in the upper half of the virtual network."""

    endpoints: str
    jump_host: str
    bastion: str
    edge: str


def calculate_nodes_range(cidr: str) -> str:
    """Return the range for the nodes: the lower half of the virtual network."""
    return str(next(IPv4Network(cidr).subnets()))


def calculate_infrastructure_ranges(cidr: str) -> InfrastructureRanges:
    """Return the ranges for everything except the nodes."""
    _, upper_half = IPv4Network(cidr).subnets()
    return InfrastructureRanges(
        *(str(each) for each in islice(upper_half.subnets(new_prefix=_INFRASTRUCTURE_PREFIX_LENGTH), 4))
    )


def calculate_gateway_address(cidr: str) -> str:
    """Return the address of the gateway's internal load balancer: the last usable address of the nodes' subnet."""
    return str(IPv4Network(calculate_nodes_range(cidr))[-2])


def calculate_agent_address(cidr: str) -> str:
    """Return the address of the agents' load balancer, which precedes the gateway's address."""
    return str(IPv4Network(calculate_nodes_range(cidr))[-3])


def are_effectively_public(ranges: Iterable[str]) -> bool:
    """Return True if the ranges together contain more addresses than a single organisation has.

    Args:
        ranges: Prefixes, addresses, or Azure's names for all addresses. Service tags are ignored.
    """
    texts = [text.strip() for text in ranges]
    if any(text.lower() in ANY_ADDRESS_KEYWORDS for text in texts):
        return True
    networks = [network for text in texts if (network := _parse_network(text))]
    v4 = (each for each in networks if isinstance(each, IPv4Network))
    v6 = (each for each in networks if isinstance(each, IPv6Network))
    shares = (
        sum(each.num_addresses for each in collapse_addresses(v4)) / 2**32,
        sum(each.num_addresses for each in collapse_addresses(v6)) / 2**128,
    )
    return max(shares) > MAX_ADDRESS_FRACTION


def _parse_network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
