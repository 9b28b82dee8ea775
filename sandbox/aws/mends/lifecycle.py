"""Hosts of an Auto Scaling group: their states, the hooks that hold them, the warm pool, and who is replaced.

What time alone changes (a hook that nobody answers, a host that EC2 lost) is noticed at the next request. Not
represented: instances that go back into a warm pool, terminating hooks of an abandoned launch, suspended processes.
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

from sandbox.aws.mends.launch import launch
from sandbox.aws.mends.refresh import Refresh

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
WARM = "Warmed:"
RETRY_S = 10.0
"""Pause after a launch that EC2 refused."""


@dataclass
class Action:
    """A hook that holds a host until ``deadline``, which heartbeats move as far as ``last`` (monotonic seconds)."""

    hook: LifecycleHook
    deadline: float
    last: float

    @classmethod
    def begin(cls, hook: LifecycleHook) -> Action:
        now = time.monotonic()
        return cls(hook, now + hook.heartbeat_timeout, now + min(48 * 3600, 100 * hook.heartbeat_timeout))

    def beat(self) -> None:
        self.deadline = min(self.last, time.monotonic() + self.hook.heartbeat_timeout)


class Host(InstanceState):
    """One instance of a group, with the actions that hold it.

    Attributes:
        activity: What brings it into service, or takes it out.
        serving_since: When it came into service, in monotonic seconds.
        template: Id and version of the launch template that it was made from.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.actions: dict[str, Action] = {}
        self.activity: Activity | None = None
        self.serving_since = time.monotonic()
        self.template: dict[str, str] = {}

    @property
    def is_warm(self) -> bool:
        return self.lifecycle_state.startswith(WARM)

    @property
    def is_leaving(self) -> bool:
        return "Terminating" in self.lifecycle_state

    @property
    def is_starting(self) -> bool:
        return "Pending" in self.lifecycle_state

    def enter(self, state: str) -> None:
        """Go to a state of the group, or to that of its warm pool where it is there."""
        self.lifecycle_state = (WARM if self.is_warm else "") + state

    def finish(self, status: str, message: str | None = None) -> None:
        """End the activity."""
        if self.activity:
            end(self.activity, status, message)


def end(activity: Activity, status: str, message: str | None = None) -> None:
    shown: Any = activity
    shown.status_code, shown.status_message, shown.end_time, shown.progress = status, message, utcnow(), 100


