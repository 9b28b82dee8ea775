"""Monitors a deploy's instance refreshes until the deploy ends."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from voice_ops.aws.account import Account
from voice_ops.aws.refusals import get_error_code
from voice_ops.rollout.plan import GroupRollout

POLL_INTERVAL_S = 10.0


@dataclass(frozen=True)
class RefreshProgress:
    """Progress of the instance refresh for an Auto Scaling group."""

    group: str
    status: str
    percent: int
    reason: str

    def __str__(self) -> str:
        return f"{self.group}: {self.status}, {self.percent} %{f', {self.reason}' if self.reason else ''}"


@dataclass
class MultiStackDeploy:
    """A deploy of several stacks that runs in another thread.

    Attributes:
        future: Future that ends with the deploy.
        stopped: Event that is set if the probe fails. Once it is set, the deploy starts no further stack.
        stack: Stack that is being deployed, or empty.
    """

    future: "Future[None]" = field(default_factory=Future)
    stopped: threading.Event = field(default_factory=threading.Event)
    stack: str = ""


@dataclass(frozen=True)
class FailedProbe:
    """A failed probe that ended a rollout.

    Attributes:
        problem: Reason why the probe failed.
        cancelled: Stacks whose update was cancelled.
    """

    problem: str
    cancelled: tuple[str, ...]


def find_new_refreshes(
    account: Account, rollouts: list[GroupRollout], earlier_ids: dict[str, str]
) -> Iterator[RefreshProgress]:
    """Yield the progress of the newest refresh for each group, unless that refresh is older than the deploy."""
    for roll in rollouts:
        newest = _find_newest_refresh(account, roll.group)
        if newest and newest["InstanceRefreshId"] != earlier_ids.get(roll.group):
            percent = newest.get("PercentageComplete", 0)
            yield RefreshProgress(roll.group, newest["Status"], percent, newest.get("StatusReason") or "")


def find_newest_refresh_ids(account: Account, rollouts: list[GroupRollout]) -> dict[str, str]:
    """Return the id of the newest refresh for each group."""
    results = {roll.group: _find_newest_refresh(account, roll.group) for roll in rollouts}
    return {group: each["InstanceRefreshId"] for group, each in results.items() if each}


def follow_deploy(
    account: Account,
    rollouts: list[GroupRollout],
    deploy: MultiStackDeploy,
    *,
    earlier_ids: dict[str, str],
    report: Callable[[str], None],
    probe: Callable[[], str],
) -> FailedProbe | None:
    """Report each change until the deploy has ended, and run the probe whenever a group makes progress.

    Args:
        earlier_ids: Id of each group's newest refresh before the deploy.
        probe: Function that returns a problem, or an empty string.

    Returns:
        The failed probe, or ``None`` if no probe failed.
    """
    reported: dict[str, RefreshProgress] = {}
    while not deploy.future.done():
        for step in find_new_refreshes(account, rollouts, earlier_ids):
            before = reported.get(step.group)
            if step == before:
                continue
            reported[step.group] = step
            report(str(step))
            if step.percent and (before is None or step.percent > before.percent) and (problem := probe()):
                report(f"the probe failed: {problem}; the update in progress is cancelled, and no other is started")
                deploy.stopped.set()
                return FailedProbe(problem, tuple(_cancel_updates(account, deploy)))
        wait([deploy.future], POLL_INTERVAL_S)
    return None


def _cancel_updates(account: Account, deploy: MultiStackDeploy) -> list[str]:
    """Cancel updates until the deploy has ended, so that CloudFormation restores the previous launch templates.

    The update of a stack begins about a minute after its deploy, when the CDK has published the assets. Updates of
    stacks that are not being deployed continue, since another program started them.

    Returns:
        The stacks whose update was cancelled.
    """
    client = account.session.client("cloudformation")
    cancelled: list[str] = []
    while not deploy.future.done():
        states = account.fetch_stack_statuses()
        stack = deploy.stack
        if states.get(stack) == "UPDATE_IN_PROGRESS" and stack not in cancelled:
            try:
                client.cancel_update_stack(StackName=stack)
                cancelled.append(stack)
            except ClientError as error:
                # The update may have ended since its state was read.
                if get_error_code(error) != "ValidationError":
                    raise
        wait([deploy.future], POLL_INTERVAL_S)
    return cancelled


def _find_newest_refresh(account: Account, group: str) -> dict[str, Any] | None:
    client = account.session.client("autoscaling")
    result = client.describe_instance_refreshes(AutoScalingGroupName=group, MaxRecords=1)["InstanceRefreshes"]
    return dict(result[0]) if result else None
