"""Auto Scaling's API: groups with their hooks, lifecycle actions, activities, warm pools, refreshes, deletion."""

from __future__ import annotations

import threading
from typing import Any, cast

from moto.autoscaling import urls
from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import Activity
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult, EmptyResult

from voice_sandbox.aws.patches.base import JsonObject, get_action_result, replace_response_class, store_parameters
from voice_sandbox.aws.patches.lifecycle import Host, LifecycleAction, LifecycleBackend, LifecycleGroup
from voice_sandbox.aws.patches.refresh import InstanceRefresh

# Fields that moto's groups do not store.
_STORED_FIELDS = (
    "AvailabilityZoneDistribution",
    "AvailabilityZoneImpairmentPolicy",
    "CapacityRebalance",
    "CapacityReservationSpecification",
    "Context",
    "DefaultCooldown",
    "DefaultInstanceWarmup",
    "DesiredCapacityType",
    "InstanceMaintenancePolicy",
    "MaxInstanceLifetime",
    "PlacementGroup",
    "TerminationPolicies",
)
_request_lock = threading.RLock()


class PatchedAutoScaling(AutoScalingResponse):
    """moto's Auto Scaling API, extended with the operations that moto lacks."""

    def call_action(self) -> TYPE_RESPONSE:
        """Apply the changes that are due since the last request, then handle the current request."""
        with _request_lock:
            for group in self._backend.iter_lifecycle_groups():
                group.apply_due_changes()
            answer: TYPE_RESPONSE = super().call_action()
            return answer

    def create_auto_scaling_group(self) -> ActionResult:
        """Handle CreateAutoScalingGroup; the group's hooks apply to its first hosts as well."""
        params = self._get_params()
        if params["AutoScalingGroupName"] in self.autoscaling_backend.autoscaling_groups:
            raise AutoscalingClientError("AlreadyExists", "AutoScalingGroup by this name already exists")
        answer = super().create_auto_scaling_group()
        group = self._find_requested_group()
        store_parameters(group, params, *_STORED_FIELDS)
        for hook in params.get("LifecycleHookSpecificationList", []):
            self._put_hook({**hook, "AutoScalingGroupName": group.name})
        group.reconcile_capacity()
        return answer

    def update_auto_scaling_group(self) -> ActionResult:
        """Handle UpdateAutoScalingGroup; a request without launch settings keeps the current ones."""
        params = self._get_params()
        group = self._find_requested_group()
        policy = group.mixed_instances_policy
        answer = super().update_auto_scaling_group()
        if not {"LaunchTemplate", "LaunchConfigurationName", "MixedInstancesPolicy"} & params.keys():
            group.mixed_instances_policy = policy
        store_parameters(group, params, *_STORED_FIELDS)
        group.set_desired_capacity(min(max(group.desired_capacity or 0, group.min_size or 0), group.max_size or 0))
        return answer

    def delete_auto_scaling_group(self) -> ActionResult:
        """Handle DeleteAutoScalingGroup; all parts of the group are deleted. `ForceDelete` terminates its hosts."""
        group = self._find_requested_group()
        backend = self._backend
        if group.instance_states and not self._get_bool_param("ForceDelete", False):
            message = f"You cannot delete an AutoScalingGroup while there are instances in {group.name}."
            raise AutoscalingClientError("ResourceInUse", message)
        del backend.autoscaling_groups[group.name]
        group.terminate_all_hosts()
        collections_of_group: list[dict[str, Any]] = [
            backend.policies,
            backend.lifecycle_hooks,
            backend.scheduled_actions,
        ]
        for existing in collections_of_group:
            for key, item in list(existing.items()):
                if item.auto_scaling_group_name == group.name:
                    del existing[key]
        return EmptyResult()

    def put_lifecycle_hook(self) -> ActionResult:
        """Handle PutLifecycleHook; moto would invent the role and the target of the notification."""
        answer = super().put_lifecycle_hook()
        self._put_hook(self._get_params())
        return answer

    def put_scaling_policy(self) -> ActionResult:
        """Handle PutScalingPolicy; moto misspells the key for the ARN, so that clients would not receive it."""
        answer = super().put_scaling_policy()
        return ActionResult({"PolicyARN": get_action_result(answer)["PolicyArn"], "Alarms": []})

    def complete_lifecycle_action(self) -> ActionResult:
        group, host, action = self._find_requested_action()
        outcome = self._get_param("LifecycleActionResult")
        group.complete_action(host, action.hook.name, outcome, f"Lifecycle Action Completed with {outcome} Result")
        return EmptyResult()

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        _, _, action = self._find_requested_action()
        action.record_heartbeat()
        return EmptyResult()

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        """Handle TerminateInstanceInAutoScalingGroup; a host that is already terminating is unaffected."""
        group, host = self._backend.find_host(self._get_param("InstanceId"))
        if (
            self._get_bool_param("ShouldDecrementDesiredCapacity", False)
            and not host.is_terminating
            and not host.is_warm
        ):
            if (group.desired_capacity or 0) <= (group.min_size or 0):
                message = (
                    f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                    "replacement will violate group's min size constraint. Either set "
                    "shouldDecrementDesiredCapacity flag to false or lower group's min size."
                )
                raise AutoscalingClientError("ValidationError", message)
            group.desired_capacity = (group.desired_capacity or 0) - 1
        if not host.is_terminating:
            group.terminate_host(host, "in response to a user request")
            group.reconcile_capacity()
        return ActionResult({"Activity": host.activity})

    def set_instance_health(self) -> ActionResult:
        self._backend.set_instance_health(
            self._get_param("InstanceId"),
            self._get_param("HealthStatus"),
            respect_grace=self._get_bool_param("ShouldRespectGracePeriod", True) is True,
        )
        return EmptyResult()

    def describe_scaling_activities(self) -> ActionResult:
        """Handle DescribeScalingActivities; the newest activity is the first."""
        name, ids = self._get_param("AutoScalingGroupName"), self._get_param("ActivityIds", [])
        results: list[Activity] = [
            activity
            for group in self._backend.iter_lifecycle_groups()
            if name in (None, group.name)
            for activity in reversed(group.activities)
            if not ids or activity.activity_id in ids
        ]
        return ActionResult({"Activities": results})

    def start_instance_refresh(self) -> ActionResult:
        params, group = self._get_params(), self._find_requested_group()
        if group.active_refresh:
            message = "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh."
            raise AutoscalingClientError("InstanceRefreshInProgress", message)
        launch_template = params.get("DesiredConfiguration", {}).get("LaunchTemplate", {})
        template = {key: str(value) for key, value in launch_template.items()} or group.template
        others = sum(host.template != template for host in group.hosts)
        group.refreshes.append(InstanceRefresh(params.get("Preferences", {}), template, group.template, others))
        group.set_launch_template(template)
        return ActionResult({"InstanceRefreshId": group.refreshes[-1].id})

    def describe_instance_refreshes(self) -> ActionResult:
        """Handle DescribeInstanceRefreshes; the newest refresh is the first."""
        group, ids = self._find_requested_group(), self._get_param("InstanceRefreshIds", [])
        results = [each.describe(group.name) for each in reversed(group.refreshes) if not ids or each.id in ids]
        return ActionResult({"InstanceRefreshes": results})

    def cancel_instance_refresh(self) -> ActionResult:
        """Handle CancelInstanceRefresh; replaced hosts remain."""
        group = self._find_requested_group()
        if not (refresh := group.active_refresh):
            message = f"No active instance refresh found for Auto Scaling group {group.name}"
            raise AutoscalingClientError("ActiveInstanceRefreshNotFound", message)
        refresh.end(group, "Cancelled", "Cancelled due to user request.")
        return ActionResult({"InstanceRefreshId": refresh.id})

    def put_warm_pool(self) -> ActionResult:
        answer = super().put_warm_pool()
        self._find_requested_group().reconcile_capacity()
        return answer

    def describe_warm_pool(self) -> ActionResult:
        group = self._find_requested_group()
        return ActionResult({"WarmPoolConfiguration": group.warm_pool, "Instances": group.pool})

    def delete_warm_pool(self) -> ActionResult:
        """Handle DeleteWarmPool; its hosts are terminated through their hooks."""
        answer = super().delete_warm_pool()
        self._find_requested_group().reconcile_capacity()
        return answer

    @property
    def _backend(self) -> LifecycleBackend:
        return cast("LifecycleBackend", self.autoscaling_backend)

    def _put_hook(self, hook: JsonObject) -> None:
        created_hook = self.autoscaling_backend.create_lifecycle_hook(
            hook["LifecycleHookName"],
            hook["AutoScalingGroupName"],
            hook["LifecycleTransition"],
            hook.get("HeartbeatTimeout"),
            hook.get("DefaultResult", "ABANDON"),
        )
        blank = dict.fromkeys(("NotificationTargetARN", "NotificationMetadata", "RoleARN"))
        store_parameters(created_hook, {**blank, **hook}, *blank)

    def _find_requested_action(self) -> tuple[LifecycleGroup, Host, LifecycleAction]:
        instance, hook = self._get_param("InstanceId"), self._get_param("LifecycleHookName")
        for group in self._backend.iter_lifecycle_groups():
            for host in group.list_all_hosts():
                if host.instance_id == instance and hook in host.actions:
                    return group, host, host.actions[hook]
        message = f"No active Lifecycle Action found with instance ID {instance}"
        raise AutoscalingClientError("ValidationError", message)

    def _find_requested_group(self) -> LifecycleGroup:
        name = self._get_param("AutoScalingGroupName")
        results = self.autoscaling_backend.describe_auto_scaling_groups([name])
        if not results:
            raise AutoscalingClientError("ValidationError", f"AutoScalingGroup name not found - {name}")
        return cast("LifecycleGroup", results[0])


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, AutoScalingResponse, PatchedAutoScaling)