class LivingGroup(FakeAutoScalingGroup):
    """A group whose hosts come and go through its hooks; moto's are in service at once.

    Attributes:
        pool: Hosts of its warm pool.
        activities: Oldest first.
        refreshes: Oldest first; the last one may be under way.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.pool: list[Host] = []
        self.activities: list[Activity] = []
        self.refreshes: list[Refresh] = []
        self._refused_at = float("-inf")
        super().__init__(*arguments, **named)

    @property
    def instance_type(self) -> str:
        """The type of new instances: the first override of a mixed policy, else the launch template's."""
        overrides = (self.mixed_instances_policy or {}).get("LaunchTemplate", {}).get("Overrides", [])
        return str(overrides[0].get("InstanceType", super().instance_type)) if overrides else super().instance_type

    @property
    def warm_pool_size(self) -> int | None:
        """Hosts in the warm pool, where there is one."""
        return len(self.pool) if self.warm_pool else None

    @property
    def refresh(self) -> Refresh | None:
        """The refresh that is under way."""
        return self.refreshes[-1] if self.refreshes and self.refreshes[-1].is_active else None

    @property
    def template(self) -> dict[str, str]:
        """Id and version of the launch template of new hosts."""
        made = self.ec2_launch_template
        return {"LaunchTemplateId": made.id, "Version": str(self.launch_template_version)} if made else {}

    def launch_from(self, template: dict[str, str]) -> None:
        """Take new hosts from another launch template, or another version of it."""
        self._set_launch_configuration("", template, {})

    @property
    def hosts(self) -> list[Host]:
        """The hosts of the group; every instance that moto adds is one."""
        return cast("list[Host]", self.instance_states)

    def all_hosts(self) -> list[Host]:
        """Return the hosts of the group and of its warm pool."""
        return [*self.hosts, *self.pool]

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        """Note the number of hosts that the group shall have; none is launched before the group is there."""
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity
        if self.name in self.autoscaling_backend.autoscaling_groups:
            self.balance()

    def settle(self) -> None:
        """Do what time has brought: hooks that nobody answered, hosts that are ill, hosts that are missing."""
        now = time.monotonic()
        for host in self.all_hosts():
            for name, action in list(host.actions.items()):
                if name in host.actions and action.deadline <= now:
                    self.complete(host, name, action.hook.default_result, "Heartbeat Timeout")
        for host in self.all_hosts():
            if host.lifecycle_state == "InService" and host.instance.state != "running":
                self.replace(host, "an EC2 health check indicating it has been terminated or stopped")
        if self.refresh:
            self.refresh.advance(self)
        self.balance()

    def replace(self, host: Host, why: str) -> None:
        """Take an ill host out of service and start another."""
        host.health_status = "Unhealthy"
        self.dismiss(host, f"in response to {why}")
        self.balance("an unhealthy instance needing to be replaced")

    def balance(self, why: str = "a difference between desired and actual capacity") -> None:
        """Launch and terminate until group and warm pool have the hosts that they shall have."""
        counted = [host for host in self.hosts if host.is_starting or host.lifecycle_state == "InService"]
        wanted = (self.desired_capacity or 0) + (self.refresh.spare(self) if self.refresh else 0)
        for number in range(len(counted), wanted):
            self._add(f"in response to {why}, increasing the capacity from {number} to {number + 1}")
        for number in range(len(counted), wanted, -1):
            free = [host for host in counted if not host.protected_from_scale_in]
            if not free:
                break
            zones = Counter(host.availability_zone for host in counted)
            # As the default policy does: from the fullest zone, the oldest launch template first.
            leaving = max(free, key=lambda host: (zones[host.availability_zone], host.template != self.template))
            counted.remove(leaving)
            self.dismiss(leaving, f"in response to {why}, shrinking the capacity from {number} to {number - 1}")
        self._balance_pool()

    def dismiss(self, host: Host, why: str) -> None:
        """Begin a termination, which hooks may hold."""
        self._deregister(host)
        description, now = f"Terminating EC2 instance: {host.instance_id}", utcnow()
        if host.is_starting:
            host.finish("Cancelled")
        host.activity = self._began(description, f"At {now} an instance was taken out of service {why}.")
        host.enter("Terminating")
        if not self._hold(host, TERMINATING):
            self._end(host)

    def complete(self, host: Host, hook: str, result: str, why: str) -> None:
        action = host.actions.pop(hook)
        if result == "ABANDON":
            host.actions.clear()
        if host.actions:
            return
        if not host.is_starting:
            self._end(host)
        elif result == "CONTINUE":
            self._arrive(host)
        else:
            host.finish("Cancelled", f"Instance failed to complete user's Lifecycle Action: {action.hook.name}: {why}")
            self._end(host)
            self.balance()

    def discard(self) -> None:
        """Terminate every host at once, as a forced deletion does."""
        for host in self.all_hosts():
            self._deregister(host)
            self._end(host)

    def _deregister(self, host: Host) -> None:
        self.autoscaling_backend.elbv2_backend.notify_terminate_instances([host.instance_id])

    def _balance_pool(self) -> None:
        pool, wanted = self.warm_pool, 0
        if pool:
            prepared = pool.max_group_prepared_capacity
            most = self.max_size if prepared is None or prepared < 0 else prepared
            wanted = max(pool.min_size, (most or 0) - (self.desired_capacity or 0))
        staying = [host for host in self.pool if not host.is_leaving]
        for _ in range(len(staying), wanted):
            self._launch(f"{WARM}Pending", "in response to the size of the warm pool")
        for host in staying[wanted:]:
            self.dismiss(host, "in response to the size of the warm pool")

    def _add(self, why: str) -> None:
        """Bring one host more into the group: from the warm pool if one is ready there."""
        for host in self.pool:
            if not host.is_starting and not host.is_leaving:
                self.pool.remove(host)
                self.hosts.append(host)
                self.ec2_backend.start_instances([host.instance_id])
                host.lifecycle_state = "Pending"
                self._start(host, why)
                return
        self._launch("Pending", why)

    def _launch(self, state: str, why: str) -> None:
        if time.monotonic() < self._refused_at + RETRY_S:
            return
        used = [host.instance.subnet_id for host in self.all_hosts()]
        subnet = min((self.vpc_zone_identifier or "").split(","), key=used.count)
        try:
            instance = launch(self, subnet)
        except Exception as error:  # noqa: BLE001 - whatever EC2 answers is the reason that the operator has to see
            self._refused_at = time.monotonic()
            status = f"Launching a new EC2 instance.  Status Reason: {error}. Launching EC2 instance failed."
            end(self._began(status, f"At {utcnow()} an instance was started {why}."), "Failed", str(error))
            return
        protected = self.new_instances_protected_from_scale_in
        host = Host(instance, lifecycle_state=state, protected_from_scale_in=protected)
        host.template = self.template
        (self.pool if host.is_warm else self.hosts).append(host)
        self._start(host, why)

    def _start(self, host: Host, why: str) -> None:
        description = f"Launching a new EC2 instance: {host.instance_id}"
        host.activity = self._began(description, f"At {utcnow()} an instance was started {why}.")
        if not self._hold(host, LAUNCHING):
            self._arrive(host)

    def _hold(self, host: Host, transition: str) -> bool:
        """Begin the actions of a transition's hooks; return whether there are any."""
        hooks = self.autoscaling_backend.describe_lifecycle_hooks(self.name)
        host.actions = {hook.name: Action.begin(hook) for hook in hooks if hook.lifecycle_transition == transition}
        if host.actions:
            host.lifecycle_state += ":Wait"
            if host.activity:
                host.activity.status_code = "MidLifecycleAction"
        return bool(host.actions)

    def _arrive(self, host: Host) -> None:
        if host.is_warm:
            state = self.warm_pool.pool_state if self.warm_pool else "Stopped"
            if state != "Running":
                self.ec2_backend.stop_instances([host.instance_id])
            host.enter(state)
        else:
            host.enter("InService")
            host.serving_since = time.monotonic()
            self.autoscaling_backend.update_attached_target_groups(self.name)
        host.finish("Successful")

    def _end(self, host: Host) -> None:
        for hosts in (self.hosts, self.pool):
            if host in hosts:
                hosts.remove(host)
        if host.instance.state != "terminated":
            self.ec2_backend.terminate_instances([host.instance_id])
        if host.is_leaving:
            host.finish("Successful")

    def _began(self, description: str, cause: str) -> Activity:
        activity: Any = Activity(description, cause, self)
        activity.end_time, activity.auto_scaling_group_arn = None, self.arn
        self.activities.append(activity)
        made: Activity = activity
        return made


