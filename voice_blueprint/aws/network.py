"""Subnets of a VPC's CIDR range."""

import math
from ipaddress import IPv4Network

SUBNET_TIERS = 3
"""Number of subnet tiers: public, private with egress, isolated."""


def subnet_prefix(cidr: str, zones: int) -> int:
    """Return the prefix length of each subnet; all subnets have the same size."""
    return IPv4Network(cidr).prefixlen + math.ceil(math.log2(SUBNET_TIERS * zones))
