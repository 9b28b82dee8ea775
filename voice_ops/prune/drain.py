"""Drains the hosts and tasks of removed stacks before the stacks are deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from voice_blueprint.aws import names
from voice_ops.prune.removals import GROUP_TYPE, SERVICE_TYPE, Removal

POLL_INTERVAL_S = 5.0
DNS_CACHE_TTL_S = 60.0
"""Time after which clients resolve a name again. The value is Route 53's TTL for alias records that point to an API.
Source: https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/resource-record-sets-choosing-alias-non-alias.html"""
TASK_STOP_TIMEOUT_S = 300
"""Maximum time for ECS to stop unprotected tasks, which is Fargate's timeout of 120 s plus a margin."""
HEALTH_CHECK_TYPE = "AWS::Route53::HealthCheck"


class DrainError(Exception):
    """Hosts or tasks did not drain in time."""


def drain_removed_stacks(removal: Removal, report: Callable[[str], None]) -> None:
    """Drain the hosts and tasks of removed stacks.

    VAD hosts are drained first, since their calls depend on the other tiers.

    Raises:
        DrainError: Hosts or tasks still exist after the maximum time.
    """
    if removal.is_whole_region:
        _redirect_callers(removal, report)
    packets = names.build_stack_name(removal.account.deployment, "vad")
    groups = list(removal.iter_resource_ids(GROUP_TYPE))
    for first in (True, False):
        wave = [group for stack, group in groups if (stack == packets) is first]
        if wave:
            _scale_to_zero(removal, wave)
            _wait_until_drained(
                partial(_count_hosts_by_group, removal, wave), _calculate_max_drain_s(removal, wave), report
            )
    services = [arn for _, arn in removal.iter_resource_ids(SERVICE_TYPE)]
    if services:
        _scale_in_services(removal, services)
        calls_s = removal.account.deployment.aws.edge.session_max_s
        try:
            _wait_until_drained(
                lambda: dict(_count_running_tasks(removal, services)), calls_s + TASK_STOP_TIMEOUT_S, report
            )
        except DrainError:
            # Tasks protect themselves while they have calls, and load balancers continue to send new calls to them.
            report(f"tasks have calls after {calls_s + TASK_STOP_TIMEOUT_S} s: they are stopped now, and end them")
            _stop_tasks(removal, services)
            _wait_until_drained(lambda: dict(_count_running_tasks(removal, services)), TASK_STOP_TIMEOUT_S, report)


def _redirect_callers(removal: Removal, report: Callable[[str], None]) -> None:
    """Disable and invert the health check for the region, so that the shared name resolves to the other regions.

    A disabled check counts as healthy, and its inversion as unhealthy. A check that is only inverted would count as
    healthy once the gateway stops, and send callers to a region without hosts.
    """
    route53: Any = removal.account.session.client("route53")
    checks = [check for _, check in removal.iter_resource_ids(HEALTH_CHECK_TYPE)]
    for check in checks:
        route53.update_health_check(HealthCheckId=check, Disabled=True, Inverted=True)
    if checks:
        report(f"{removal.account.region} counts as unhealthy now; callers of the shared name go elsewhere")
        time.sleep(DNS_CACHE_TTL_S)


def _scale_to_zero(removal: Removal, groups: list[str]) -> None:
    client: Any = removal.account.session.client("autoscaling")
    for group in groups:
        # An instance refresh in progress would launch hosts again.
        with suppress(client.exceptions.ActiveInstanceRefreshNotFoundFault):
            client.cancel_instance_refresh(AutoScalingGroupName=group)
        client.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=0, MaxSize=0, DesiredCapacity=0)


def _count_hosts_by_group(removal: Removal, groups: list[str]) -> dict[str, int]:
    client: Any = removal.account.session.client("autoscaling")
    live = client.describe_auto_scaling_groups(AutoScalingGroupNames=groups)["AutoScalingGroups"]
    return {each["AutoScalingGroupName"]: len(each["Instances"]) for each in live if each["Instances"]}


def _calculate_max_drain_s(removal: Removal, groups: list[str]) -> int:
    """Return the maximum time by which group hooks can delay a termination, in seconds."""
    client: Any = removal.account.session.client("autoscaling")
    hooks = [
        hook
        for group in groups
        for hook in client.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
        if hook["LifecycleTransition"].endswith("TERMINATING")
    ]
    return max((hook.get("GlobalTimeout", hook["HeartbeatTimeout"]) for hook in hooks), default=0) + TASK_STOP_TIMEOUT_S


def _scale_in_services(removal: Removal, services: list[str]) -> None:
    scaling: Any = removal.account.session.client("application-autoscaling")
    ecs: Any = removal.account.session.client("ecs")
    for arn in services:
        cluster, name = arn.split("/")[-2:]
        ids = [f"service/{cluster}/{name}"]
        targets = scaling.describe_scalable_targets(ServiceNamespace="ecs", ResourceIds=ids)["ScalableTargets"]
        for target in targets:
            keys = ("ServiceNamespace", "ResourceId", "ScalableDimension")
            scaling.register_scalable_target(**{key: target[key] for key in keys}, MinCapacity=0, MaxCapacity=0)
        ecs.update_service(cluster=cluster, service=arn, desiredCount=0)


def _stop_tasks(removal: Removal, services: list[str]) -> None:
    """Stop all tasks regardless of their protection. Fargate kills a task that does not end within the stop timeout."""
    ecs: Any = removal.account.session.client("ecs")
    for arn in services:
        cluster, name = arn.split("/")[-2:]
        task_arns = removal.account.iter_paginated_items(
            "ecs", "list_tasks", "taskArns[]", cluster=cluster, serviceName=name
        )
        for task in list(task_arns):
            ecs.stop_task(cluster=cluster, task=task, reason="voice prune")


def _count_running_tasks(removal: Removal, services: list[str]) -> Iterator[tuple[str, int]]:
    ecs: Any = removal.account.session.client("ecs")
    for arn in services:
        for service in ecs.describe_services(cluster=arn.split("/")[-2], services=[arn])["services"]:
            if service["runningCount"]:
                yield service["serviceName"], service["runningCount"]


def _wait_until_drained(
    remaining: Callable[[], dict[str, int]], max_wait_s: int, report: Callable[[str], None]
) -> None:
    started_at, last_report = time.monotonic(), ""
    while remaining_counts := remaining():
        text = ", ".join(f"{count} of {name}" for name, count in remaining_counts.items())
        waited = time.monotonic() - started_at
        if waited > max_wait_s:
            raise DrainError(
                f"{text} still there after {waited:.0f} s, and may take {max_wait_s} s to drain: see "
                "the activity of the group or service, and run the command again; nothing was deleted"
            )
        if text != last_report:
            last_report = text
            report(f"draining: {text}, for {max_wait_s} s at most")
        time.sleep(POLL_INTERVAL_S)
