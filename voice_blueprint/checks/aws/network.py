"""Checks on the VPC and the state store."""

from collections.abc import Iterator
from ipaddress import IPv4Network

from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.aws.network import (
    SUBNET_TIER_COUNT,
    calculate_required_address_count,
    calculate_subnet_prefix_length,
    count_addresses_per_subnet,
)
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.file.model.aws import DataPathMode
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.suggestion import format_suggestion

REQUIRED_ENDPOINTS = (
    "autoscaling",
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "elasticloadbalancing",
    "logs",
    "monitoring",
    "secretsmanager",
    "ssm",
    "ssmmessages",
)
"""AWS services that hosts call for images, logs, metrics, lifecycle hooks, secrets and Session Manager."""


@deployment_check(
    "subnets-hold-fleets",
    "Every private subnet has enough addresses for all hosts and tasks at their maximum.",
    source="https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html; a task has its own address: "
    "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-task-networking.html",
)
def check_subnets_hold_fleets(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws
    zones = len(aws.availability_zones)
    prefix, available = (
        calculate_subnet_prefix_length(aws.network.cidr, zones),
        count_addresses_per_subnet(aws.network.cidr, zones),
    )
    services = [aws.edge.gateway.tasks, *([aws.agents.tasks] if aws.agents else [])]
    required = len(aws.network.interface_endpoints) + calculate_required_address_count(
        hosts=sum(fleet.max_hosts_per_zone for fleet in iter_fleets(deployment)),
        task_counts=[service.max for service in services],
        zones=zones,
    )
    if aws.vad.data_path.mode is DataPathMode.VFIO:
        required += aws.vad.hosts_per_zone.max  # of the secondary interfaces
    if required > available:
        yield Violation(
            ("aws", "network", "cidr"),
            f"{aws.network.cidr} results in private subnets of /{prefix} with {available} addresses, but the maximums "
            f"of hosts and tasks need {required} in one zone",
            f"use a larger range than /{IPv4Network(aws.network.cidr).prefixlen}, or lower the maximums",
        )


@deployment_check(
    "subnets-large-enough",
    "The VPC's range can be split into subnets that AWS accepts.",
    source="https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html (/28 to /16)",
)
def check_subnets_large_enough(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws
    zones = len(aws.availability_zones)
    prefix = calculate_subnet_prefix_length(aws.network.cidr, zones)
    if prefix > 28:  # noqa: PLR2004  the limit in `source`
        yield Violation(
            ("aws", "network", "cidr"),
            f"{aws.network.cidr}, split into {zones} zones x {SUBNET_TIER_COUNT} subnets, results in /{prefix}",
            "use a larger range; a /16 is free of charge",
        )


PRIVATELINK_SERVICES = {
    *REQUIRED_ENDPOINTS,
    *("application-autoscaling", "cloudformation", "ec2messages", "ecs", "ecs-agent", "ecs-telemetry", "elasticache"),
    *("events", "execute-api", "kms", "s3", "servicequotas", "sns", "sqs", "sts", "xray"),
}
"""Services with interface endpoints that this product, or other software in the VPC, could call."""


@deployment_check(
    "endpoints-exist",
    "Every interface endpoint belongs to an AWS service that supports it.",
    source="https://docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html",
)
def check_endpoints_exist(deployment: Deployment) -> Iterator[Violation]:
    for index, name in enumerate(deployment.aws.network.interface_endpoints):
        if name not in PRIVATELINK_SERVICES:
            yield Violation(
                ("aws", "network", "interface_endpoints", index),
                f"there is no interface endpoint `{name}`{format_suggestion(name, sorted(PRIVATELINK_SERVICES))}",
                f"choose among {', '.join(sorted(PRIVATELINK_SERVICES))}",
            )


@deployment_check(
    "hosts-reach-aws",
    "Hosts can reach the AWS APIs that they call through a NAT gateway or interface endpoints.",
    source="https://docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html",
)
def check_hosts_reach_aws(deployment: Deployment) -> Iterator[Violation]:
    network = deployment.aws.network
    missing = [name for name in REQUIRED_ENDPOINTS if name not in network.interface_endpoints]
    if network.nat_gateways == 0 and missing:
        yield Violation(
            ("aws", "network", "nat_gateways"),
            f"there are 0 NAT gateways and no interface endpoint for {', '.join(missing)}: hosts could not pull "
            "images or complete their lifecycle hooks",
            "set nat_gateways to 1 or more, or list the endpoints",
        )


@deployment_check(
    "nat-per-zone",
    "In production, every zone has its own NAT gateway, or no zone needs one.",
    source="https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-basics.html",
    level=Severity.WARNING,
)
def check_nat_per_zone(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws
    gateways, zones = aws.network.nat_gateways, len(aws.availability_zones)
    if deployment.environment is Environment.PRODUCTION and 0 < gateways < zones:
        yield Violation(
            ("aws", "network", "nat_gateways"),
            f"there are {gateways} NAT gateway(s) for {zones} zones: the loss of a zone disconnects others",
            f"set nat_gateways to {zones}",
        )


@deployment_check(
    "zones-for-production",
    "Production spans at least two availability zones, and the state store has a replica and snapshots.",
    source="https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/AutoFailover.html",
)
def check_zones_for_production(deployment: Deployment) -> Iterator[Violation]:
    if deployment.environment is not Environment.PRODUCTION:
        return
    aws = deployment.aws
    if len(aws.availability_zones) == 1:
        yield Violation(("aws", "availability_zones"), "production uses only one availability zone", "use two or three")
    if aws.state.replicas == 0:
        yield Violation(
            ("aws", "state", "replicas"),
            "there are 0 replicas: the loss of the node ends every live session",
            "set replicas to 1 or more",
        )
    if aws.state.snapshot_retention_days == 0:
        yield Violation(
            ("aws", "state", "snapshot_retention_days"),
            "snapshots are kept for 0 days: a lost store could not be restored",
            "set snapshot_retention_days to 1 or more",
        )
