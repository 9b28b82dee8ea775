"""Deleting the stacks of a deployment in the operator's account."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.status.deployed import Deployed
from ops.teardown.plan import KEPT_POLICIES


@dataclass(frozen=True)
class OperatorsAws:
    """The account that the environment's credentials belong to, for the CDK."""

    account: str
    region: str

    def environment(self, _home: Path) -> dict[str, str]:
        """Return the operator's own environment, with the region of the file."""
        return {
            **os.environ,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "CDK_DEFAULT_ACCOUNT": self.account,
            "CDK_DEFAULT_REGION": self.region,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
        }


@dataclass(frozen=True)
class Resource:
    """One resource of an existing stack.

    Attributes:
        kept: Whether its deletion policy lets it outlive the stack.
    """

    stack: str
    logical_id: str
    physical_id: str
    kind: str
    kept: bool


def existing(deployed: Deployed, live: Mapping[str, Mapping[str, Any]]) -> list[Resource]:
    """Return what the existing stacks made, with the policies that they were deployed with.

    Args:
        live: Templates of the existing stacks.
    """
    return [
        Resource(stack, logical, physical, resource["Type"], resource.get("DeletionPolicy") in KEPT_POLICIES)
        for stack, template in live.items()
        for logical, physical in deployed.physical_ids(stack).items()
        if (resource := template["Resources"].get(logical))
    ]


def lift_protection(deployed: Deployed, resources: Iterable[Resource]) -> None:
    """Let stacks and load balancers be deleted that refuse it."""
    formation = deployed.session.client("cloudformation")
    for stack in deployed.stacks():
        formation.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
    _switch_off(deployed, resources, "deletion_protection.enabled")


def empty_log_buckets(deployed: Deployed, resources: Sequence[Resource]) -> int:
    """Stop access logs, and empty the buckets that are deleted with their stacks; return the objects deleted.

    CloudFormation deletes empty buckets only. The platform's buckets hold nothing but access logs.
    """
    _switch_off(deployed, resources, "access_logs.s3.enabled")
    buckets = [each.physical_id for each in resources if each.kind == "AWS::S3::Bucket" and not each.kept]
    return sum(_empty(deployed, bucket) for bucket in buckets)


def _switch_off(deployed: Deployed, resources: Iterable[Resource], attribute: str) -> None:
    client = deployed.session.client("elbv2")
    for each in resources:
        if each.kind == "AWS::ElasticLoadBalancingV2::LoadBalancer":
            client.modify_load_balancer_attributes(
                LoadBalancerArn=each.physical_id, Attributes=[{"Key": attribute, "Value": "false"}]
            )


def _empty(deployed: Deployed, bucket: str) -> int:
    client: Any = deployed.session.client("s3")
    count = 0
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]
            client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            count += len(objects)
    return count