class LivingBackend(AutoScalingBackend):
    """Auto Scaling in one account and region, with living groups."""

    __module__ = AutoScalingBackend.__module__  # where moto looks for the service's routes

    def living(self) -> Iterator[LivingGroup]:
        for group in list(self.autoscaling_groups.values()):
            if isinstance(group, LivingGroup):
                yield group

    def find(self, instance: str) -> tuple[LivingGroup, Host]:
        """Return a host and its group.

        Raises:
            AutoscalingClientError: There is no such host.
        """
        for group in self.living():
            for host in group.all_hosts():
                if host.instance_id == instance:
                    return group, host
        message = f"Instance Id not found - No managed instance found: {instance}"
        raise AutoscalingClientError("ValidationError", message)

    def describe_auto_scaling_instances(self, instance_ids: list[str]) -> list[InstanceState]:
        """Return hosts of groups and warm pools."""
        every = [host for group in self.living() for host in group.all_hosts()]
        return [host for host in every if not instance_ids or host.instance_id in instance_ids]

    def set_instance_health(self, instance_id: str, health_status: str, *, respect_grace: bool = True) -> None:
        """Note what somebody says of a host's health; an ill one is replaced, but not in its grace period."""
        group, host = self.find(instance_id)
        grace = host.serving_since + (group.health_check_grace_period or 0)
        if respect_grace and time.monotonic() < grace:
            return
        host.health_status = health_status
        if health_status == "Unhealthy" and host.lifecycle_state == "InService":
            group.replace(host, "a user health-check")

    def update_attached_target_groups(self, group_name: str) -> None:
        """Register the hosts in service, and no other, with the load balancers of their group."""
        group = self.autoscaling_groups[group_name]
        for arn in group.target_group_arns:
            port = self.elbv2_backend.target_groups[arn].port
            targets = [{"Id": host.instance_id, "Port": port} for host in group.active_instances()]
            self.elbv2_backend.register_targets(arn, targets)

    def notify_terminate_instances(self, instance_ids: list[str]) -> None:
        """Leave it to the health check to notice what EC2 lost; moto replaces it past all hooks."""


def install() -> None:
    """Put the groups in the place of moto's; the API is mended in `sandbox.aws.mends.autoscaling`."""
    module: Any = models
    module.FakeAutoScalingGroup, module.InstanceState = LivingGroup, Host
    autoscaling_backends.backend = LivingBackend
