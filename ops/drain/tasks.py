"""A task of the gateway service: ECS stops it, and starts another."""

import re
from dataclasses import dataclass
from typing import Any

from blueprint.aws import names
from blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from ops.aws.account import Account
from ops.drain.hosts import NotDrainableError

TASK = re.compile(
    r"(?:arn:aws[a-z-]*:ecs:[a-z0-9-]+:\d{12}:task/[^/]+/)?([0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})"
)
"""Id or ARN; ids of old have hyphens."""
STOPPED = "STOPPED"
START_S = 180
"""What ECS takes around the stop itself: deregistration before, the network interface behind."""


@dataclass(frozen=True)
class Task:
    """One task of the gateway.

    Attributes:
        state: Its last status; ``STOPPED`` at its end.
        leaves: Whether it was asked to stop.
    """

    id: str
    cluster: str
    state: str
    leaves: bool
    fleet: str = names.GATEWAY_FLEET
    budget_s: int = FARGATE_STOP_TIMEOUT_S

    @property
    def longest_s(self) -> int:
        """Time until it is gone, whatever its callers do."""
        return self.budget_s + START_S


def find(account: Account, host: str) -> Task:
    """Return a task by its id or ARN.

    Raises:
        NotDrainableError: The deployment's gateway has no such task.
    """
    match = TASK.fullmatch(host)
    assert match  # noqa: S101  the caller has looked
    place = account.gateway()
    task = _describe(account, place[0], match[1]) if place else None
    if task:
        return task
    raise NotDrainableError(f"{match[1]} is no task of {account.deployment.name}'s gateway; see `aws ecs list-tasks`")


def stop(account: Account, task: Task) -> None:
    """Ask ECS to stop it: new callers go elsewhere, those that are there are told to come back elsewhere."""
    client: Any = account.session.client("ecs")
    client.stop_task(cluster=task.cluster, task=task.id, reason="voice drain")


def look(account: Account, task: Task) -> Task:
    """Return the task as it is now. ECS forgets a stopped one after an hour."""
    return _describe(account, task.cluster, task.id) or Task(task.id, task.cluster, STOPPED, leaves=True)


def _describe(account: Account, cluster: str, task: str) -> Task | None:
    client: Any = account.session.client("ecs")
    found = client.describe_tasks(cluster=cluster, tasks=[task])["tasks"]
    if not found:
        return None
    return Task(task, cluster, found[0]["lastStatus"], leaves=found[0]["desiredStatus"] == STOPPED)
