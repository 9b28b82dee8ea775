"""A host of a fleet in its Auto Scaling group: what it is, whether it may go, and where on its way it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ops.aws.account import Account

if TYPE_CHECKING:
    from types_boto3_autoscaling import AutoScalingClient

TERMINATING = "Terminating"
WAITING = f"{TERMINATING}:Wait"
"""The hook holds it. States of a warm pool have a prefix: ``Warmed:Terminating:Wait``."""
GONE = "Terminated"


class NotDrainableError(Exception):
    """The host may not go, or is none of the deployment's; the text says why and what to do."""


@dataclass(frozen=True)
class Host:
    """One instance of a fleet.

    Attributes:
        carries: The images that it runs.
        state: Lifecycle state in its group; ``Terminated`` when the group has it no more.
        low: Fewest hosts that the group may have.
        hook: Name of the hook that holds its termination until it has drained.
        heartbeat_s: How long the hook waits without a heartbeat.
        budget_s: Time that its containers have to finish sessions in.
    """

    id: str
    fleet: str
    group: str
    zone: str
    carries: tuple[str, ...]
    state: str
    in_service: int
    desired: int
    low: int
    hook: str
    heartbeat_s: int
    budget_s: int

    @property
    def is_leaving(self) -> bool:
        """Whether its termination has begun."""
        return TERMINATING in self.state

    @property
    def longest_s(self) -> int:
        """Time until its termination has gone on, even where the host says nothing any more."""
        return self.budget_s + self.heartbeat_s


def find(account: Account, instance: str) -> Host:
    """Return a host by its instance id.

    Raises:
        NotDrainableError: It is in none of the deployment's groups, or nothing would hold its termination.
    """
    client = account.session.client("autoscaling")
    found = client.describe_auto_scaling_instances(InstanceIds=[instance])["AutoScalingInstances"]
    if not found:
        raise NotDrainableError(
            f"{instance} is in no Auto Scaling group of {client.meta.region_name}; see `voice status`"
        )
    group = found[0]["AutoScalingGroupName"]
    if group not in account.groups:
        known = ", ".join(sorted(account.groups))
        raise NotDrainableError(f"{instance} belongs to {group}, which is none of {account.deployment.name}'s: {known}")
    live = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    hook, heartbeat_s = _hook(client, group)
    ours = account.groups[group]
    serving = [each for each in live["Instances"] if each["LifecycleState"] == "InService"]
    return Host(
        id=instance,
        fleet=ours.fleet,
        group=group,
        zone=found[0]["AvailabilityZone"],
        carries=ours.images,
        state=found[0]["LifecycleState"],
        in_service=len(serving),
        desired=live["DesiredCapacity"],
        low=live["MinSize"],
        hook=hook,
        heartbeat_s=heartbeat_s,
        budget_s=ours.budget_s,
    )


def check(host: Host, *, replaced: bool) -> None:
    """Refuse what the group's minimum forbids.

    Raises:
        NotDrainableError: The group would fall below its minimum.
    """
    if not host.is_leaving and not replaced and host.desired <= host.low:
        raise NotDrainableError(
            f"{host.group} has {host.desired} hosts desired, which is its minimum: "
            "give --replace, which starts another, or lower `min` in the deployment file"
        )


def terminate(account: Account, host: Host, *, replaced: bool) -> None:
    """Begin the termination, which the group's hook holds until the host has drained."""
    account.session.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=host.id, ShouldDecrementDesiredCapacity=not replaced
    )


def look(account: Account, host: Host) -> Host:
    client = account.session.client("autoscaling")
    found = client.describe_auto_scaling_instances(InstanceIds=[host.id])["AutoScalingInstances"]
    return replace(host, state=found[0]["LifecycleState"] if found else GONE)


def _hook(client: AutoScalingClient, group: str) -> tuple[str, int]:
    hooks = client.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
    for hook in hooks:
        if hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING":
            return hook["LifecycleHookName"], hook["HeartbeatTimeout"]
    raise NotDrainableError(
        f"{group} has no lifecycle hook for terminating: its calls would be cut; deploy the file, then drain"
    )
