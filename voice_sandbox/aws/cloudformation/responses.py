"""CloudFormation operations that moto's responses lack or simplify."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import cloudformation_backends
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from voice_sandbox.aws.clients import get_client
from voice_sandbox.aws.cloudformation.stack import Resource, Stack

if TYPE_CHECKING:
    from voice_sandbox.aws.cloudformation.models import SandboxCloudFormation


class SandboxCloudFormationResponse(CloudFormationResponse):
    """moto's CloudFormation API with the sandbox's stacks."""

    @property
    def backend(self) -> SandboxCloudFormation:
        """The stacks of the caller's account and region."""
        return cast("SandboxCloudFormation", cloudformation_backends[self.current_account][self.region])

    def delete_stack(self) -> ActionResult:
        self.backend.delete_stack(self._get_param("StackName"), self._get_param("RetainResources", []))
        return EmptyResult()

    def continue_update_rollback(self) -> ActionResult:
        """Handle ContinueUpdateRollback without `ResourcesToSkip`."""
        if self._get_param("ResourcesToSkip"):
            raise ValidationError(
                message="the sandbox cannot skip resources in a rollback; fix the cause and omit ResourcesToSkip"
            )
        self.backend.continue_update_rollback(self._get_param("StackName"))
        return EmptyResult()

    def cancel_update_stack(self) -> ActionResult:
        """Handle CancelUpdateStack by cancelling the instance refreshes, so that the update is rolled back."""
        stack = self.backend.get_stack(self._get_param("StackName"))
        if stack.status != "UPDATE_IN_PROGRESS":
            raise ValidationError(
                message=f"CancelUpdateStack cannot be called from current stack status: {stack.status}"
            )
        api: Any = get_client("autoscaling", region=self.region, account=self.current_account)
        for resource in list(stack.resources.values()):
            if resource.resource_type == "AWS::AutoScaling::AutoScalingGroup":
                with suppress(api.exceptions.ActiveInstanceRefreshNotFoundFault):
                    api.cancel_instance_refresh(AutoScalingGroupName=resource.physical_id)
        return EmptyResult()

    def update_termination_protection(self) -> ActionResult:
        protected = bool(self._get_bool_param("EnableTerminationProtection"))
        stack = self.backend.set_termination_protection(self._get_param("StackName"), protected=protected)
        return ActionResult({"StackId": stack.stack_id})

    def describe_stack_resource(self) -> ActionResult:
        stack, resources = self._find_requested_resources()
        return ActionResult({"StackResourceDetail": _build_resource_detail(stack, resources[0])})

    def describe_stack_resources(self) -> ActionResult:
        stack, resources = self._find_requested_resources()
        return ActionResult({"StackResources": [_build_resource_detail(stack, item) for item in resources]})

    def list_stack_resources(self) -> ActionResult:
        stack, resources = self._find_requested_resources()
        return ActionResult({"StackResourceSummaries": [_build_resource_detail(stack, item) for item in resources]})

    def detect_stack_drift(self) -> ActionResult:
        """Handle DetectStackDrift. The detection has completed when the call returns."""
        return ActionResult(
            self.backend.detect_drift(self._get_param("StackName"), self._get_param("LogicalResourceIds"))
        )

    def detect_stack_resource_drift(self) -> ActionResult:
        stack, (resource, *_) = self._find_requested_resources()
        drifts = self.backend.detect_drift(stack.name, [resource.logical_id]).drifts
        if not drifts:
            raise ValidationError(message=f"Resource type {resource.resource_type} does not support drift detection")
        return ActionResult({"StackResourceDrift": drifts[0]})

    def describe_stack_drift_detection_status(self) -> ActionResult:
        return ActionResult(self.backend.get_drift_detection(self._get_param("StackDriftDetectionId")))

    def describe_stack_resource_drifts(self) -> ActionResult:
        stack = self.backend.get_stack(self._get_param("StackName"))
        requested = self._get_param("StackResourceDriftStatusFilters")
        drifts = [item.drift for item in stack.resources.values() if item.drift]
        matches = [drift for drift in drifts if not requested or drift["StackResourceDriftStatus"] in requested]
        return ActionResult({"StackResourceDrifts": matches})

    def create_change_set(self) -> ActionResult:
        """Handle CreateChangeSet; as in AWS, the default type is an update."""
        self.params.setdefault("ChangeSetType", "UPDATE")
        result = super().create_change_set()
        imports = bool(self._get_bool_param("ImportExistingResources"))
        self.backend.describe_change_set(*self._read_change_set_names()).imports_existing = imports
        return result

    def describe_change_set(self) -> ActionResult:
        return ActionResult(self.backend.describe_change_set(*self._read_change_set_names()))

    def delete_change_set(self) -> ActionResult:
        self.backend.delete_change_set(*self._read_change_set_names())
        return EmptyResult()

    def _read_change_set_names(self) -> tuple[str, str | None]:
        return self._get_param("ChangeSetName"), self._get_param("StackName")

    def _find_requested_resources(self) -> tuple[Stack, list[Resource]]:
        """Return the stack, and the requested resource or, if the request names none, all resources of the stack."""
        stack = self.backend.get_stack(self._get_param("StackName"))
        requested = self._get_param("LogicalResourceId")
        matching_resources = [item for name, item in list(stack.resources.items()) if requested in (None, name)]
        if requested and not matching_resources:
            raise ValidationError(message=f"Resource {requested} does not exist for stack {stack.name}")
        return stack, matching_resources

    def _validate_different_update(self, *_: object) -> None:
        """Skip moto's check, since changes can only be detected with the resolved parameters of the stack."""


def _build_resource_detail(stack: Stack, resource: Resource) -> dict[str, Any]:
    return {
        "StackName": stack.name,
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.resource_type,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason,
        "Timestamp": resource.timestamp,
        "LastUpdatedTimestamp": resource.timestamp,
        "DriftInformation": {
            "StackResourceDriftStatus": resource.drift.get("StackResourceDriftStatus", "NOT_CHECKED"),
            "LastCheckTimestamp": resource.drift.get("Timestamp"),
        },
    }
