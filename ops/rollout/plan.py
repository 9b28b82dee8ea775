"""Which hosts a deploy would replace, in what order, for how long at most, and beside how many more."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from blueprint import catalog
from blueprint.aws.rollouts import guards, surge, surges
from blueprint.checks.fleets import fleets
from blueprint.file.model.aws import OnDemand, Spot
from ops.aws.account import Account
from ops.aws.artifacts import prepared, remedy
from ops.preflight.aws.quotas import vcpu_room

GROUP, TEMPLATE = "AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::LaunchTemplate"


@dataclass(frozen=True)
class Roll:
    """The rollout of one group.

    Attributes:
        hosts: Hosts that the group wants now, and those of its warm pool.
        at_a_time: Hosts that are replaced at a time.
        longest_s: Bound of its duration: every host takes its whole warm-up and its whole time to drain.
        more_vcpus: vCPUs beyond those that run now, while old and new hosts are there.
        quota: What they count against.
        room_vcpus: vCPUs that this quota leaves now; ``None`` where Service Quotas does not say.
        changed: Properties of the launch template that differ.
        guards: Alarms that take it back.
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


def rolls(account: Account) -> list[Roll]:
    """Return what a deploy of the file would roll, in the order of the deploy."""
    live = account.live_templates()
    room = cache(partial(vcpu_room, account))
    return [
        _roll(account, room, group, stack, changed)
        for stack, template in account.templates.items()
        for group, changed in _changed(live.get(stack, {}), template)
    ]


def shortages(found: Sequence[Roll]) -> Iterator[str]:
    """Say for each group that would wait for hosts which the account may not launch, what it lacks."""
    for roll in found:
        if roll.room_vcpus is not None and roll.more_vcpus > roll.room_vcpus:
            yield (
                f"{roll.group}: {roll.more_vcpus} vCPU more than run now, and the quota {roll.quota} leaves "
                f"{max(roll.room_vcpus, 0)}: lower `rollout.surge_percent`, or have `voice preflight FILE "
                "--request-increases` ask for more"
            )


def unprepared(account: Account, found: Sequence[Roll]) -> Iterator[str]:
    """Say for each fleet that would roll to hosts which cannot start what its job has not left in the bucket yet."""
    rolling = {account.groups[roll.group].fleet for roll in found}
    for fleet, place, complete in prepared(account):
        if fleet.name in rolling and not complete:
            yield f"{place} is not complete, so no new host of {fleet.name} would start: {remedy(account, fleet)}"


def _changed(live: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the groups of a stack whose launch template differs; a group that is new replaces nothing."""
    before, after = _launches(live), _launches(new)
    for group in after:
        if group in before and before[group] != after[group]:
            keys = sorted(before[group].keys() | after[group].keys())
            yield group, tuple(key for key in keys if before[group].get(key) != after[group].get(key))


def _launches(template: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the launch settings of each group of a template, as text."""
    resources = template.get("Resources", {})
    found = {}
    for resource in resources.values():
        if resource["Type"] == GROUP:
            used = resource["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]
            data = resources[used]["Properties"]["LaunchTemplateData"]
            found[resource["Properties"]["AutoScalingGroupName"]] = {
                key: json.dumps(value, sort_keys=True) for key, value in data.items()
            }
    return found


def _roll(
    account: Account, room_of: Callable[..., int | None], group: str, stack: str, changed: tuple[str, ...]
) -> Roll:
    aws, known = account.deployment.aws, account.groups[group]
    (fleet,) = (each for each in fleets(account.deployment) if each.name == known.fleet)
    settings = next((each for each in aws.asr if each.name == known.fleet), aws.vad)
    client = account.session.client("autoscaling")
    (found,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    hosts = found["DesiredCapacity"] + found.get("WarmPoolSize", 0)
    at_a_time = surge(aws.rollout.surge_percent, found["DesiredCapacity"]) or min(hosts, 1)
    batches = math.ceil(hosts / at_a_time) if hosts else 0
    pauses = (len(aws.rollout.checkpoint_percentages) + 1) * aws.rollout.checkpoint_pause_s
    more = at_a_time * fleet.instance_type.vcpus if surges(fleet.purchase or OnDemand()) else 0
    family = catalog.quotas()[fleet.instance_type.quota_code].family
    return Roll(
        group=group,
        stack=stack,
        hosts=hosts,
        at_a_time=at_a_time,
        # From launch to service, the group's warm-up behind it, and the drain of the old host.
        longest_s=batches * (2 * settings.warm_up_s + settings.drain_timeout_s)
        + (pauses + aws.rollout.bake_s) * bool(hosts),
        more_vcpus=more,
        quota=family,
        room_vcpus=room_of(family, spot=isinstance(fleet.purchase, Spot)) if more else None,
        changed=changed,
        guards=guards(account.deployment, fleet.tier, fleet.name),
    )
