"""Lists the resources of existing stacks, and prepares the stacks for deletion."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from voice_ops.aws.account import Account
from voice_ops.teardown.plan import RETAINING_POLICIES, ResourceSizes

_BYTES_PER_GB = 2**30
"""Bytes per GB, as charged by CloudWatch Logs and S3."""

_METRIC_LOOKBACK_DAYS = 3
"""Number of days of metrics to query. S3 reports the size of a bucket once a day, one or two days late."""


@dataclass(frozen=True)
class OperatorAccount:
    """Account and region from the operator's credentials, for the CDK CLI."""

    account: str
    region: str

    def build_environment(self, _home: Path) -> dict[str, str]:
        """Return the environment of this process with the account and region for the CDK CLI."""
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
    """A resource of an existing stack.

    Attributes:
        is_retained: Whether the deletion policy retains the resource.
    """

    stack: str
    logical_id: str
    physical_id: str
    kind: str
    is_retained: bool


def list_existing_resources(account: Account, live: Mapping[str, Mapping[str, Any]]) -> list[Resource]:
    """Return the resources in the existing stacks, with the deletion policies from the deployed templates.

    Args:
        live: Templates of the existing stacks.
    """
    return [
        Resource(stack, logical, physical, resource["Type"], resource.get("DeletionPolicy") in RETAINING_POLICIES)
        for stack, template in live.items()
        for logical, physical in account.fetch_physical_ids(stack).items()
        if (resource := template["Resources"].get(logical))
    ]


def measure_stored_sizes(account: Account, resources: Iterable[Resource]) -> ResourceSizes:
    """Return the sizes of the retained resources that are charged by size, in GB."""
    stored = {
        (each.stack, each.logical_id): _measure_stored_bytes(account, each) for each in resources if each.is_retained
    }
    return {key: size / _BYTES_PER_GB for key, size in stored.items() if size is not None}


def _measure_stored_bytes(account: Account, resource: Resource) -> float | None:
    name = resource.physical_id
    match resource.kind:
        case "AWS::Logs::LogGroup":
            path = f"logGroups[?logGroupName == '{name}'].storedBytes"
            return next(
                account.iter_paginated_items("logs", "describe_log_groups", path, logGroupNamePrefix=name), None
            )
        case "AWS::ECR::Repository":
            path = "imageDetails[].imageSizeInBytes"
            return float(sum(account.iter_paginated_items("ecr", "describe_images", path, repositoryName=name)))
        case "AWS::S3::Bucket":
            return _measure_bucket_bytes(account, name)
    return None


def _measure_bucket_bytes(account: Account, name: str) -> float | None:
    now = datetime.now(UTC)
    dimensions = {"BucketName": name, "StorageType": "StandardStorage"}
    points = account.session.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/S3",
        MetricName="BucketSizeBytes",
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        StartTime=now - timedelta(days=_METRIC_LOOKBACK_DAYS),
        EndTime=now,
        Period=86400,
        Statistics=["Average"],
    )["Datapoints"]
    return max(points, key=lambda point: point["Timestamp"])["Average"] if points else None


def disable_deletion_protection(account: Account, stacks: Iterable[str], resources: Iterable[Resource]) -> None:
    """Disable the deletion protection on stacks and their load balancers."""
    formation, states = account.session.client("cloudformation"), account.fetch_stack_statuses()
    for stack in stacks:
        if states.get(stack) != "DELETE_IN_PROGRESS":  # deleted by an earlier run, and no longer modifiable
            formation.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
    _disable_attribute(account, resources, "deletion_protection.enabled")


def empty_log_buckets(account: Account, resources: Sequence[Resource]) -> int:
    """Disable access logs, and empty the buckets that are to be deleted with their stacks.

    CloudFormation only deletes empty buckets. The platform's buckets only contain access logs.

    Returns:
        The number of deleted objects.
    """
    _disable_attribute(account, resources, "access_logs.s3.enabled")
    buckets = [each.physical_id for each in resources if each.kind == "AWS::S3::Bucket" and not each.is_retained]
    return sum(_empty_bucket(account, bucket) for bucket in buckets)


def _disable_attribute(account: Account, resources: Iterable[Resource], attribute: str) -> None:
    client = account.session.client("elbv2")
    for each in resources:
        if each.kind == "AWS::ElasticLoadBalancingV2::LoadBalancer":
            # An earlier run may already have deleted the load balancer.
            with suppress(client.exceptions.LoadBalancerNotFoundException):
                client.modify_load_balancer_attributes(
                    LoadBalancerArn=each.physical_id, Attributes=[{"Key": attribute, "Value": "false"}]
                )


def _empty_bucket(account: Account, bucket: str) -> int:
    client: Any = account.session.client("s3")
    count = 0
    with suppress(client.exceptions.NoSuchBucket):  # as above
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
            results = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            if results:
                objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in results]
                client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
                count += len(objects)
    return count
