"""A task of the gateway service: ECS stops it, and starts another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from blueprint.aws import names
from blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from blueprint.file.model.deployment import Deployment
from ops.drain.hosts import NotDrainableError
from ops.status.deployed import Deployed

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
    budget_s: int = FARGATE_STOP_TIMEOUT_S

    @property
    def longest_s(self) -> int:
        """Time until it is gone, whatever its callers do."""
        return self.budget_s + START_S

    def as_dict(self) -> dict[str, object]:
        return {"fleet": names.GATEWAY_FLEET, **vars(self)}


def stack(deployment: Deployment) -> str:
    """Return the name of the stack that has the gateway's service."""
    return names.stack(deployment, "edge")


def find(deployed: Deployed, host: str) -> Task:
    """Return a task by its id or ARN.

    Raises:
        NotDrainableError: The deployment's gateway has no such task.
    """
    match = TASK.fullmatch(host)
    assert match  # noqa: S101  the caller has looked
    edge = stack(deployed.deployment)
    places = deployed.physical_ids(edge).values() if edge in deployed.stacks() else ()
    for place in places:
        _, found, service = place.partition(":service/")
        if found:
            cluster = service.split("/")[0]
            task = _describe(deployed, cluster, match[1])
            if task:
                return task
    raise NotDrainableError(f"{match[1]} is no task of {deployed.deployment.name}'s gateway; see `aws ecs list-tasks`")


def stop(deployed: Deployed, task: Task) -> None:
    """Ask ECS to stop it: new callers go elsewhere, those that are there are told to come back elsewhere."""
    client: Any = deployed.session.client("ecs")
    client.stop_task(cluster=task.cluster, task=task.id, reason="voice drain")


def look(deployed: Deployed, task: Task) -> Task:
    """Return the task as it is now. ECS forgets a stopped one after an hour."""
    return _describe(deployed, task.cluster, task.id) or Task(task.id, task.cluster, STOPPED, leaves=True)


def _describe(deployed: Deployed, cluster: str, task: str) -> Task | None:
    client: Any = deployed.session.client("ecs")
    found = client.describe_tasks(cluster=cluster, tasks=[task])["tasks"]
    if not found:
        return None
    return Task(task, cluster, found[0]["lastStatus"], leaves=found[0]["desiredStatus"] == STOPPED)
