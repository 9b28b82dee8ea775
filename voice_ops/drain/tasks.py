"""A task of the gateway service, which ECS stops and replaces."""

import re
from dataclasses import dataclass
from typing import Any

from voice_blueprint.aws import names
from voice_blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from voice_ops.aws.account import Account
from voice_ops.drain.hosts import NotDrainableError

TASK = re.compile(
    r"(?:arn:aws[a-z-]*:ecs:[a-z0-9-]+:\d{12}:task/[^/]+/)?([0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})"
)
"""Id or ARN; old ids contain hyphens."""
STOPPED = "STOPPED"
START_S = 180
"""Time that ECS needs in addition to the stop itself, for deregistration before it and the network interface after
it."""


@dataclass(frozen=True)
class Task:
    """A task of the gateway.

    Attributes:
        state: Last status; finally ``STOPPED``.
        leaves: Whether a stop was requested.
    """

    id: str
    cluster: str
    state: str
    leaves: bool
    fleet: str = names.GATEWAY_FLEET
    budget_s: int = FARGATE_STOP_TIMEOUT_S

    @property
    def max_drain_s(self) -> int:
        """Maximum time until the task has stopped, regardless of its callers."""
        return self.budget_s + START_S


def find(account: Account, host: str) -> Task:
    """Return a task by its id or ARN.

    Raises:
        NotDrainableError: The deployment's gateway has no such task.
    """
    match = TASK.fullmatch(host)
    assert match  # noqa: S101  the caller has checked the format
    gateway = account.gateway()
    task = _describe(account, gateway[0], match[1]) if gateway else None
    if task:
        return task
    raise NotDrainableError(
        f"{match[1]} is not a task of the gateway of {account.deployment.name}; see `aws ecs list-tasks`"
    )


def stop(account: Account, task: Task) -> None:
    """Stop a task in ECS. New callers are routed to other tasks, and existing ones are instructed to reconnect."""
    client: Any = account.session.client("ecs")
    client.stop_task(cluster=task.cluster, task=task.id, reason="voice drain")


def describe_task(account: Account, task: Task) -> Task:
    """Return the current state of the task. ECS removes a stopped task after an hour."""
    return _describe(account, task.cluster, task.id) or Task(task.id, task.cluster, STOPPED, leaves=True)


def _describe(account: Account, cluster: str, task: str) -> Task | None:
    client: Any = account.session.client("ecs")
    result = client.describe_tasks(cluster=cluster, tasks=[task])["tasks"]
    if not result:
        return None
    return Task(task, cluster, result[0]["lastStatus"], leaves=result[0]["desiredStatus"] == STOPPED)
