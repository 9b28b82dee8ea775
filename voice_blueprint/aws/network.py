"""Subnets in a VPC's CIDR range."""

import math
from collections.abc import Iterable
from ipaddress import IPv4Network

SUBNET_TIER_COUNT = 3
"""Number of subnet tiers: public, private with egress, isolated."""

AWS_RESERVED_ADDRESS_COUNT = 5
"""Addresses that AWS reserves in every subnet."""
API_LOAD_BALANCER_ADDRESS_COUNT = 1
"""Addresses that the API's internal load balancer uses in every private subnet."""


def calculate_subnet_prefix_length(cidr: str, zones: int) -> int:
    """Return the prefix length of each subnet; all subnets have the same size."""
    return IPv4Network(cidr).prefixlen + math.ceil(math.log2(SUBNET_TIER_COUNT * zones))


def count_addresses_per_subnet(cidr: str, zones: int) -> int:
    """Return the number of addresses in each subnet."""
    return (1 << 32 - calculate_subnet_prefix_length(cidr, zones)) - AWS_RESERVED_ADDRESS_COUNT


def calculate_required_address_count(*, hosts: int, task_counts: Iterable[int], zones: int) -> int:
    """Return the number of addresses that hosts, tasks and the API need in the private subnet of one zone.

    All hosts of a group can be launched in a single zone; ECS spreads tasks over the zones. At the maximum number of
    tasks, an ECS deployment may temporarily need more addresses; if they are not available, the deployment is rolled
    back.

    Args:
        hosts: Maximum number of hosts in one zone.
        task_counts: Maximum number of tasks of each service in all zones.
        zones: Number of availability zones.
    """
    return hosts + sum(math.ceil(count / zones) for count in task_counts) + API_LOAD_BALANCER_ADDRESS_COUNT
