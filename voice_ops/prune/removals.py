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
from voice_ops.aws.deletion import Templates, find_exporting_stacks, sort_stacks_for_deletion
from voice_ops.aws.regions import find_removed_region_accounts
from voice_ops.rollout.resume import load_rollout
from voice_ops.status.fleets import count_hosts_in_service

GROUP_TYPE, SERVICE_TYPE = "AWS::AutoScaling::AutoScalingGroup", "AWS::ECS::Service"


@dataclass(frozen=True)
class Removal:
    """The stacks in a region that were removed from the file.

    Attributes:
        account: Account of the deployment in the region. It has no templates if the whole region was removed.
        stacks: Names of the removed stacks, in the order of their deletion.
        deployed_templates: Templates of all existing stacks of the deployment in the region.
    """

    account: Account
    stacks: tuple[str, ...]
    deployed_templates: Templates

    @property
    def is_whole_region(self) -> bool:
        """Whether the whole region was removed from the file."""
        return not self.account.templates

    @cached_property
    def physical_ids_by_stack(self) -> dict[str, dict[str, str]]:
        """Physical ids of the resources, by stack and logical id. Stacks whose deletion has begun have none."""
        states = self.account.fetch_stack_statuses()
        return {
            stack: {} if states.get(stack) in {None, "DELETE_IN_PROGRESS"} else self.account.fetch_physical_ids(stack)
            for stack in self.stacks
        }

    def iter_resource_ids(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the stack and physical id for each resource of a type."""
        for stack in self.stacks:
            for logical, physical_id in self.physical_ids_by_stack[stack].items():
                if self.deployed_templates[stack]["Resources"].get(logical, {}).get("Type") == kind:
                    yield stack, physical_id

    def find_importing_stacks(self) -> list[str]:
        """Return the remaining stacks whose deployed template imports from a removed stack."""
        return [
            stack
            for stack, template in self.deployed_templates.items()
            if stack not in self.stacks and find_exporting_stacks(template, self.deployed_templates) & set(self.stacks)
        ]

    def count_hosts(self) -> Counter[str]:
        """Return the number of hosts and running tasks, by stack."""
        count = Counter(dict.fromkeys(self.stacks, 0))
        scaling: Any = self.account.session.client("autoscaling")
        for stack, group in self.iter_resource_ids(GROUP_TYPE):
            result = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
            count[stack] += sum(len(each["Instances"]) for each in result)
        ecs: Any = self.account.session.client("ecs")
        for stack, arn in self.iter_resource_ids(SERVICE_TYPE):
            services = ecs.describe_services(cluster=arn.split("/")[1], services=[arn])["services"]
            count[stack] += sum(each["runningCount"] for each in services)
        return count


def find_removals(accounts: Sequence[Account]) -> list[Removal]:
    """Return the removed stacks in each region, with the regions in the file first.

    A removal has no stacks if an earlier command was interrupted after it deleted the stacks and before it deployed the
    alarms.
    """
    results = [_find_removal(account) for account in (*accounts, *find_removed_region_accounts(accounts[0]))]
    return [each for each in results if each.stacks or _has_stale_alarms(each)]


def _has_stale_alarms(removal: Removal) -> bool:
    """Return True if the deployed alarms in a region monitor a fleet that is not in the file."""
    watching = names.build_stack_name(removal.account.deployment, "observability")
    if watching not in removal.account.templates or watching not in removal.deployed_templates:
        return False
    return bool(
        _collect_alarm_fleets(removal.deployed_templates[watching])
        - _collect_alarm_fleets(removal.account.templates[watching])
    )


def _collect_alarm_fleets(template: Mapping[str, Any]) -> set[str]:
    """Return the fleets whose metrics the alarms of a template read."""
    return {
        dimension["Value"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
        for dimension in resource["Properties"].get("Dimensions", [])
        if dimension["Name"] == FLEET_DIMENSION
    }


def find_capacity_warnings(removal: Removal) -> Iterator[str]:
    """Yield a message for each reason why the remaining hosts may lack capacity for the calls of the removed hosts."""
    account = removal.account
    file = account.deployment.source.file
    live = account.fetch_stack_statuses()
    if (rollout := load_rollout(account)) and not rollout.rolled_back_region:
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
        names.build_stack_name(account.deployment, names.build_fleet_stack_suffix(fleet.name))
        for fleet in account.deployment.aws.asr
    }
    hosts = removal.count_hosts()
    prefix = names.build_stack_name(account.deployment, names.build_fleet_stack_suffix(""))
    removed_stacks = [stack for stack in removal.stacks if stack.startswith(prefix) and hosts[stack]]
    in_service = count_hosts_in_service(account)
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


def _find_removal(account: Account) -> Removal:
    live = account.fetch_live_templates()
    stacks = [stack for stack in live if stack not in account.templates]
    return Removal(account, sort_stacks_for_deletion(stacks, live), live)
