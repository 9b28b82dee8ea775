"""What is left of a deployment in its account: by tag, and by name where AWS keeps no tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from blueprint.aws import names
from ops.status.deployed import DEPLOYMENT_TAG, Deployed
from ops.teardown.removal import Resource

GLOBAL_REGION = "us-east-1"
"""Where the tagging API names resources of services without regions."""

SNAPSHOT = "elasticache snapshot"
_KINDS = {
    "AWS::ECR::Repository": "ecr repository",
    "AWS::IAM::Role": "iam role",
    "AWS::KMS::Key": "kms key",
    "AWS::Logs::LogGroup": "logs log-group",
    "AWS::S3::Bucket": "s3",
    "AWS::SecretsManager::Secret": "secretsmanager secret",
}
"""How `remains` calls what stacks may keep."""

_GONE_STATES = {"PendingDeletion", "terminated", "shutting-down", "deleted", "deleting", "INACTIVE"}


@dataclass(frozen=True)
class Left:
    """One thing that exists.

    Attributes:
        kind: Service and type as in an ARN, such as ``kms key``.
        id: ARN, or name where the listing has no ARN.
    """

    kind: str
    id: str
    region: str

    def is_called(self, physical_id: str) -> bool:
        return self.id == physical_id or self.id.removesuffix(":*").endswith((f":{physical_id}", f"/{physical_id}"))


def is_expected(left: Left, resources: Iterable[Resource], kinds: set[str]) -> bool:
    """Whether something is left on purpose.

    Args:
        resources: What the stacks had made when the teardown began.
        kinds: Resource types that the stacks keep.
    """
    kept = [each for each in resources if each.kept]
    if left.kind == SNAPSHOT:
        return "AWS::ElastiCache::ReplicationGroup" in kinds
    if kept:
        return any(left.kind == _KINDS.get(each.kind) and left.is_called(each.physical_id) for each in kept)
    # The stacks went before: their ids are not known any more, but what kinds they keep is.
    return any(left.kind == _KINDS.get(kind) for kind in kinds)


def remains(deployed: Deployed) -> list[Left]:
    """Return everything that is left, in every region that the deployment uses."""
    home = deployed.deployment.aws.region
    tagged = [left for region in dict.fromkeys((home, GLOBAL_REGION)) for left in _tagged(deployed, region)]
    listed = [Left(kind, found, home) for kind, lister in _LISTERS.items() for found in lister(deployed)]
    return tagged + [left for left in listed if not any(_same(left, other) for other in tagged)]


def _same(listed: Left, tagged: Left) -> bool:
    return listed.kind == tagged.kind and tagged.is_called(listed.id)


def _tagged(deployed: Deployed, region: str) -> Iterator[Left]:
    client: Any = deployed.session.client("resourcegroupstaggingapi", region_name=region)
    tags = [{"Key": DEPLOYMENT_TAG, "Values": [deployed.deployment.name]}]
    for page in client.get_paginator("get_resources").paginate(TagFilters=tags):
        for resource in page["ResourceTagMappingList"]:
            arn = resource["ResourceARN"]
            _, _, service, _, _, rest = arn.split(":", 5)
            kind = service if service in {"s3", "sns"} else f"{service} {re.split('[:/]', rest)[0]}"
            if _state(deployed, kind, arn, region) not in _GONE_STATES:
                yield Left(kind, arn, region)


def _state(deployed: Deployed, kind: str, arn: str, region: str) -> str | None:
    """Return the state of what the tagging API still names while it goes; ``None`` for everything else."""
    client: Any
    if kind == "kms key":
        client = deployed.session.client("kms", region_name=region)
        return str(client.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"])
    if kind.startswith("ecs "):
        return _ecs_state(deployed.session.client("ecs", region_name=region), kind, arn)
    name = arn.rpartition("/")[2]
    client = deployed.session.client("ec2", region_name=region)
    if kind == "ec2 instance":
        found = client.describe_instances(Filters=[{"Name": "instance-id", "Values": [name]}])["Reservations"]
        return str(found[0]["Instances"][0]["State"]["Name"]) if found else "deleted"
    if kind == "ec2 natgateway":
        found = client.describe_nat_gateways(Filters=[{"Name": "nat-gateway-id", "Values": [name]}])["NatGateways"]
        return str(found[0]["State"]) if found else "deleted"
    return None


def _ecs_state(client: Any, kind: str, arn: str) -> str | None:  # noqa: ANN401  the stubs of ECS are not installed
    if kind == "ecs task-definition":
        return str(client.describe_task_definition(taskDefinition=arn)["taskDefinition"]["status"])
    if kind == "ecs cluster":
        found = client.describe_clusters(clusters=[arn])["clusters"]
        return str(found[0]["status"]) if found else "deleted"
    if kind == "ecs service":
        cluster = arn.split("/")[1]
        found = client.describe_services(cluster=cluster, services=[arn])["services"]
        return str(found[0]["status"]) if found else "deleted"
    return None


def _stacks(deployed: Deployed) -> Iterator[str]:
    yield from deployed.stacks()


def _groups(deployed: Deployed) -> Iterator[str]:
    pages = deployed.session.client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate()
    found = {group["AutoScalingGroupName"] for page in pages for group in page["AutoScalingGroups"]}
    yield from sorted(found & deployed.groups)


def _launch_templates(deployed: Deployed) -> Iterator[str]:
    paginator = deployed.session.client("ec2").get_paginator("describe_launch_templates")
    pages = paginator.paginate(Filters=[{"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [deployed.deployment.name]}])
    yield from (template["LaunchTemplateId"] for page in pages for template in page["LaunchTemplates"])


def _log_groups(deployed: Deployed) -> Iterator[str]:
    name = deployed.deployment.name
    client: Any = deployed.session.client("logs")
    for prefix in (f"/voice/{name}/", f"aws-waf-logs-{name}"):
        for page in client.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix):
            yield from (
                group["logGroupName"]
                for group in page["logGroups"]
                if prefix.endswith("/") or group["logGroupName"] == prefix
            )


def _repositories(deployed: Deployed) -> Iterator[str]:
    client: Any = deployed.session.client("ecr")
    for page in client.get_paginator("describe_repositories").paginate():
        for repository in page["repositories"]:
            if repository["repositoryName"].startswith(f"{deployed.deployment.name}/"):
                yield repository["repositoryName"]


def _snapshots(deployed: Deployed) -> Iterator[str]:
    store = names.state_group(deployed.deployment)
    for page in deployed.session.client("elasticache").get_paginator("describe_snapshots").paginate():
        for snapshot in page["Snapshots"]:
            if store in {snapshot.get("ReplicationGroupId"), snapshot.get("CacheClusterId", "").rpartition("-")[0]}:
                yield snapshot["SnapshotName"]


def _roles(deployed: Deployed) -> Iterator[str]:
    prefixes = tuple(f"{stack}-" for stack in deployed.templates)
    client: Any = deployed.session.client("iam")
    for page in client.get_paginator("list_roles").paginate():
        yield from (role["RoleName"] for role in page["Roles"] if role["RoleName"].startswith(prefixes))


def _named(kind: str, property_name: str) -> Callable[[Deployed], set[str]]:
    """Return the names that the templates give to resources of a type."""

    def wanted(deployed: Deployed) -> set[str]:
        return {
            resource["Properties"][property_name]
            for template in deployed.templates.values()
            for resource in template["Resources"].values()
            if resource["Type"] == kind
        }

    return wanted


def _alarms(deployed: Deployed) -> Iterator[str]:
    kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    wanted = {name for kind in kinds for name in _named(kind, "AlarmName")(deployed)}
    paginator = deployed.session.client("cloudwatch").get_paginator("describe_alarms")
    prefix = f"{deployed.deployment.name}-"
    for page in paginator.paginate(AlarmNamePrefix=prefix, AlarmTypes=["MetricAlarm", "CompositeAlarm"]):
        found = {alarm["AlarmName"] for alarm in (*page["MetricAlarms"], *page.get("CompositeAlarms", []))}
        yield from sorted(found & wanted)


def _dashboards(deployed: Deployed) -> Iterator[str]:
    wanted = _named("AWS::CloudWatch::Dashboard", "DashboardName")(deployed)
    for page in deployed.session.client("cloudwatch").get_paginator("list_dashboards").paginate():
        yield from sorted({entry["DashboardName"] for entry in page["DashboardEntries"]} & wanted)


_LISTERS: dict[str, Callable[[Deployed], Iterator[str]]] = {
    "cloudformation stack": _stacks,
    "autoscaling group": _groups,
    "ec2 launch-template": _launch_templates,
    "logs log-group": _log_groups,
    "ecr repository": _repositories,
    SNAPSHOT: _snapshots,
    "iam role": _roles,
    "cloudwatch alarm": _alarms,
    "cloudwatch dashboard": _dashboards,
}
"""What the tagging API may not name, by the kind that it would give."""
