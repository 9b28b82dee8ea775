"""What happens to a stack when it is created or updated, and how it goes back when that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.cloudformation.parsing import Export
from moto.core.utils import utcnow

from sandbox.aws.cloudformation.deployment import Deployment, DeploymentError
from sandbox.aws.cloudformation.removal import remove
from sandbox.aws.cloudformation.stack import Resource, Stack

Claim = Callable[[Stack, list[dict[str, Any]]], None]


@dataclass(frozen=True)
class Wanted:
    """What a caller asks a stack to become.

    Attributes:
        body: The template as it was sent.
        template: The template, read.
        parameters: Parameters as given.
        resolved: The values of all parameters.
        tags: Tags of the stack; None leaves them as they are.
    """

    body: str
    template: dict[str, Any]
    parameters: dict[str, str]
    resolved: dict[str, Any]
    tags: dict[str, str] | None = None


def create(stack: Stack, wanted: Wanted, exports: Mapping[str, Export], claim: Claim) -> None:
    """Deploy a stack for the first time; after a failure its resources are taken away again.

    Args:
        stack: The stack, still without resources.
        wanted: What it shall become.
        exports: What other stacks export.
        claim: Registers the stack's own exports, or refuses them.
    """
    stack.adopt(wanted.body, wanted.template, wanted.parameters, wanted.resolved, wanted.tags)
    stack.enter("CREATE_IN_PROGRESS", "User Initiated")
    deployment = Deployment(stack, wanted.template, wanted.resolved, exports)
    try:
        _carry_out(stack, deployment, claim)
    except DeploymentError as error:
        stack.enter("ROLLBACK_IN_PROGRESS", f"{error} Rollback requested by user.")
        failed = remove(stack, stack.resources.values(), keep=frozenset({"Retain"}))
        stack.forget_deleted()
        stack.enter("ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE", _reasons(failed))
    else:
        stack.enter("CREATE_COMPLETE")


def update(stack: Stack, wanted: Wanted, exports: Mapping[str, Export], claim: Claim) -> None:
    """Bring a deployed stack to another template; after a failure it goes back to what it was."""
    before = Wanted(stack.template, stack.template_dict, stack.parameters, stack.resolved, stack.tags)
    held = dict(stack.resources)
    stack.enter("UPDATE_IN_PROGRESS", "User Initiated")
    deployment = Deployment(stack, wanted.template, wanted.resolved, exports)
    try:
        _carry_out(stack, deployment, claim)
    except DeploymentError as error:
        stack.enter("UPDATE_ROLLBACK_IN_PROGRESS", str(error))
        _go_back(stack, before, held, exports)
        return
    stack.adopt(wanted.body, wanted.template, wanted.parameters, wanted.resolved, wanted.tags)
    stack.last_updated_time = utcnow()
    stack.enter("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
    leftovers = deployment.leftovers()
    # As in AWS, what cannot be cleaned up does not undo an update that has succeeded; the events tell.
    remove(stack, deployment.superseded, policy="UpdateReplacePolicy")
    remove(stack, leftovers)
    stack.enter("UPDATE_COMPLETE")


def _carry_out(stack: Stack, deployment: Deployment, claim: Claim) -> None:
    deployment.apply()
    outputs = deployment.outputs()
    claim(stack, outputs)
    stack.outputs, stack.imports = outputs, deployment.imports


def _go_back(stack: Stack, before: Wanted, held: dict[str, Resource], exports: Mapping[str, Export]) -> None:
    made = [item for name, item in stack.resources.items() if held.get(name) is not item]
    stack.resources = dict(held)
    try:
        Deployment(stack, before.template, before.resolved, exports, rolls_back=True).apply()
    except DeploymentError as error:
        stack.enter("UPDATE_ROLLBACK_FAILED", str(error))
        return
    remove(stack, made, keep=frozenset())
    stack.enter("UPDATE_ROLLBACK_COMPLETE")


def _reasons(failed: Mapping[str, str]) -> str | None:
    if not failed:
        return None
    detail = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    return f"The following resource(s) failed to delete: [{', '.join(failed)}]. {detail}"


def delete(stack: Stack, claim: Claim) -> bool:
    """Delete a stack's resources and say whether all are gone or kept by their policy."""
    stack.enter("DELETE_IN_PROGRESS", "User Initiated")
    try:
        claim(stack, [])
    except DeploymentError as error:
        stack.enter("DELETE_FAILED", str(error))
        return False
    failed = remove(stack, stack.resources.values())
    if failed:
        stack.forget_deleted()
        stack.enter("DELETE_FAILED", _reasons(failed))
        return False
    stack.deletion_time = utcnow()
    stack.enter("DELETE_COMPLETE")
    return True
