"""Drains hosts and tasks of removed stacks before anything is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from voice_blueprint.aws import names
from voice_ops.prune.leaving import GROUP, SERVICE, Removal

POLL_S = 5.0
DNS_CACHE_S = 60.0
"""Time until clients have resolved a name again: Route 53's TTL of alias records to an API. Source:
https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/resource-record-sets-choosing-alias-non-alias.html"""
TASK_S = 300
"""Maximum time for ECS to stop unprotected tasks: the 120 s of Fargate, and a margin."""
HEALTH_CHECK = "AWS::Route53::HealthCheck"


class DrainError(Exception):
    """Hosts or tasks did not drain in time. The message contains the next step."""


def drain(found: Removal, tell: Callable[[str], None]) -> None:
    """Drain hosts and tasks of removed stacks, VAD hosts first, since their calls depend on the other tiers.

    Raises:
        DrainError: Hosts still exist after the maximum time of their hooks.
    """
    if found.is_region:
        _send_callers_elsewhere(found, tell)
    packets = names.stack(found.account.deployment, "vad")
    groups = list(found.of_type(GROUP))
    for first in (True, False):
        wave = [group for stack, group in groups if (stack == packets) is first]
        if wave:
            _scale_to_zero(found, wave)
            _wait(lambda wave=wave: _hosts(found, wave), _max_drain_s(found, wave), tell)  # type: ignore[misc]
    services = [arn for _, arn in found.of_type(SERVICE)]
    if services:
        _scale_in(found, services)
        calls_s = found.account.deployment.aws.edge.session_max_s
        try:
            _wait(lambda: dict(_tasks(found, services)), calls_s + TASK_S, tell)
        except DrainError:
            # Tasks protect themselves while they have calls, and load balancers continue to send them new ones.
            tell(f"tasks have calls after {calls_s + TASK_S} s: they are stopped now, and end them")
            _stop(found, services)
            _wait(lambda: dict(_tasks(found, services)), TASK_S, tell)


def _send_callers_elsewhere(found: Removal, tell: Callable[[str], None]) -> None:
    """Make the regions' shared name resolve to the other regions, by inverting this region's health check."""
    route53: Any = found.account.session.client("route53")
    checks = [check for _, check in found.of_type(HEALTH_CHECK)]
    for check in checks:
        route53.update_health_check(HealthCheckId=check, Inverted=True)
    if checks:
        tell(f"{found.account.region} counts as unhealthy now; callers of the shared name go elsewhere")
        time.sleep(DNS_CACHE_S)


def _scale_to_zero(found: Removal, groups: list[str]) -> None:
    client: Any = found.account.session.client("autoscaling")
    for group in groups:
        # A running refresh would launch hosts again.
        with suppress(client.exceptions.ActiveInstanceRefreshNotFoundFault):
            client.cancel_instance_refresh(AutoScalingGroupName=group)
        client.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=0, MaxSize=0, DesiredCapacity=0)


def _hosts(found: Removal, groups: list[str]) -> dict[str, int]:
    client: Any = found.account.session.client("autoscaling")
    live = client.describe_auto_scaling_groups(AutoScalingGroupNames=groups)["AutoScalingGroups"]
    return {each["AutoScalingGroupName"]: len(each["Instances"]) for each in live if each["Instances"]}


def _max_drain_s(found: Removal, groups: list[str]) -> int:
    """Return the maximum delay of a termination by the groups' hooks, with any number of heartbeats."""
    client: Any = found.account.session.client("autoscaling")
    hooks = [
        hook
        for group in groups
        for hook in client.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
        if hook["LifecycleTransition"].endswith("TERMINATING")
    ]
    return max((hook.get("GlobalTimeout", hook["HeartbeatTimeout"]) for hook in hooks), default=0) + TASK_S


def _scale_in(found: Removal, services: list[str]) -> None:
    scaling: Any = found.account.session.client("application-autoscaling")
    ecs: Any = found.account.session.client("ecs")
    for arn in services:
        cluster, name = arn.split("/")[-2:]
        ids = [f"service/{cluster}/{name}"]
        targets = scaling.describe_scalable_targets(ServiceNamespace="ecs", ResourceIds=ids)["ScalableTargets"]
        for target in targets:
            keys = ("ServiceNamespace", "ResourceId", "ScalableDimension")
            scaling.register_scalable_target(**{key: target[key] for key in keys}, MinCapacity=0, MaxCapacity=0)
        ecs.update_service(cluster=cluster, service=arn, desiredCount=0)


def _stop(found: Removal, services: list[str]) -> None:
    """Stop each task regardless of protection: it gets SIGTERM and Fargate's stop timeout."""
    ecs: Any = found.account.session.client("ecs")
    for arn in services:
        cluster, name = arn.split("/")[-2:]
        listed = found.account.listed("ecs", "list_tasks", "taskArns[]", cluster=cluster, serviceName=name)
        for task in list(listed):
            ecs.stop_task(cluster=cluster, task=task, reason="voice prune")


def _tasks(found: Removal, services: list[str]) -> Iterator[tuple[str, int]]:
    ecs: Any = found.account.session.client("ecs")
    for arn in services:
        for service in ecs.describe_services(cluster=arn.split("/")[-2], services=[arn])["services"]:
            if service["runningCount"]:
                yield service["serviceName"], service["runningCount"]


def _wait(remaining: Callable[[], dict[str, int]], longest_s: int, tell: Callable[[str], None]) -> None:
    since, last_report = time.monotonic(), ""
    while left := remaining():
        text = ", ".join(f"{count} of {name}" for name, count in left.items())
        waited = time.monotonic() - since
        if waited > longest_s:
            raise DrainError(
                f"{text} still there after {waited:.0f} s, and may take {longest_s} s to drain: see "
                "the activity of the group or service, and run the command again; nothing was deleted"
            )
        if text != last_report:
            last_report = text
            tell(f"draining: {text}, for {longest_s} s at most")
        time.sleep(POLL_S)
