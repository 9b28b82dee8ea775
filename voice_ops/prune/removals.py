"""Finds existing stacks that the file no longer defines, in its regions and in removed regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from voice_blueprint.aws import names
from voice_blueprint.contract.metrics import FLEET_DIMENSION
from voice_ops.aws.account import Account
from voice_ops.aws.deletion import Templates, deletion_order, exporting_stacks
from voice_ops.aws.regions import removed_regions
from voice_ops.rollout.resume import stored_rollout
from voice_ops.status.fleets import hosts_in_service

GROUP_TYPE, SERVICE_TYPE = "AWS::AutoScaling::AutoScalingGroup", "AWS::ECS::Service"


@dataclass(frozen=True)
class Removal:
    """The stacks of a region that were removed from the file.

    Attributes:
        account: Account of the deployment in the region. It has no templates if the whole region was removed.
        stacks: Names of the removed stacks, in the order of their deletion.
        live: Templates of all existing stacks of the deployment in the region.
    """

    account: Account
    stacks: tuple[str, ...]
    live: Templates

    @property
    def is_whole_region(self) -> bool:
        """Whether the whole region was removed from the file."""
        return not self.account.templates

    @cached_property
    def physical_ids(self) -> dict[str, dict[str, str]]:
        """Physical ids of the resources, by stack and logical id. Stacks whose deletion has begun have none."""
        states = self.account.stacks()
        return {
            stack: {} if states.get(stack) in {None, "DELETE_IN_PROGRESS"} else self.account.physical_ids(stack)
            for stack in self.stacks
        }

    def resource_ids(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the stack and physical id of each resource of a type."""
        for stack in self.stacks:
            for logical, physical_ids in self.physical_ids[stack].items():
                if self.live[stack]["Resources"].get(logical, {}).get("Type") == kind:
                    yield stack, physical_ids

    def importers(self) -> list[str]:
        """Return the remaining stacks whose deployed template imports from a removed stack."""
        return [
            stack
            for stack, template in self.live.items()
            if stack not in self.stacks and exporting_stacks(template, self.live) & set(self.stacks)
        ]

    def count_hosts(self) -> Counter[str]:
        """Return the number of hosts and running tasks, by stack."""
        count = Counter(dict.fromkeys(self.stacks, 0))
        scaling: Any = self.account.session.client("autoscaling")
        for stack, group in self.resource_ids(GROUP_TYPE):
            result = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
            count[stack] += sum(len(each["Instances"]) for each in result)
        ecs: Any = self.account.session.client("ecs")
        for stack, arn in self.resource_ids(SERVICE_TYPE):
            services = ecs.describe_services(cluster=arn.split("/")[1], services=[arn])["services"]
            count[stack] += sum(each["runningCount"] for each in services)
        return count


def find_removals(accounts: Sequence[Account]) -> list[Removal]:
    """Return the removed stacks of each region, with the regions of the file first.

    A removal has no stacks if an earlier command was interrupted between the deletion of stacks and the deploy of
    alarms.
    """
    results = [_removed_parts(account) for account in (*accounts, *removed_regions(accounts[0]))]
    return [each for each in results if each.stacks or _has_stale_alarms(each)]


def _has_stale_alarms(removal: Removal) -> bool:
    """Return True if the deployed alarms of a region monitor a fleet that is not in the file."""
    watching = names.stack_name(removal.account.deployment, "observability")
    if watching not in removal.account.templates or watching not in removal.live:
        return False
    return bool(_alarm_fleets(removal.live[watching]) - _alarm_fleets(removal.account.templates[watching]))


def _alarm_fleets(template: Mapping[str, Any]) -> set[str]:
    """Return the fleets whose metrics the alarms of a template read."""
    return {
        dimension["Value"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
        for dimension in resource["Properties"].get("Dimensions", [])
        if dimension["Name"] == FLEET_DIMENSION
    }


def missing_capacity(removal: Removal) -> Iterator[str]:
    """Yield a message for each reason why the remaining hosts may lack capacity for the calls of the removed hosts."""
    account = removal.account
    file = account.deployment.source.file
    live = account.stacks()
    if (rollout := stored_rollout(account)) and not rollout.rolled_back_region:
        yield (
            f"the rollout {rollout.label}, started at {rollout.at}, is in progress in {account.region} and replaces "
            f"hosts that remain: continue it with `voice rollout {file} --resume` until it exits with 0"
        )
    for stack in account.templates:
        if stack not in live:
            yield (
                f"{stack} is in the file but not deployed, and calls of the removed hosts may need it: deploy it "
                f"first, `cdk deploy {stack} --exclusively -c deployment={file}`"
            )
    fleets = {
        names.stack_name(account.deployment, names.fleet_stack_suffix(fleet.name))
        for fleet in account.deployment.aws.asr
    }
    hosts = removal.count_hosts()
    prefix = names.stack_name(account.deployment, names.fleet_stack_suffix(""))
    removed_stacks = [stack for stack in removal.stacks if stack.startswith(prefix) and hosts[stack]]
    in_service = hosts_in_service(account)
    if (
        removed_stacks
        and fleets <= live.keys()
        and not any(in_service[fleet.name] for fleet in account.deployment.aws.asr)
    ):
        yield (
            f"{', '.join(removed_stacks)}: {sum(hosts[stack] for stack in removed_stacks)} hosts would be removed, and "
            "the remaining "
            "fleets have 0 in service: wait until a host is in service, or raise a `hosts.min` and deploy it"
        )


def _removed_parts(account: Account) -> Removal:
    live = account.live_templates()
    stacks = [stack for stack in live if stack not in account.templates]
    return Removal(account, deletion_order(stacks, live), live)
