"""Hosts in an Auto Scaling group: their states, hooks, the warm pool, and replacement.

Changes caused by time alone (a hook's timeout, a host that EC2 has lost) are applied at the next request. Not
supported: instances that return to a warm pool, terminating hooks of an abandoned launch, and suspended processes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from moto.autoscaling import models
from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import (
    Activity,
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    autoscaling_backends,
)
from moto.core.utils import utcnow

from voice_sandbox.aws.patches.launch import launch_instance
from voice_sandbox.aws.patches.refresh import InstanceRefresh

LAUNCH_TRANSITION = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATION_TRANSITION = "autoscaling:EC2_INSTANCE_TERMINATING"
WARM_STATE_PREFIX = "Warmed:"
LAUNCH_RETRY_DELAY_S = 10.0
"""Pause after a launch that EC2 rejected."""


@dataclass
class LifecycleAction:
    """A hook that delays a host until a deadline, which heartbeats extend up to a maximum (monotonic seconds)."""

    hook: LifecycleHook
    deadline: float
    max_deadline: float

    @classmethod
    def begin(cls, hook: LifecycleHook) -> LifecycleAction:
        now = time.monotonic()
        return cls(hook, now + hook.heartbeat_timeout, now + min(48 * 3600, 100 * hook.heartbeat_timeout))

    def record_heartbeat(self) -> None:
        self.deadline = min(self.max_deadline, time.monotonic() + self.hook.heartbeat_timeout)


class Host(InstanceState):
    """An instance of a group, with the actions that delay it.

    Attributes:
        activity: Scaling activity of its launch or termination.
        serving_since: Time at which the host came into service, in monotonic seconds.
        template: Id and version of its launch template.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.actions: dict[str, LifecycleAction] = {}
        self.activity: Activity | None = None
        self.serving_since = time.monotonic()
        self.template: dict[str, str] = {}

    @property
    def is_warm(self) -> bool:
        return self.lifecycle_state.startswith(WARM_STATE_PREFIX)

    @property
    def is_terminating(self) -> bool:
        return "Terminating" in self.lifecycle_state

    @property
    def is_starting(self) -> bool:
        return "Pending" in self.lifecycle_state

    def set_state(self, state: str) -> None:
        """Set the host's state. In the warm pool, the state has a prefix."""
        self.lifecycle_state = (WARM_STATE_PREFIX if self.is_warm else "") + state

    def finish_activity(self, status: str, message: str | None = None) -> None:
        """End the activity."""
        if self.activity:
            end_activity(self.activity, status, message)


def end_activity(activity: Activity, status: str, message: str | None = None) -> None:
    description: Any = activity
    description.status_code, description.status_message, description.end_time, description.progress = (
        status,
        message,
        utcnow(),
        100,
    )


