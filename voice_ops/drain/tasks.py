"""Drains a task in the gateway service, which ECS stops and replaces."""

import re
from dataclasses import dataclass
from typing import Any

from voice_blueprint.aws import names
from voice_blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from voice_ops.aws.account import Account
from voice_ops.drain.hosts import NotDrainableError

TASK_ID_PATTERN = re.compile(
    r"(?:arn:aws[a-z-]*:ecs:[a-z0-9-]+:\d{12}:task/[^/]+/)?([0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})"
)
"""Pattern of the id or ARN of a task. Ids in the old format contain hyphens."""
STOPPED_STATUS = "STOPPED"
STOP_MARGIN_S = 180
"""Time that ECS needs in addition to the stop itself, to deregister the task and to remove its network interface."""


@dataclass(frozen=True)
class Task:
    """A task in the gateway service.

    Attributes:
        state: Last status that ECS reported, which is ``STOPPED`` in the end.
        leaves: Whether the stop of the task was requested.
    """

    id: str
    cluster: str
    state: str
    leaves: bool
    fleet: str = names.GATEWAY_FLEET
    budget_s: int = FARGATE_STOP_TIMEOUT_S

    @property
    def max_drain_s(self) -> int:
        """Maximum time until the task has stopped, even if callers do not disconnect."""
        return self.budget_s + STOP_MARGIN_S


def find_task(account: Account, host: str) -> Task:
    """Return the task with an id or ARN.

    Raises:
        NotDrainableError: The gateway of the deployment has no such task.
    """
    match = TASK_ID_PATTERN.fullmatch(host)
    assert match  # noqa: S101  the caller has checked the format
    gateway = account.find_gateway_service()
    task = _read_task(account, gateway[0], match[1]) if gateway else None
    if task:
        return task
    raise NotDrainableError(
        f"{match[1]} is not a task of the gateway of {account.deployment.name}; see `aws ecs list-tasks`"
    )


def stop_task(account: Account, task: Task) -> None:
    """Stop a task. New callers are routed to other tasks, and existing callers are instructed to reconnect."""
    client: Any = account.session.client("ecs")
    client.stop_task(cluster=task.cluster, task=task.id, reason="voice drain")


def describe_task(account: Account, task: Task) -> Task:
    """Return the task in its current state. ECS removes a stopped task after an hour."""
    return _read_task(account, task.cluster, task.id) or Task(task.id, task.cluster, STOPPED_STATUS, leaves=True)


def _read_task(account: Account, cluster: str, task: str) -> Task | None:
    client: Any = account.session.client("ecs")
    result = client.describe_tasks(cluster=cluster, tasks=[task])["tasks"]
    if not result:
        return None
    return Task(task, cluster, result[0]["lastStatus"], leaves=result[0]["desiredStatus"] == STOPPED_STATUS)
