"""Monitors the instance refreshes of a deploy until the deploy ends."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from voice_ops.aws.account import Account
from voice_ops.rollout.plan import Roll

POLL_S = 10.0


@dataclass(frozen=True)
class RefreshProgress:
    """Progress of the instance refresh of an Auto Scaling group."""

    group: str
    status: str
    percent: int
    reason: str

    def __str__(self) -> str:
        return f"{self.group}: {self.status}, {self.percent} %{f', {self.reason}' if self.reason else ''}"


def new_refreshes(account: Account, rolls: list[Roll], earlier_ids: dict[str, str]) -> Iterator[RefreshProgress]:
    """Yield the progress of each group's newest refresh, unless that refresh is older than the deploy."""
    for roll in rolls:
        newest = _newest_refresh(account, roll.group)
        if newest and newest["InstanceRefreshId"] != earlier_ids.get(roll.group):
            percent = newest.get("PercentageComplete", 0)
            yield RefreshProgress(roll.group, newest["Status"], percent, newest.get("StatusReason") or "")


def newest_refresh_ids(account: Account, rolls: list[Roll]) -> dict[str, str]:
    """Return the id of each group's newest refresh."""
    results = {roll.group: _newest_refresh(account, roll.group) for roll in rolls}
    return {group: each["InstanceRefreshId"] for group, each in results.items() if each}


def follow_deploy(
    account: Account,
    rolls: list[Roll],
    deploy_future: "Future[None]",
    *,
    earlier_ids: dict[str, str],
    report: Callable[[str], None],
    probe: Callable[[], str],
) -> str:
    """Report each change until the deploy has ended, and run the probe whenever a group makes progress.

    Args:
        earlier_ids: Id of each group's newest refresh before the deploy.
        probe: Function that returns a problem, or an empty text.

    Returns:
        The reason for a rollback, or an empty text.
    """
    reported: dict[str, RefreshProgress] = {}
    while not deploy_future.done():
        for step in new_refreshes(account, rolls, earlier_ids):
            before = reported.get(step.group)
            if step == before:
                continue
            reported[step.group] = step
            report(str(step))
            if step.percent and (before is None or step.percent > before.percent) and (problem := probe()):
                report(f"the probe failed: {problem}; rolling back")
                _roll_back(account, rolls)
                return problem
        wait([deploy_future], POLL_S)
    return ""


def _roll_back(account: Account, rolls: list[Roll]) -> None:
    """Cancel the updates in progress, so that CloudFormation restores the previous launch templates."""
    client = account.session.client("cloudformation")
    for stack in dict.fromkeys(roll.stack for roll in rolls):
        if account.stacks().get(stack) == "UPDATE_IN_PROGRESS":
            client.cancel_update_stack(StackName=stack)


def _newest_refresh(account: Account, group: str) -> dict[str, Any] | None:
    client = account.session.client("autoscaling")
    result = client.describe_instance_refreshes(AutoScalingGroupName=group, MaxRecords=1)["InstanceRefreshes"]
    return dict(result[0]) if result else None