class LifecycleGroup(FakeAutoScalingGroup):
    """A group whose hosts run through its lifecycle hooks. In moto, hosts are in service immediately.

    Attributes:
        pool: Hosts of its warm pool.
        activities: Scaling activities, oldest first.
        refreshes: Instance refreshes, oldest first; the last one may be in progress.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.pool: list[Host] = []
        self.activities: list[Activity] = []
        self.refreshes: list[InstanceRefresh] = []
        self._launch_rejected_at = float("-inf")
        super().__init__(*arguments, **named)

    @property
    def instance_type(self) -> str:
        """Type of new instances: the first override in a mixed instances policy, otherwise that in the template."""
        overrides = (self.mixed_instances_policy or {}).get("LaunchTemplate", {}).get("Overrides", [])
        return str(overrides[0].get("InstanceType", super().instance_type)) if overrides else super().instance_type

    @property
    def warm_pool_size(self) -> int | None:
        """Number of hosts in the warm pool; `None` without a warm pool."""
        return len(self.pool) if self.warm_pool else None

    @property
    def active_refresh(self) -> InstanceRefresh | None:
        """The refresh in progress."""
        return self.refreshes[-1] if self.refreshes and self.refreshes[-1].is_active else None

    @property
    def template(self) -> dict[str, str]:
        """Id and version of the launch template for new hosts."""
        template = self.ec2_launch_template
        return {"LaunchTemplateId": template.id, "Version": str(self.launch_template_version)} if template else {}

    def set_launch_template(self, template: dict[str, str]) -> None:
        """Use another launch template, or another version of the same one, for new hosts."""
        self._set_launch_configuration("", template, {})

    @property
    def hosts(self) -> list[Host]:
        """The hosts in the group. moto creates each instance in a group as a `Host`."""
        return cast("list[Host]", self.instance_states)

    def list_all_hosts(self) -> list[Host]:
        """Return the hosts in the group and its warm pool."""
        return [*self.hosts, *self.pool]

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        """Set the desired number of hosts. No host is launched before the group exists."""
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity
        if self.name in self.autoscaling_backend.autoscaling_groups:
            self.reconcile_capacity()

    def apply_due_changes(self) -> None:
        """Apply the changes that are due: hook timeouts, replacement of lost hosts, the next step of a refresh."""
        now = time.monotonic()
        for host in self.list_all_hosts():
            for name, action in list(host.actions.items()):
                if name in host.actions and action.deadline <= now:
                    self.complete_action(host, name, action.hook.default_result, "Heartbeat Timeout")
        for host in self.list_all_hosts():
            if host.lifecycle_state == "InService" and host.instance.state != "running":
                self.replace_host(host, "an EC2 health check indicating it has been terminated or stopped")
        if self.active_refresh:
            self.active_refresh.advance(self)
        self.reconcile_capacity()

    def replace_host(self, host: Host, reason: str) -> None:
        """Terminate an unhealthy host and launch another one."""
        host.health_status = "Unhealthy"
        self.terminate_host(host, f"in response to {reason}")
        self.reconcile_capacity("an unhealthy instance needing to be replaced")

    def reconcile_capacity(self, reason: str = "a difference between desired and actual capacity") -> None:
        """Launch and terminate hosts until the group and its warm pool have their desired sizes."""
        active_hosts = [host for host in self.hosts if host.is_starting or host.lifecycle_state == "InService"]
        target = (self.desired_capacity or 0) + (
            self.active_refresh.calculate_surge_count(self) if self.active_refresh else 0
        )
        for number in range(len(active_hosts), target):
            self._add_host(f"in response to {reason}, increasing the capacity from {number} to {number + 1}")
        for number in range(len(active_hosts), target, -1):
            free = [host for host in active_hosts if not host.protected_from_scale_in]
            if not free:
                break
            zones = Counter(host.availability_zone for host in active_hosts)
            # As in the default termination policy, the hosts with the oldest template in the zone with the most hosts
            # are terminated first.
            leaving_host = max(free, key=lambda host: (zones[host.availability_zone], host.template != self.template))
            active_hosts.remove(leaving_host)
            self.terminate_host(
                leaving_host, f"in response to {reason}, shrinking the capacity from {number} to {number - 1}"
            )
        self._reconcile_warm_pool()

    def terminate_host(self, host: Host, reason: str) -> None:
        """Start the termination of a host, which hooks may delay."""
        self._deregister(host)
        description, now = f"Terminating EC2 instance: {host.instance_id}", utcnow()
        if host.is_starting:
            host.finish_activity("Cancelled")
        host.activity = self._start_activity(description, f"At {now} an instance was taken out of service {reason}.")
        host.set_state("Terminating")
        if not self._run_hooks(host, TERMINATION_TRANSITION):
            self._remove_host(host)

    def complete_action(self, host: Host, hook: str, result: str, reason: str) -> None:
        action = host.actions.pop(hook)
        if result == "ABANDON":
            host.actions.clear()
        if host.actions:
            return
        if not host.is_starting:
            self._remove_host(host)
        elif result == "CONTINUE":
            self._finish_launch(host)
        else:
            host.finish_activity(
                "Cancelled", f"Instance failed to complete user's Lifecycle Action: {action.hook.name}: {reason}"
            )
            self._remove_host(host)
            self.reconcile_capacity()

    def terminate_all_hosts(self) -> None:
        """Terminate all hosts immediately, as in a forced deletion."""
        for host in self.list_all_hosts():
            self._deregister(host)
            self._remove_host(host)

    def _deregister(self, host: Host) -> None:
        self.autoscaling_backend.elbv2_backend.notify_terminate_instances([host.instance_id])

    def _reconcile_warm_pool(self) -> None:
        pool, target = self.warm_pool, 0
        if pool:
            prepared = pool.max_group_prepared_capacity
            max_prepared = self.max_size if prepared is None or prepared < 0 else prepared
            target = max(pool.min_size, (max_prepared or 0) - (self.desired_capacity or 0))
        staying = [host for host in self.pool if not host.is_terminating]
        for _ in range(len(staying), target):
            self._launch(f"{WARM_STATE_PREFIX}Pending", "in response to the size of the warm pool")
        for host in staying[target:]:
            self.terminate_host(host, "in response to the size of the warm pool")

    def _add_host(self, reason: str) -> None:
        """Add a host to the group, from the warm pool if one is ready there."""
        for host in self.pool:
            if not host.is_starting and not host.is_terminating:
                self.pool.remove(host)
                self.hosts.append(host)
                self.ec2_backend.start_instances([host.instance_id])
                host.lifecycle_state = "Pending"
                self._start_launch(host, reason)
                return
        self._launch("Pending", reason)

    def _launch(self, state: str, reason: str) -> None:
        if time.monotonic() < self._launch_rejected_at + LAUNCH_RETRY_DELAY_S:
            return
        used = [host.instance.subnet_id for host in self.list_all_hosts()]
        subnet = min((self.vpc_zone_identifier or "").split(","), key=used.count)
        try:
            instance = launch_instance(self, subnet)
        except Exception as error:  # noqa: BLE001 - any error of EC2 is the reason that the operator has to see
            self._launch_rejected_at = time.monotonic()
            status = f"Launching a new EC2 instance.  Status Reason: {error}. Launching EC2 instance failed."
            end_activity(
                self._start_activity(status, f"At {utcnow()} an instance was started {reason}."), "Failed", str(error)
            )
            return
        protected = self.new_instances_protected_from_scale_in
        host = Host(instance, lifecycle_state=state, protected_from_scale_in=protected)
        host.template = self.template
        (self.pool if host.is_warm else self.hosts).append(host)
        self._start_launch(host, reason)

    def _start_launch(self, host: Host, reason: str) -> None:
        description = f"Launching a new EC2 instance: {host.instance_id}"
        host.activity = self._start_activity(description, f"At {utcnow()} an instance was started {reason}.")
        if not self._run_hooks(host, LAUNCH_TRANSITION):
            self._finish_launch(host)

    def _run_hooks(self, host: Host, transition: str) -> bool:
        """Start the hook actions for a transition; return True if there are any."""
        hooks = self.autoscaling_backend.describe_lifecycle_hooks(self.name)
        host.actions = {
            hook.name: LifecycleAction.begin(hook) for hook in hooks if hook.lifecycle_transition == transition
        }
        if host.actions:
            host.lifecycle_state += ":Wait"
            if host.activity:
                host.activity.status_code = "MidLifecycleAction"
        return bool(host.actions)

    def _finish_launch(self, host: Host) -> None:
        if host.is_warm:
            state = self.warm_pool.pool_state if self.warm_pool else "Stopped"
            if state != "Running":
                self.ec2_backend.stop_instances([host.instance_id])
            host.set_state(state)
        else:
            host.set_state("InService")
            host.serving_since = time.monotonic()
            self.autoscaling_backend.update_attached_target_groups(self.name)
        host.finish_activity("Successful")

    def _remove_host(self, host: Host) -> None:
        for hosts in (self.hosts, self.pool):
            if host in hosts:
                hosts.remove(host)
        if host.instance.state != "terminated":
            self.ec2_backend.terminate_instances([host.instance_id])
        if host.is_terminating:
            host.finish_activity("Successful")

    def _start_activity(self, description: str, cause: str) -> Activity:
        activity: Any = Activity(description, cause, self)
        activity.end_time, activity.auto_scaling_group_arn = None, self.arn
        self.activities.append(activity)
        activity_record: Activity = activity
        return activity_record


class LifecycleBackend(AutoScalingBackend):
    """Auto Scaling in an account and region, whose groups run lifecycle hooks."""

    __module__ = AutoScalingBackend.__module__  # module in which moto looks for the service's routes

    def iter_lifecycle_groups(self) -> Iterator[LifecycleGroup]:
        for group in list(self.autoscaling_groups.values()):
            if isinstance(group, LifecycleGroup):
                yield group

    def find_host(self, instance: str) -> tuple[LifecycleGroup, Host]:
        """Return a host and its group.

        Raises:
            AutoscalingClientError: There is no such host.
        """
        for group in self.iter_lifecycle_groups():
            for host in group.list_all_hosts():
                if host.instance_id == instance:
                    return group, host
        message = f"Instance Id not found - No managed instance found: {instance}"
        raise AutoscalingClientError("ValidationError", message)

    def describe_auto_scaling_instances(self, instance_ids: list[str]) -> list[InstanceState]:
        """Return hosts in groups and warm pools."""
        every = [host for group in self.iter_lifecycle_groups() for host in group.list_all_hosts()]
        return [host for host in every if not instance_ids or host.instance_id in instance_ids]

    def set_instance_health(self, instance_id: str, health_status: str, *, respect_grace: bool = True) -> None:
        """Set a host's health. An unhealthy host is replaced. The request is ignored during the grace period."""
        group, host = self.find_host(instance_id)
        grace = host.serving_since + (group.health_check_grace_period or 0)
        if respect_grace and time.monotonic() < grace:
            return
        host.health_status = health_status
        if health_status == "Unhealthy" and host.lifecycle_state == "InService":
            group.replace_host(host, "a user health-check")

    def update_attached_target_groups(self, group_name: str) -> None:
        """Register only the hosts in service with the load balancers for their group."""
        group = self.autoscaling_groups[group_name]
        for arn in group.target_group_arns:
            port = self.elbv2_backend.target_groups[arn].port
            targets = [{"Id": host.instance_id, "Port": port} for host in group.active_instances()]
            self.elbv2_backend.register_targets(arn, targets)

    def notify_terminate_instances(self, instance_ids: list[str]) -> None:
        """Leave lost instances to the health check; moto would replace them without hooks."""


def install() -> None:
    """Replace moto's groups; the API is patched in `voice_sandbox.aws.patches.autoscaling`."""
    module: Any = models
    module.FakeAutoScalingGroup, module.InstanceState = LifecycleGroup, Host
    autoscaling_backends.backend = LifecycleBackend
