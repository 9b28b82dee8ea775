"""Plans the replacement of hosts by a deploy: order, maximum duration and additional vCPUs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from voice_blueprint import catalog
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.file.model.aws import OnDemand, Spot
from voice_blueprint.observability.aws.rollouts import calculate_surge_size, can_surge, list_rollback_alarms
from voice_ops.aws.account import NOT_DEPLOYED_STATES, Account
from voice_ops.aws.artifacts import find_fleet_artifacts, format_artifacts_instructions
from voice_ops.aws.launches import find_changed_launch_templates
from voice_ops.preflight.aws.quotas import calculate_available_vcpus


@dataclass(frozen=True)
class GroupRollout:
    """The replacement of the hosts in one Auto Scaling group.

    Attributes:
        hosts: Desired number of hosts, including the warm pool.
        at_a_time: Number of hosts that are replaced at the same time.
        longest_s: Maximum duration, if every host needs its full warm-up and drain time.
        more_vcpus: Additional vCPUs while old and new hosts run.
        quota: Quota that limits the vCPUs of these hosts.
        room_vcpus: Unused vCPUs of the quota; ``None`` if unknown.
        changed: Properties of the launch template that differ.
        guards: Alarms that roll the group back.
    """

    group: str
    stack: str
    hosts: int
    at_a_time: int
    longest_s: int
    more_vcpus: int
    quota: str
    room_vcpus: int | None
    changed: tuple[str, ...]
    guards: tuple[str, ...]


def plan_rollouts(account: Account) -> list[GroupRollout]:
    """Return the groups whose hosts a deploy of the file would replace, in deploy order."""
    deployed = {stack for stack, state in account.fetch_stack_statuses().items() if state not in NOT_DEPLOYED_STATES}
    cached_quota = cache(partial(calculate_available_vcpus, account))
    rollouts = [
        _plan_rollout(account, cached_quota, group, stack, changed)
        for stack, template in account.templates.items()
        if stack in deployed
        for group, changed in find_changed_launch_templates(account.fetch_live_template(stack), template)
    ]
    return [roll for roll in rollouts if roll]


def find_quota_shortages(rollouts: Sequence[GroupRollout]) -> Iterator[str]:
    """Yield a message for each group whose additional vCPUs exceed the quota."""
    for roll in rollouts:
        if roll.room_vcpus is not None and roll.more_vcpus > roll.room_vcpus:
            yield (
                f"{roll.group}: {roll.more_vcpus} additional vCPU, but the quota {roll.quota} has "
                f"{max(roll.room_vcpus, 0)} left: lower `rollout.surge_percent`, or request more with "
                "`voice preflight FILE --request-increases`"
            )


def find_missing_artifacts(account: Account, rollouts: Sequence[GroupRollout]) -> Iterator[str]:
    """Yield a message for each fleet whose new hosts could not start, because its artifacts are incomplete."""
    changed_fleets = {account.scaling_groups[roll.group].fleet for roll in rollouts}
    for fleet, location, complete in find_fleet_artifacts(account):
        if fleet.name in changed_fleets and not complete:
            yield (
                f"{location} is not complete, so no new host of {fleet.name} would start: "
                f"{format_artifacts_instructions(account, fleet)}"
            )


def _plan_rollout(
    account: Account, unused_quota: Callable[..., int | None], group: str, stack: str, changed: tuple[str, ...]
) -> GroupRollout | None:
    """Plan the replacement of the hosts in one group. Return ``None`` if the group does not exist."""
    aws, group_settings = account.deployment.aws, account.scaling_groups[group]
    (fleet,) = (each for each in iter_fleets(account.deployment) if each.name == group_settings.fleet)
    settings = next((each for each in aws.asr if each.name == group_settings.fleet), aws.vad)
    client = account.session.client("autoscaling")
    results = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    if not results:
        return None
    (result,) = results
    hosts = result["DesiredCapacity"] + result.get("WarmPoolSize", 0)
    at_a_time = calculate_surge_size(aws.rollout.surge_percent, result["DesiredCapacity"]) or min(hosts, 1)
    batches = math.ceil(hosts / at_a_time) if hosts else 0
    pauses = (len(aws.rollout.checkpoint_percentages) + 1) * aws.rollout.checkpoint_pause_s
    surge_vcpus = at_a_time * fleet.instance_type.vcpus if can_surge(fleet.purchase or OnDemand()) else 0
    family = catalog.quotas()[fleet.instance_type.quota_code].family
    return GroupRollout(
        group=group,
        stack=stack,
        hosts=hosts,
        at_a_time=at_a_time,
        # Time from launch to service, followed by the group's warm-up and the drain of the old host.
        longest_s=batches * (2 * settings.warm_up_s + settings.drain_timeout_s)
        + (pauses + aws.rollout.bake_s) * bool(hosts),
        more_vcpus=surge_vcpus,
        quota=family,
        room_vcpus=unused_quota(family, spot=isinstance(fleet.purchase, Spot)) if surge_vcpus else None,
        changed=changed,
        guards=list_rollback_alarms(account.deployment, fleet.tier, fleet.name),
    )
