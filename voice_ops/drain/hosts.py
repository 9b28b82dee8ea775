"""Drains a host in its Auto Scaling group: checks the group's minimum, and starts the termination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from voice_ops.aws.account import Account

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient

TERMINATING_STATE = "Terminating"
TERMINATING_WAIT_STATE = f"{TERMINATING_STATE}:Wait"
"""Lifecycle state of a host while a hook delays the termination. In a warm pool, it has the prefix ``Warmed:``."""
TERMINATED_STATE = "Terminated"


class NotDrainableError(Exception):
    """The host cannot be drained, or is not part of the deployment."""


@dataclass(frozen=True)
class Host:
    """An instance in a fleet.

    Attributes:
        sessions: Container images that the host runs.
        state: Lifecycle state in the group, or ``Terminated`` if the group no longer contains the host.
        low: Minimum number of hosts in the group.
        hook: Name of the hook that delays the termination until the host has drained.
        heartbeat_s: Heartbeat timeout of the hook.
        budget_s: Maximum time for the containers of the host to finish sessions.
    """

    id: str
    fleet: str
    group: str
    zone: str
    sessions: tuple[str, ...]
    state: str
    in_service: int
    desired: int
    low: int
    hook: str
    heartbeat_s: int
    budget_s: int

    @property
    def is_terminating(self) -> bool:
        """Whether the termination of the host has begun."""
        return TERMINATING_STATE in self.state

    @property
    def max_drain_s(self) -> int:
        """Maximum time until the termination continues, even if the host does not respond."""
        return self.budget_s + self.heartbeat_s


def find_host(account: Account, instance: str) -> Host:
    """Return the host with an instance id.

    Raises:
        NotDrainableError: No group of the deployment contains the host, or no hook would delay its termination.
    """
    client = account.session.client("autoscaling")
    result = client.describe_auto_scaling_instances(InstanceIds=[instance])["AutoScalingInstances"]
    if not result:
        raise NotDrainableError(
            f"{instance} is not in an Auto Scaling group in {client.meta.region_name}; see `voice status`"
        )
    group = result[0]["AutoScalingGroupName"]
    if group not in account.scaling_groups:
        group_names = ", ".join(sorted(account.scaling_groups))
        raise NotDrainableError(
            f"{instance} belongs to {group}, which is not a group of {account.deployment.name}: {group_names}"
        )
    live = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    hook, heartbeat_s = _find_termination_hook(client, group)
    group_settings = account.scaling_groups[group]
    serving = [each for each in live["Instances"] if each["LifecycleState"] == "InService"]
    return Host(
        id=instance,
        fleet=group_settings.fleet,
        group=group,
        zone=result[0]["AvailabilityZone"],
        sessions=group_settings.images,
        state=result[0]["LifecycleState"],
        in_service=len(serving),
        desired=live["DesiredCapacity"],
        low=live["MinSize"],
        hook=hook,
        heartbeat_s=heartbeat_s,
        budget_s=group_settings.drain_budget_s,
    )


def check_group_minimum(host: Host, *, replaced: bool) -> None:
    """Check that terminating a host does not reduce its group below the minimum number of hosts.

    Raises:
        NotDrainableError: The group would fall below its minimum.
    """
    if not host.is_terminating and not replaced and host.desired <= host.low:
        raise NotDrainableError(
            f"{host.group} has {host.desired} hosts desired, which is its minimum: give --replace, which starts "
            "another, or lower `min` in the deployment file"
        )


def terminate_host(account: Account, host: Host, *, replaced: bool) -> None:
    """Start the termination of a host, which the hook of the group delays until the host has drained."""
    account.session.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=host.id, ShouldDecrementDesiredCapacity=not replaced
    )


def describe_host(account: Account, host: Host) -> Host:
    client = account.session.client("autoscaling")
    result = client.describe_auto_scaling_instances(InstanceIds=[host.id])["AutoScalingInstances"]
    return replace(host, state=result[0]["LifecycleState"] if result else TERMINATED_STATE)


def _find_termination_hook(client: AutoScalingClient, group: str) -> tuple[str, int]:
    hooks = client.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
    for hook in hooks:
        if hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING":
            return hook["LifecycleHookName"], hook["HeartbeatTimeout"]
    raise NotDrainableError(
        f"{group} has no lifecycle hook for termination, so calls would be interrupted; deploy the file, then drain"
    )
