"""How a VPC's range is cut into subnets."""

import math
from ipaddress import IPv4Network

SUBNET_TIERS = 3
"""Public, private with egress, isolated."""


def subnet_prefix(cidr: str, zones: int) -> int:
    """Return the prefix length of each subnet: equal parts for every tier in every zone."""
    return IPv4Network(cidr).prefixlen + math.ceil(math.log2(SUBNET_TIERS * zones))
