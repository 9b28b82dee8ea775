"""What is left of a deployment in its account: by tag, and by name where AWS keeps no tags."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jmespath

from blueprint.aws import names
from ops.aws.account import DEPLOYMENT_TAG, Account
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

_GONE_STATES = {"PendingDeletion", "terminated", "shutting-down", "deleted", "deleting", "INACTIVE", None}


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


def remains(account: Account) -> list[Left]:
    """Return everything that is left, in every region that the deployment uses."""
    tagged = [left for region in dict.fromkeys((account.region, GLOBAL_REGION)) for left in _tagged(account, region)]
    listed = [Left(kind, found, account.region) for kind, all_found in _listed(account).items() for found in all_found]
    return tagged + [
        left for left in listed if not any(left.kind == other.kind and other.is_called(left.id) for other in tagged)
    ]


def _tagged(account: Account, region: str) -> Iterator[Left]:
    tags = [{"Key": DEPLOYMENT_TAG, "Values": [account.deployment.name]}]
    path = "ResourceTagMappingList[].ResourceARN"
    for arn in account.listed("resourcegroupstaggingapi", "get_resources", path, region, TagFilters=tags):
        _, _, service, _, _, rest = arn.split(":", 5)
        kind = service if service in {"s3", "sns"} else f"{service} {re.split('[:/]', rest)[0]}"
        if kind not in _STATES or _state(account, kind, arn, region) not in _GONE_STATES:
            yield Left(kind, arn, region)


_STATES: dict[str, tuple[str, Callable[[str], dict[str, Any]], str]] = {
    "ec2 instance": (
        "describe_instances",
        lambda arn: {"Filters": [{"Name": "instance-id", "Values": [arn.rpartition("/")[2]]}]},
        "Reservations[0].Instances[0].State.Name",
    ),
    "ec2 natgateway": (
        "describe_nat_gateways",
        lambda arn: {"Filters": [{"Name": "nat-gateway-id", "Values": [arn.rpartition("/")[2]]}]},
        "NatGateways[0].State",
    ),
    "ecs cluster": ("describe_clusters", lambda arn: {"clusters": [arn]}, "clusters[0].status"),
    "ecs service": (
        "describe_services",
        lambda arn: {"cluster": arn.split("/")[1], "services": [arn]},
        "services[0].status",
    ),
    "ecs task-definition": (
        "describe_task_definition",
        lambda arn: {"taskDefinition": arn},
        "taskDefinition.status",
    ),
    "kms key": ("describe_key", lambda arn: {"KeyId": arn}, "KeyMetadata.KeyState"),
}
"""What the tagging API still names while it goes: the question for its state, and where the answer has it."""


def _state(account: Account, kind: str, arn: str, region: str) -> object:
    operation, request, path = _STATES[kind]
    client: Any = account.session.client(kind.split(maxsplit=1)[0], region_name=region)  # type: ignore[call-overload]
    return jmespath.search(path, getattr(client, operation)(**request(arn)))


def _listed(account: Account) -> dict[str, Iterable[str]]:
    """Return what the tagging API may not name, by the kind that it would give."""
    name, store = account.deployment.name, names.state_group(account.deployment)
    alarms = _named(account, "AlarmName", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    return {
        "cloudformation stack": account.stacks(),
        "autoscaling group": set(account.groups).intersection(
            account.listed("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups[].AutoScalingGroupName")
        ),
        "ec2 launch-template": account.listed(
            "ec2",
            "describe_launch_templates",
            "LaunchTemplates[].LaunchTemplateId",
            Filters=[{"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [name]}],
        ),
        "logs log-group": [
            group
            for prefix in (f"/voice/{name}/", f"aws-waf-logs-{name}")
            for group in account.listed(
                "logs", "describe_log_groups", "logGroups[].logGroupName", logGroupNamePrefix=prefix
            )
            if prefix.endswith("/") or group == prefix
        ],
        "ecr repository": [
            repository
            for repository in account.listed("ecr", "describe_repositories", "repositories[].repositoryName")
            if repository.startswith(f"{name}/")
        ],
        SNAPSHOT: [
            snapshot["SnapshotName"]
            for snapshot in account.listed("elasticache", "describe_snapshots", "Snapshots[]")
            if store in {snapshot.get("ReplicationGroupId"), snapshot.get("CacheClusterId", "").rpartition("-")[0]}
        ],
        "iam role": [
            role
            for role in account.listed("iam", "list_roles", "Roles[].RoleName")
            if role.startswith(tuple(f"{stack}-" for stack in account.templates))
        ],
        "cloudwatch alarm": alarms.intersection(
            account.listed(
                "cloudwatch",
                "describe_alarms",
                "[MetricAlarms, CompositeAlarms][].AlarmName",
                AlarmNamePrefix=f"{name}-",
                AlarmTypes=["MetricAlarm", "CompositeAlarm"],
            )
        ),
        "cloudwatch dashboard": _named(account, "DashboardName", "AWS::CloudWatch::Dashboard").intersection(
            account.listed("cloudwatch", "list_dashboards", "DashboardEntries[].DashboardName")
        ),
    }


def _named(account: Account, setting: str, *kinds: str) -> set[str]:
    """Return the names that the templates give to resources of some types."""
    return {resource["Properties"][setting] for resource in account.resources(*kinds)}
