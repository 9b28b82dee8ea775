"""Auto Scaling: a hook holds a host's termination until the host, or somebody for it, says that it may go on.

Only of terminations that are asked for by name; a hook here waits for ever, and the desired number falls at its end.
"""

from __future__ import annotations

from moto.autoscaling import urls
from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState, TerminateInstanceActivity
from moto.core.responses import ActionResult, EmptyResult

from sandbox.aws.mends.autoscaling import MendedAutoScaling
from sandbox.aws.mends.base import Record, records, take_over

_TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
_WAITING = "Terminating:Wait"


class HoldingAutoScaling(MendedAutoScaling):
    """The mended Auto Scaling API with lifecycle actions."""

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        """Answer TerminateInstanceInAutoScalingGroup; a group's hook holds the host."""
        group, state = self._find()
        hooks = self.autoscaling_backend.describe_lifecycle_hooks(group.name)
        if not any(hook.lifecycle_transition == _TERMINATING for hook in hooks):
            return super().terminate_instance_in_auto_scaling_group()
        if state.lifecycle_state != _WAITING:
            state.lifecycle_state = _WAITING
            fewer = self._get_bool_param("ShouldDecrementDesiredCapacity", False)
            self._held[state.instance.id] = {"fewer": fewer}
        return ActionResult({"Activity": TerminateInstanceActivity(state.instance, group.desired_capacity or 0)})

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        """Answer RecordLifecycleActionHeartbeat."""
        self._action()
        return EmptyResult()

    def complete_lifecycle_action(self) -> ActionResult:
        """Answer CompleteLifecycleAction: a termination goes on, whatever the result."""
        action = self._action()
        _, state = self._find()
        del self._held[state.instance.id]
        state.lifecycle_state = "InService"  # moto lets no other host go
        self.autoscaling_backend.terminate_instance(state.instance.id, action["fewer"])
        return EmptyResult()

    @property
    def _held(self) -> dict[str, Record]:
        return records(self.autoscaling_backend, "held")

    def _action(self) -> Record:
        instance = self._get_param("InstanceId")
        if instance not in self._held:
            message = f"No active Lifecycle Action found with instance ID {instance}"
            raise AutoscalingClientError("ValidationError", message)
        return self._held[instance]

    def _find(self) -> tuple[FakeAutoScalingGroup, InstanceState]:
        name = self._get_param("InstanceId")
        for group in self.autoscaling_backend.autoscaling_groups.values():
            for state in group.instance_states:
                if state.instance.id == name:
                    return group, state
        raise AutoscalingClientError("ValidationError", f"Instance Id not found - No managed instance found: {name}")


def install() -> None:
    """Put the mend in place."""
    take_over(urls, MendedAutoScaling, HoldingAutoScaling)
