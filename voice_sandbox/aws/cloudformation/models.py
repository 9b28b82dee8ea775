"""CloudFormation's state in an account and region, which replaces the state in moto."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from moto.cloudformation.exceptions import AlreadyExistsException, ValidationError
from moto.cloudformation.models import CloudFormationBackend, Event
from moto.cloudformation.parsing import Export
from moto.cloudformation.utils import generate_changeset_id, generate_stack_id
from moto.core.exceptions import ServiceException

from voice_sandbox.aws.adapters.table import RESOURCE_KINDS
from voice_sandbox.aws.cloudformation import operations
from voice_sandbox.aws.cloudformation.changes import ChangeSet, has_changes, plan_changes
from voice_sandbox.aws.cloudformation.deployment import DeploymentError
from voice_sandbox.aws.cloudformation.drift import DriftDetection, detect_drift
from voice_sandbox.aws.cloudformation.operations import DesiredState
from voice_sandbox.aws.cloudformation.stack import Stack
from voice_sandbox.aws.cloudformation.template import TemplateError, parse_template, validate_template
from voice_sandbox.aws.cloudformation.values import resolve_parameters
from voice_sandbox.aws.shapes import Json

_COMPARABLE_STATUSES = frozenset(
    {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_ROLLBACK_FAILED"}
)
_BROKEN_STATUSES = frozenset(
    {"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "UPDATE_ROLLBACK_FAILED", "DELETE_FAILED"}
)


class ChangeSetNotFoundError(ServiceException):
    """Error with the code that tools wait for after they have deleted a change set."""

    code = "ChangeSetNotFound"


class SandboxCloudFormation(CloudFormationBackend):
    """Stacks of an account and region. An operation has completed when its call returns."""

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.stacks: dict[str, Stack] = {}  # type: ignore[assignment]
        self.deleted_stacks: dict[str, Stack] = {}  # type: ignore[assignment]
        self.change_sets: dict[str, ChangeSet] = {}  # type: ignore[assignment]
        self.exports: dict[str, Export] = {}
        self.detections: dict[str, DriftDetection] = {}
        self._lock = threading.RLock()

    def create_stack(  # type: ignore[override]
        self, name: str, template: str, parameters: dict[str, str], **options: Json
    ) -> Stack:
        """Deploy a new stack. A failed stack ends in ROLLBACK_COMPLETE, with the reasons in its events."""
        self._reject_duplicate_name(name)
        with self._lock:
            desired = self._parse_desired_state(template, parameters, options.get("tags"))
            stack = self._add_stack(name, options)
            operations.create_stack(stack, desired, self.stacks.values(), self.exports, self._claim_exports)
            return stack

    def update_stack(  # type: ignore[override]
        self,
        name: str,
        template: str,
        role_arn: str | None,
        parameters: list[dict[str, Any]],
        tags: dict[str, str] | None,
    ) -> Stack:
        """Update a stack to match a template, and roll back a failed update."""
        _reject_if_busy(self.get_stack(name))
        with self._lock:
            stack = self.get_stack(name)
            new_parameters = {
                entry["ParameterKey"]: stack.stack_parameters[entry["ParameterKey"]]
                if entry.get("UsePreviousValue")
                else entry["ParameterValue"]
                for entry in parameters
            }
            desired = self._parse_desired_state(template, new_parameters, tags)
            _reject_changed_types(stack, desired)
            if not has_changes(stack, desired):
                raise ValidationError(message="No updates are to be performed.")
            self._update(stack, desired)
            stack.role_arn = role_arn or stack.role_arn
            return stack

    def continue_update_rollback(self, name: str) -> None:
        """Retry a failed rollback.

        Raises:
            ValidationError: The stack has no failed rollback.
        """
        with self._lock:
            stack = self.get_stack(name)
            if stack.status != "UPDATE_ROLLBACK_FAILED":
                raise ValidationError(
                    message=f"ContinueUpdateRollback cannot be called from current stack status: {stack.status}"
                )
            operations.roll_back_stack(stack, self.exports, "User Initiated")

    def delete_stack(self, name_or_stack_id: str, retain: Iterable[str] = ()) -> None:
        """Delete a stack. If one of its resources cannot be deleted, the stack ends in DELETE_FAILED.

        Args:
            name_or_stack_id: Name or id; as in AWS, a stack that does not exist is accepted.
            retain: Logical ids of resources to retain.
        """
        stack = self._find_live_stack(name_or_stack_id)
        if stack and stack.status.startswith("UPDATE_") and stack.status.endswith("_IN_PROGRESS"):
            raise ValidationError(message=f"Stack [{stack.name}] cannot be deleted while in status {stack.status}")
        with self._lock:
            stack = self._find_live_stack(name_or_stack_id)
            if stack is None:
                return
            if stack.enable_termination_protection:
                raise ValidationError(
                    message=f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
                )
            retain = list(retain)
            if retain and stack.status != "DELETE_FAILED":
                raise ValidationError(
                    message=f"Stack [{stack.name}]: RetainResources {retain} is accepted only for a stack in "
                    f"DELETE_FAILED, not {stack.status}; delete the stack without it first"
                )
            for name in retain:
                stack.resources.pop(name, None)
            if operations.delete_stack(stack, self._claim_exports):
                self.deleted_stacks[stack.stack_id] = self.stacks.pop(stack.stack_id)

    def set_termination_protection(self, name: str, *, protected: bool) -> Stack:
        """Enable or disable a stack's termination protection."""
        stack = self.get_stack(name)
        stack.enable_termination_protection = protected
        return stack

    def get_stack(self, name_or_stack_id: str) -> Stack:  # type: ignore[override]
        """Return a stack by its name or its id. A deleted stack is only found by its id.

        Raises:
            ValidationError: The stack does not exist.
        """
        stack = self._find_live_stack(name_or_stack_id) or self.deleted_stacks.get(name_or_stack_id)
        if stack is None:
            raise ValidationError(message=f"Stack with id {name_or_stack_id} does not exist")
        return stack

    def describe_stack_events(self, stack_name: str) -> list[Event]:
        """Return a stack's events, oldest first."""
        return self.get_stack(stack_name).events

    def create_change_set(  # type: ignore[override]
        self,
        stack_name: str,
        change_set_name: str,
        *,
        template: str,
        parameters: dict[str, str],
        description: str | None,
        change_set_type: str,
        **options: Json,
    ) -> tuple[str, str]:
        """Plan a change to an existing or new stack, and return the ids of the change set and the stack."""
        if existing := self._find_live_stack(stack_name):
            _reject_if_busy(existing)
        with self._lock:
            # For a request without tags, moto passes an empty list, although such a request keeps the current tags.
            desired = self._parse_desired_state(template, parameters, options.get("tags") or None)
            stack = self._find_live_stack(stack_name)
            if change_set_type == "CREATE" and (stack is None or stack.status != "REVIEW_IN_PROGRESS"):
                stack = self._add_stack(stack_name, options)
                stack.set_status("REVIEW_IN_PROGRESS", "User Initiated")
            if stack is None:
                raise ValidationError(message=f"Stack [{stack_name}] does not exist")
            _reject_changed_types(stack, desired)
            change_set = ChangeSet(
                change_set_id=generate_changeset_id(change_set_name, self.region_name, self.account_id),
                change_set_name=change_set_name,
                change_set_type=change_set_type,
                stack=stack,
                desired=desired,
                description=description,
                notification_arns=options.get("notification_arns") or [],
                changes=plan_changes(stack, desired.template),
            )
            change_set.fail_if_empty()
            self.change_sets[change_set.change_set_id] = change_set
            return change_set.change_set_id, stack.stack_id

    def describe_change_set(self, change_set_name: str, stack_name: str | None = None) -> ChangeSet:  # type: ignore[override]
        """Return a change set by its id, or by its name and its stack.

        Raises:
            ChangeSetNotFoundError: There is no such change set.
        """
        for change_set in self.change_sets.values():
            same_stack = stack_name in (None, change_set.stack_name, change_set.stack_id)
            if change_set_name == change_set.change_set_id or (
                change_set_name == change_set.change_set_name and same_stack
            ):
                return change_set
        raise ChangeSetNotFoundError(f"ChangeSet [{change_set_name}] does not exist")

    def delete_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        """Delete a change set. As in AWS, a change set that does not exist is accepted."""
        try:
            change_set = self.describe_change_set(change_set_name, stack_name)
        except ChangeSetNotFoundError:
            return
        del self.change_sets[change_set.change_set_id]

    def execute_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        """Execute a change set.

        Raises:
            ValidationError: The change set cannot be executed.
        """
        _reject_if_busy(self.describe_change_set(change_set_name, stack_name).stack)
        with self._lock:
            change_set = self.describe_change_set(change_set_name, stack_name)
            if change_set.execution_status != "AVAILABLE":
                raise ValidationError(
                    message=f"ChangeSet [{change_set_name}] cannot be executed: {change_set.status_reason}"
                )
            del self.change_sets[change_set.change_set_id]
            change_set.stack.change_set_id = change_set.change_set_id
            desired = replace(change_set.desired, imports_existing=change_set.imports_existing)
            if change_set.stack.status == "REVIEW_IN_PROGRESS":
                operations.create_stack(
                    change_set.stack, desired, self.stacks.values(), self.exports, self._claim_exports
                )
            else:
                self._update(change_set.stack, desired)

    def detect_drift(self, name: str, resources: Collection[str] | None) -> DriftDetection:
        """Compare a stack with its actual state, and record the result.

        Raises:
            ValidationError: The stack is in a failed state, or lacks one of the resources.
        """
        with self._lock:
            stack = self.get_stack(name)
            if stack.status not in _COMPARABLE_STATUSES:
                raise ValidationError(
                    message=f"Drift detection cannot be performed on stack {stack.name} in status {stack.status}"
                )
            if unknown := sorted(set(resources or ()) - stack.resources.keys()):
                raise ValidationError(message=f"Resources {unknown} do not exist in stack {stack.name}")
            detection = detect_drift(stack, resources or ())
            for drift in detection.drifts:
                stack.resources[drift["LogicalResourceId"]].drift = drift
            if not resources:
                status = {"StackDriftStatus": detection.stack_drift_status, "LastCheckTimestamp": detection.timestamp}
                stack.drift_information = status
            self.detections[detection.stack_drift_detection_id] = detection
            return detection

    def get_drift_detection(self, identifier: str) -> DriftDetection:
        """Return a drift detection by its id.

        Raises:
            ValidationError: The detection does not exist.
        """
        if identifier not in self.detections:
            raise ValidationError(message=f"Drift detection {identifier} does not exist")
        return self.detections[identifier]

    def _update(self, stack: Stack, desired: DesiredState) -> None:
        if stack.status in _BROKEN_STATUSES:
            raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")
        operations.update_stack(stack, desired, self.stacks.values(), self.exports, self._claim_exports)

    def _find_live_stack(self, name_or_id: str) -> Stack | None:
        return next((item for item in self.stacks.values() if name_or_id in (item.name, item.stack_id)), None)

    def _reject_duplicate_name(self, name: str) -> None:
        if self._find_live_stack(name):
            raise AlreadyExistsException(f"Stack [{name}] already exists")

    def _add_stack(self, name: str, options: dict[str, Any]) -> Stack:
        self._reject_duplicate_name(name)
        stack = Stack(
            stack_id=generate_stack_id(name, self.region_name, self.account_id),
            name=name,
            region_name=self.region_name,
            account_id=self.account_id,
            notification_arns=options.get("notification_arns") or [],
            role_arn=options.get("role_arn"),
            timeout_in_minutes=options.get("timeout_in_mins"),
            policy=options.get("stack_policy_body") or "",
            enable_termination_protection=bool(options.get("enable_termination_protection")),
        )
        self.stacks[stack.stack_id] = stack
        return stack

    def _parse_desired_state(self, body: str, parameters: dict[str, str], tags: dict[str, str] | None) -> DesiredState:
        try:
            template = parse_template(body)
            validate_template(template, RESOURCE_KINDS.keys())
            resolved = resolve_parameters(template, parameters, region=self.region_name, account=self.account_id)
        except TemplateError as error:
            raise ValidationError(message=str(error)) from error
        return DesiredState(body, template, parameters, resolved, tags)

    def _claim_exports(self, stack: Stack, outputs: list[dict[str, Any]]) -> None:
        """Set a stack's exports to its outputs, unless another stack has the same export or imports a changed one."""
        values = {output["ExportName"]: str(output["OutputValue"]) for output in outputs if output["ExportName"]}
        own_exports = {name: item for name, item in self.exports.items() if item.exporting_stack_id == stack.stack_id}
        for name in values.keys() & (self.exports.keys() - own_exports.keys()):
            raise DeploymentError(
                f"Export with name {name} is already exported by stack {self.exports[name].exporting_stack_id}"
            )
        for name, export in own_exports.items():
            if values.get(name) == export.value:
                continue
            readers = [item.name for item in self.stacks.values() if name in item.imports and item is not stack]
            if readers:
                verb = "updated" if name in values else "deleted"
                raise DeploymentError(f"Export {name} cannot be {verb} as it is in use by {', '.join(readers)}")
        for name in own_exports:
            del self.exports[name]
        self.exports.update({name: Export(stack.stack_id, name, value) for name, value in values.items()})


def _reject_changed_types(stack: Stack, desired: DesiredState) -> None:
    bodies = desired.template["Resources"]
    changed = [
        name for name, item in stack.resources.items() if name in bodies and bodies[name]["Type"] != item.resource_type
    ]
    if changed:
        raise ValidationError(
            message="Update of resource type is not permitted. The new template modifies resource type of the "
            f"following resources: [{', '.join(changed)}]"
        )


def _reject_if_busy(stack: Stack) -> None:
    """Reject an operation while another operation is in progress, as AWS does, instead of waiting."""
    if stack.status.endswith("_IN_PROGRESS") and stack.status != "REVIEW_IN_PROGRESS":
        raise ValidationError(message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")
