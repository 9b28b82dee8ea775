"""Finds the resources that remain from a deployment in an account, by tag or, for some types, by name."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jmespath

from voice_blueprint.aws import names
from voice_ops.aws.account import Account
from voice_ops.aws.regions import find_removed_region_accounts
from voice_ops.teardown.removal import Resource

GLOBAL_REGION = "us-east-1"
"""Region in which the tagging API lists the resources of global services."""

SNAPSHOT_KIND = "elasticache snapshot"
BAKED_IMAGE_KIND = "ec2 image"
"""Kind for the machine images built by pipelines, which the teardown plan lists as retained."""
_KIND_BY_TYPE = {
    "AWS::ECR::Repository": "ecr repository",
    "AWS::IAM::Role": "iam role",
    "AWS::KMS::Key": "kms key",
    "AWS::Logs::LogGroup": "logs log-group",
    "AWS::S3::Bucket": "s3",
    "AWS::SecretsManager::Secret": "secretsmanager secret",
}
"""Kind, as in ``RemainingResource``, for each CloudFormation type that stacks may retain."""

_DELETED_STATES = {"PendingDeletion", "terminated", "shutting-down", "deleted", "deleting", "INACTIVE", None}


@dataclass(frozen=True)
class RemainingResource:
    """A resource that still exists in the account.

    Attributes:
        kind: Service and type as in an ARN, such as ``kms key``.
        id: ARN, or name if the listing contains no ARN.
    """

    kind: str
    id: str
    region: str

    def has_id(self, physical_id: str) -> bool:
        return self.id == physical_id or self.id.removesuffix(":*").endswith((f":{physical_id}", f"/{physical_id}"))


def is_expected(resource: RemainingResource, resources: Iterable[Resource], kinds: set[str]) -> bool:
    """Return True if the teardown retains the resource intentionally.

    Args:
        resources: Resources of the stacks at the start of the teardown.
        kinds: Retained resource types of stacks that an earlier teardown has deleted. The ids of the resources of
            these stacks are unknown.
    """
    retained = [each for each in resources if each.is_retained]
    if resource.kind == BAKED_IMAGE_KIND:
        return True
    if resource.kind == SNAPSHOT_KIND:
        return "AWS::ElastiCache::ReplicationGroup" in {*kinds, *(each.kind for each in retained)}
    return any(_is_same_resource(resource, each) for each in retained) or any(
        resource.kind == _KIND_BY_TYPE.get(kind) for kind in kinds
    )


def _is_same_resource(remaining: RemainingResource, resource: Resource) -> bool:
    """Return True if a remaining resource is the given resource in a stack.

    The comparison includes the kind, since a resource of another type, such as a stage, may have the same id.
    """
    return remaining.kind == _KIND_BY_TYPE.get(resource.kind) and remaining.has_id(resource.physical_id)


def find_earlier_retained_resources(
    account: Account, resources: Sequence[Resource], kinds: set[str]
) -> set[RemainingResource]:
    """Return the resources that earlier teardowns have retained. Call this before the current stacks are deleted.

    Args:
        resources: Resources of the current stacks.
        kinds: Retained resource types of stacks.
    """
    retained = {_KIND_BY_TYPE.get(kind) for kind in kinds}
    if not retained:
        return set()
    return {
        resource
        for resource in find_remaining_resources(account)
        if resource.kind in retained and not any(_is_same_resource(resource, each) for each in resources)
    }


def find_remaining_resources(account: Account) -> list[RemainingResource]:
    """Return the resources of the deployment that still exist, including those of global services."""
    tagged_resources = [
        resource
        for region in dict.fromkeys((account.region, GLOBAL_REGION))
        for resource in _find_tagged_resources(account, region)
    ]
    resources = [
        RemainingResource(kind, result, account.region)
        for kind, ids in _find_untagged_resources(account).items()
        for result in ids
    ]
    return tagged_resources + [
        resource
        for resource in resources
        if not any(resource.kind == other.kind and other.has_id(resource.id) for other in tagged_resources)
    ]


def _find_tagged_resources(account: Account, region: str) -> Iterator[RemainingResource]:
    tags = [{"Key": names.DEPLOYMENT_TAG, "Values": [account.deployment.name]}]
    path = "ResourceTagMappingList[].ResourceARN"
    for arn in account.iter_paginated_items("resourcegroupstaggingapi", "get_resources", path, region, TagFilters=tags):
        _, _, service, _, _, rest = arn.split(":", 5)
        kind = service if service in {"s3", "sns"} else f"{service} {re.split('[:/]', rest)[0]}"
        if kind not in _STATE_QUERY_BY_KIND or _query_resource_state(account, kind, arn, region) not in _DELETED_STATES:
            yield RemainingResource(kind, arn, region)


_STATE_QUERY_BY_KIND: dict[str, tuple[str, Callable[[str], dict[str, Any]], str]] = {
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
"""Operation, request and path to the state for each kind that the tagging API still lists during a deletion."""


def _query_resource_state(account: Account, kind: str, arn: str, region: str) -> object:
    operation, request, path = _STATE_QUERY_BY_KIND[kind]
    client: Any = account.session.client(kind.split(maxsplit=1)[0], region_name=region)  # type: ignore[call-overload]
    return jmespath.search(path, getattr(client, operation)(**request(arn)))


def _find_untagged_resources(account: Account) -> dict[str, Iterable[str]]:
    """Return the ids of the resources that the tagging API omits, by kind."""
    name, store = account.deployment.name, names.build_state_group_id(account.deployment)
    removed_accounts = find_removed_region_accounts(account) if account.deployment.is_first_region else ()
    alarms = _collect_template_names(account, "AlarmName", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    return {
        "cloudformation stack": [
            *account.fetch_stack_statuses(),
            *(stack for each in removed_accounts for stack in each.fetch_stack_statuses()),
        ],
        "autoscaling group": account.iter_paginated_items(
            "autoscaling",
            "describe_auto_scaling_groups",
            "AutoScalingGroups[].AutoScalingGroupName",
            Filters=[{"Name": f"tag:{names.DEPLOYMENT_TAG}", "Values": [name]}],
        ),
        "ec2 launch-template": account.iter_paginated_items(
            "ec2",
            "describe_launch_templates",
            "LaunchTemplates[].LaunchTemplateId",
            Filters=[{"Name": f"tag:{names.DEPLOYMENT_TAG}", "Values": [name]}],
        ),
        "logs log-group": [
            group
            for prefix in (f"/voice/{name}/", f"aws-waf-logs-{name}")
            for group in account.iter_paginated_items(
                "logs", "describe_log_groups", "logGroups[].logGroupName", logGroupNamePrefix=prefix
            )
            if prefix.endswith("/") or group == prefix
        ],
        "ecr repository": [
            repository
            for repository in account.iter_paginated_items(
                "ecr", "describe_repositories", "repositories[].repositoryName"
            )
            if repository.startswith(f"{name}/")
        ],
        SNAPSHOT_KIND: [
            snapshot["SnapshotName"]
            for snapshot in account.iter_paginated_items("elasticache", "describe_snapshots", "Snapshots[]")
            if store in {snapshot.get("ReplicationGroupId"), snapshot.get("CacheClusterId", "").rpartition("-")[0]}
        ],
        "iam role": [
            role
            for role in account.iter_paginated_items("iam", "list_roles", "Roles[].RoleName")
            if role.startswith(tuple(f"{stack}-" for stack in account.templates))
        ],
        "cloudwatch alarm": alarms.intersection(
            account.iter_paginated_items(
                "cloudwatch",
                "describe_alarms",
                "[MetricAlarms, CompositeAlarms][].AlarmName",
                AlarmNamePrefix=f"{name}-",
                AlarmTypes=["MetricAlarm", "CompositeAlarm"],
            )
        ),
        "cloudwatch dashboard": _collect_template_names(
            account, "DashboardName", "AWS::CloudWatch::Dashboard"
        ).intersection(
            account.iter_paginated_items("cloudwatch", "list_dashboards", "DashboardEntries[].DashboardName")
        ),
    }


def _collect_template_names(account: Account, setting: str, *kinds: str) -> set[str]:
    """Return the names that the templates specify for resources of these types."""
    return {resource["Properties"][setting] for resource in account.iter_resources(*kinds)}
