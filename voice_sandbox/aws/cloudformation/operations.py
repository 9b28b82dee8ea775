"""Creation, update and rollback of stacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from moto.cloudformation.parsing import Export
from moto.core.utils import utcnow

from voice_sandbox.aws.cloudformation.deployment import Deployment, DeploymentError
from voice_sandbox.aws.cloudformation.removal import delete_resources
from voice_sandbox.aws.cloudformation.stack import Stack

ClaimExportsCallback = Callable[[Stack, list[dict[str, Any]]], None]


@dataclass(frozen=True)
class DesiredState:
    """Desired state of a stack.

    Attributes:
        body: The template as received.
        template: The parsed template.
        parameters: Parameters as given.
        resolved_parameters: Values of all parameters.
        tags: Tags of the stack; None keeps the current ones.
        imports_existing: Whether resources without a stack can be imported.
    """

    body: str
    template: dict[str, Any]
    parameters: dict[str, str]
    resolved_parameters: dict[str, Any]
    tags: dict[str, str] | None = None
    imports_existing: bool = False


def create_stack(
    stack: Stack,
    desired: DesiredState,
    stacks: Collection[Stack],
    exports: Mapping[str, Export],
    claim: ClaimExportsCallback,
) -> None:
    """Deploy a stack for the first time, and delete its resources if the deployment fails.

    Args:
        stack: The stack without resources.
        desired: Its desired state.
        stacks: All stacks.
        exports: Exports of other stacks.
        claim: Registers the stack's own exports, or rejects them.
    """
    stack.record_template(desired.body, desired.template, desired.parameters, desired.resolved_parameters, desired.tags)
    stack.set_status("CREATE_IN_PROGRESS", "User Initiated")
    deployment = _create_deployment(stack, desired, stacks, exports)
    try:
        _execute_deployment(stack, deployment, claim)
    except DeploymentError as error:
        stack.set_status("ROLLBACK_IN_PROGRESS", f"{error} Rollback requested by user.")
        created = [each for each in stack.resources.values() if not each.is_imported]
        failed = delete_resources(stack, created, keep=frozenset({"Retain"}))
        stack.remove_deleted_resources()
        stack.set_status("ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE", _format_deletion_failure(failed))
    else:
        stack.set_status("CREATE_COMPLETE")


def update_stack(
    stack: Stack,
    desired: DesiredState,
    stacks: Collection[Stack],
    exports: Mapping[str, Export],
    claim: ClaimExportsCallback,
) -> None:
    """Update a deployed stack to another template, and roll back a failed update."""
    previous = dict(stack.resources)
    stack.set_status("UPDATE_IN_PROGRESS", "User Initiated")
    deployment = _create_deployment(stack, desired, stacks, exports)
    try:
        _execute_deployment(stack, deployment, claim)
    except DeploymentError as error:
        stack.undeleted_resources = [item for name, item in stack.resources.items() if previous.get(name) is not item]
        stack.resources = previous
        roll_back_stack(stack, exports, str(error))
        return
    stack.record_template(desired.body, desired.template, desired.parameters, desired.resolved_parameters, desired.tags)
    stack.last_updated_time = utcnow()
    stack.set_status("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
    unwanted = deployment.pop_unwanted_resources()
    # As in AWS, a failed cleanup does not fail an update; it is reported as an event.
    delete_resources(stack, deployment.superseded, policy="UpdateReplacePolicy")
    delete_resources(stack, unwanted)
    stack.set_status("UPDATE_COMPLETE")


def _create_deployment(
    stack: Stack, desired: DesiredState, stacks: Collection[Stack], exports: Mapping[str, Export]
) -> Deployment:
    return Deployment(
        stack,
        desired.template,
        desired.resolved_parameters,
        exports,
        stacks=stacks,
        imports_existing=desired.imports_existing,
    )


def _execute_deployment(stack: Stack, deployment: Deployment, claim: ClaimExportsCallback) -> None:
    deployment.apply()
    outputs = deployment.resolve_outputs()
    claim(stack, outputs)
    stack.outputs, stack.imports = outputs, deployment.imports


def roll_back_stack(stack: Stack, exports: Mapping[str, Export], reason: str) -> None:
    """Restore a stack to its template after a failed update; a failed rollback can be continued."""
    stack.set_status("UPDATE_ROLLBACK_IN_PROGRESS", reason)
    try:
        Deployment(stack, stack.template_dict, stack.resolved_parameters, exports, rolls_back=True).apply()
    except DeploymentError as error:
        stack.set_status("UPDATE_ROLLBACK_FAILED", str(error))
        return
    # "Retain" also applies to new resources, but not to those that were created to replace others.
    retained = [
        each
        for each in stack.undeleted_resources
        if each.body.get("DeletionPolicy") == "Retain" and each.logical_id not in stack.resources
    ]
    for each in retained:
        stack.set_resource_status(each, "DELETE_SKIPPED")
    unwanted = [each for each in stack.undeleted_resources if each not in retained and not each.is_imported]
    delete_resources(stack, unwanted, keep=frozenset())
    stack.undeleted_resources = []
    stack.set_status("UPDATE_ROLLBACK_COMPLETE")


def _format_deletion_failure(failed: Mapping[str, str]) -> str | None:
    if not failed:
        return None
    detail = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    return f"The following resource(s) failed to delete: [{', '.join(failed)}]. {detail}"


def delete_stack(stack: Stack, claim: ClaimExportsCallback) -> bool:
    """Delete a stack's resources, and return True if all of them are deleted or retained.

    As in AWS, a stack whose exports are in use keeps its status, and the reason is recorded.
    """
    before = stack.status
    stack.set_status("DELETE_IN_PROGRESS", "User Initiated")
    try:
        claim(stack, [])
    except DeploymentError as error:
        stack.set_status(before, str(error))
        return False
    undeleted_resources = [each for each in stack.undeleted_resources if not each.is_imported]
    failed = delete_resources(stack, undeleted_resources) | delete_resources(stack, stack.resources.values())
    if failed:
        stack.remove_deleted_resources()
        stack.set_status("DELETE_FAILED", _format_deletion_failure(failed))
        return False
    stack.deletion_time = utcnow()
    stack.set_status("DELETE_COMPLETE")
    return True
