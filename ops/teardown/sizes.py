"""How much kept things hold, in GB, as far as their services know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from ops.status.deployed import Deployed
from ops.teardown.plan import Sizes
from ops.teardown.removal import Resource

_GB = 2**30
"""What both CloudWatch Logs and S3 charge as a GB."""

_DAYS_BACK = 3
"""S3 reports the size of a bucket once a day, a day or two late."""


def sizes(deployed: Deployed, resources: Iterable[Resource]) -> Sizes:
    """Ask for the size of everything that is kept and charged by size."""
    found = {}
    for each in resources:
        if each.kept and each.kind in _BYTES:
            stored = _BYTES[each.kind](deployed, each.physical_id)
            if stored is not None:
                found[each.stack, each.logical_id] = stored / _GB
    return found


def _log_group(deployed: Deployed, name: str) -> float | None:
    client: Any = deployed.session.client("logs")
    groups = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return next((group["storedBytes"] for group in groups if group["logGroupName"] == name), None)


def _repository(deployed: Deployed, name: str) -> float | None:
    client: Any = deployed.session.client("ecr")
    pages = client.get_paginator("describe_images").paginate(repositoryName=name)
    return float(sum(image.get("imageSizeInBytes", 0) for page in pages for image in page["imageDetails"]))


def _bucket(deployed: Deployed, name: str) -> float | None:
    now = datetime.now(UTC)
    dimensions = {"BucketName": name, "StorageType": "StandardStorage"}
    points = deployed.session.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/S3",
        MetricName="BucketSizeBytes",
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        StartTime=now - timedelta(days=_DAYS_BACK),
        EndTime=now,
        Period=86400,
        Statistics=["Average"],
    )["Datapoints"]
    return max(points, key=lambda point: point["Timestamp"])["Average"] if points else None


_BYTES: dict[str, Callable[[Deployed, str], float | None]] = {
    "AWS::ECR::Repository": _repository,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::S3::Bucket": _bucket,
}
