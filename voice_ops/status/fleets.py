"""Compares the number and the images of hosts and tasks with the file."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from voice_blueprint.aws import names
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.capacity.tiers import build_aws_tier_capacities
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.edge import TaskCount
from voice_blueprint.hosts import AGENT_IMAGES, GATEWAY_IMAGES
from voice_ops.aws.account import REPORT_AREA, Account, ScalingGroup
from voice_ops.preflight.report import CheckResult, create_check_result

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

IN_SERVICE_STATE = "InService"
_IMAGE_PATTERN = re.compile(r"\.amazonaws\.com(?:\.cn)?/([a-z0-9/-]+)@(sha256:[0-9a-f]{64})")


def check_fleets(account: Account) -> Iterator[CheckResult]:
    """Compare the hosts and tasks in service with the desired number, and the desired number with the file."""
    live = list_live_groups(account)
    for group in account.scaling_groups.values():
        result = live.get(group.name)
        yield _check_fleet(account, group, result) if result else _create_missing_result(f"hosts of {group.name}")
    yield from _report_removed_fleets(account)
    aws = account.deployment.aws
    yield _check_tasks(account, "edge", "tasks of the gateway", GATEWAY_IMAGES, aws.edge.gateway.tasks)
    if aws.agents:
        yield _check_tasks(account, "agents", "tasks of the agents", AGENT_IMAGES, aws.agents.tasks)


def check_serving_capacity(account: Account) -> Iterator[CheckResult]:
    """Compare the capacity of hosts in service and running tasks with the calls that the file expects."""
    hosts, service = count_hosts_in_service(account), _describe_service(account, "edge")
    hosts[Tier.GATEWAY] = service["runningCount"] if service else 0
    capacity: Counter[Tier] = Counter()
    for each in build_aws_tier_capacities(account.deployment.aws):
        capacity[each.tier] += each.calls * (1 if each.tier is Tier.STATE else hosts.get(each.name, 0))
    tier, calls = min(capacity.items(), key=itemgetter(1))
    load = account.deployment.load
    yield create_check_result(
        REPORT_AREA,
        "calls that these support",
        f"{calls:,}; limited by {tier}",
        f"{load.calls:,}, at the peak {calculate_peak_calls(load):,}" if load else "",
        warns="see the hosts and tasks above: fewer are in service than the load needs"
        if load and calls < load.calls
        else "",
    )


def count_hosts_in_service(account: Account) -> dict[str, int]:
    """Return the number of healthy hosts in service, by fleet."""
    live, result = (
        list_live_groups(account),
        dict.fromkeys((group.fleet for group in account.scaling_groups.values()), 0),
    )
    for name, group in live.items():
        result[account.scaling_groups[name].fleet] += _count_in_service(group)
    return result


def compare_image_digests(account: Account) -> Iterator[CheckResult]:
    """Compare the image digests of running hosts and tasks with the digests in the file."""
    live = list_live_groups(account)
    for group in account.scaling_groups.values():
        if group.name in live and live[group.name]["Instances"]:
            yield _compare_running_images(
                account, group.name, group.images, _collect_running_digests(account, live[group.name])
            )
    for stack, tier, images in (("edge", Tier.GATEWAY, GATEWAY_IMAGES), ("agents", Tier.AGENT, AGENT_IMAGES)):
        if service := _describe_service(account, stack):
            task = account.session.client("ecs").describe_task_definition(taskDefinition=service["taskDefinition"])
            text = " ".join(container["image"] for container in task["taskDefinition"]["containerDefinitions"])
            yield _compare_running_images(account, tier, images, _find_digests(account, text))


def list_live_groups(account: Account) -> dict[str, AutoScalingGroupTypeDef]:
    result = account.iter_paginated_items("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups[]")
    return {
        group["AutoScalingGroupName"]: group
        for group in result
        if group["AutoScalingGroupName"] in account.scaling_groups
    }


def _report_removed_fleets(account: Account) -> Iterator[CheckResult]:
    """Report the number of hosts in each group that was removed from the file."""
    tag = {"Name": f"tag:{names.DEPLOYMENT_TAG}", "Values": [account.deployment.name]}
    result = account.iter_paginated_items(
        "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups[]", Filters=[tag]
    )
    for group in result:
        if (name := group["AutoScalingGroupName"]) not in account.scaling_groups:
            counts = f"{_count_in_service(group)} in service of {group['DesiredCapacity']} desired"
            remedy = f"they have no alarms: run `voice prune {account.deployment.source.file}`"
            yield create_check_result(REPORT_AREA, f"hosts of {name}", counts, "not in the file", warns=remedy)


def _check_fleet(account: Account, group: ScalingGroup, live: AutoScalingGroupTypeDef) -> CheckResult:
    bounds = group.min_hosts, group.max_hosts
    return _compare_count(
        account, f"hosts of {group.name}", _count_in_service(live), live["DesiredCapacity"], group.images, bounds
    )


def _count_in_service(live: AutoScalingGroupTypeDef) -> int:
    return sum(
        instance["LifecycleState"] == IN_SERVICE_STATE and instance["HealthStatus"] == "Healthy"
        for instance in live["Instances"]
    )


def _check_tasks(
    account: Account, stack: str, subject: str, images: tuple[Image, ...], tasks: TaskCount
) -> CheckResult:
    service = _describe_service(account, stack)
    if service is None:
        return _create_missing_result(subject)
    running, desired = service["runningCount"], service["desiredCount"]
    return _compare_count(account, subject, running, desired, images, (tasks.min, tasks.max))


def _compare_count(  # noqa: PLR0917  two callers
    account: Account, subject: str, serving: int, desired: int, images: tuple[Image, ...], bounds: tuple[int, int]
) -> CheckResult:
    low, high = bounds
    if any(image not in account.deployment.images for image in images):
        low = 0  # the number of hosts is kept at 0 while an image has no digest
    remedy = ""
    if serving < desired:
        remedy = "see the activity of the group or service; `voice preflight` checks quotas and capacity"
    elif not low <= desired <= high:
        remedy = "wait for scaling; if it persists, deploy the file again: the account has other limits"
    return create_check_result(
        REPORT_AREA, subject, f"{serving} in service of {desired} desired", f"{low} to {high}", warns=remedy
    )


def _create_missing_result(subject: str) -> CheckResult:
    return create_check_result(REPORT_AREA, subject, "not deployed", warns="deploy the file")


def _describe_service(account: Account, stack: str) -> Any:  # noqa: ANN401  the stubs of ECS are not installed
    service_id = account.find_service(stack)
    if service_id is None:
        return None
    cluster, arn = service_id
    services = account.session.client("ecs").describe_services(cluster=cluster, services=[arn])["services"]
    return next(iter(services), None)


def _collect_running_digests(account: Account, live: AutoScalingGroupTypeDef) -> dict[str, set[str]]:
    """Return the digests for each image, from the user data of all launch template versions in use."""
    versions = {
        (template["LaunchTemplateId"], template["Version"])
        for instance in live["Instances"]
        if (template := instance.get("LaunchTemplate"))
    }
    results: dict[str, set[str]] = {}
    for template_id, version in sorted(versions):
        answer = account.session.client("ec2").describe_launch_template_versions(
            LaunchTemplateId=template_id, Versions=[version]
        )
        data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"].get("UserData", "")
        for image, digests in _find_digests(account, base64.b64decode(data).decode()).items():
            results.setdefault(image, set()).update(digests)
    return results


def _find_digests(account: Account, text: str) -> dict[str, set[str]]:
    results: dict[str, set[str]] = {}
    for repository, digest in _IMAGE_PATTERN.findall(text):
        prefix, _, image = repository.rpartition("/")
        if prefix == account.deployment.name:
            results.setdefault(image, set()).add(digest)
    return results


def _compare_running_images(
    account: Account, subject: str, images: tuple[Image, ...], running: Mapping[str, set[str]]
) -> CheckResult:
    desired = account.deployment.images
    other = [image for image in images if image in desired and running.get(image, set()) != {desired[image]}]
    digests_text = ", ".join(f"{image} {_shorten_digests(running.get(image, set()))}" for image in other or images)
    return create_check_result(
        REPORT_AREA,
        f"images of {subject}",
        digests_text,
        ", ".join(f"{image} {_shorten_digests({desired[image]})}" for image in other) or "as in the file",
        warns="deploy the file, and replace the hosts that still run the old ones" if other else "",
    )


def _shorten_digests(digests: set[str]) -> str:
    return " and ".join(sorted(digest.removeprefix("sha256:")[:12] for digest in digests)) or "none"
