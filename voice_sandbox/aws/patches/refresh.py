"""Instance refresh: hosts are replaced a few at a time, monitored by alarms, with pauses at checkpoints.

Not supported: waiting for warm-up, protected and standby hosts, skipping hosts that match already, Auto Scaling's own
rollbacks (CloudFormation makes its own), and the strategy that replaces root volumes.
"""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.core.utils import utcnow

if TYPE_CHECKING:
    from voice_sandbox.aws.patches.lifecycle import Host, LifecycleGroup

MAX_HEALTHY_PERCENT_WITHOUT_SURGE = 100


@dataclass
class InstanceRefresh:
    """A refresh of a group.

    Attributes:
        preferences: Preferences in the caller's request.
        template: New launch template of the group's hosts.
        previous_template: Previous launch template.
    """

    preferences: dict[str, Any]
    template: dict[str, str]
    previous_template: dict[str, str]
    total_count: int
    status: str = "InProgress"
    reason: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started_at: datetime = field(default_factory=utcnow)
    ended_at: datetime | None = None
    replaced_count: int = 0
    _passed_checkpoint_count: int = 0
    _resumes_at: float = 0.0

    @property
    def is_active(self) -> bool:
        return self.status == "InProgress"

    @property
    def percent_complete(self) -> int:
        return 100 * self.replaced_count // self.total_count if self.total_count else 100

    def calculate_surge_count(self, group: LifecycleGroup) -> int:
        """Return the number of additional hosts above the desired number."""
        max_healthy_percent = int(self.preferences.get("MaxHealthyPercentage", MAX_HEALTHY_PERCENT_WITHOUT_SURGE))
        outdated = len(self._list_outdated_hosts(group))
        if (
            not self.is_active
            or time.monotonic() < self._resumes_at
            or max_healthy_percent <= MAX_HEALTHY_PERCENT_WITHOUT_SURGE
            or not outdated
        ):
            return 0
        return min(outdated, max(1, (group.desired_capacity or 0) * (max_healthy_percent - 100) // 100))

    def advance(self, group: LifecycleGroup) -> None:
        """Execute the next step of the refresh."""
        outdated = self._list_outdated_hosts(group)
        self.replaced_count = max(0, self.total_count - len(outdated))
        alarms = cloudwatch_backends[group.autoscaling_backend.account_id][group.region].alarms
        watched = self.preferences.get("AlarmSpecification", {}).get("Alarms", [])
        if missing := [name for name in watched if name not in alarms]:
            self.end(group, "Failed", f"The alarms {', '.join(missing)} do not exist.")
        elif active_alarms := [name for name in watched if alarms[name].state_value == "ALARM"]:
            self.end(group, "Failed", f"The alarm(s) {', '.join(active_alarms)} went into the ALARM state.")
        elif self._is_paused():
            self.reason = "Waiting at a checkpoint."
        elif outdated:
            self.reason = ""
            self._replace_hosts(group, outdated)
            # Counted before the next hosts are launched, since a checkpoint that is reached now pauses the refresh.
            self.replaced_count = max(0, self.total_count - len(self._list_outdated_hosts(group)))
            self._is_paused()
        elif any(host.is_starting or host.is_terminating for host in group.list_all_hosts()):
            return
        elif warm_pool_hosts := [host for host in group.pool if host.template != self.template]:
            group.terminate_host(warm_pool_hosts[0], "in response to an instance refresh")
        elif not self._is_baking():
            self.end(group, "Successful")

    def end(self, group: LifecycleGroup, status: str, reason: str = "") -> None:
        """End the refresh. Unless the refresh has succeeded, the group uses its previous template again."""
        self.status, self.reason, self.ended_at = status, reason, utcnow()
        if status != "Successful":
            group.set_launch_template(self.previous_template)

    def _list_outdated_hosts(self, group: LifecycleGroup) -> list[Host]:
        return [host for host in group.hosts if not host.is_terminating and host.template != self.template]

    def _replace_hosts(self, group: LifecycleGroup, outdated: list[Host]) -> None:
        serving = sum(host.lifecycle_state == "InService" for host in group.hosts)
        min_healthy = math.ceil(
            (group.desired_capacity or 0) * int(self.preferences.get("MinHealthyPercentage", 90)) / 100
        )
        if (
            int(self.preferences.get("MaxHealthyPercentage", MAX_HEALTHY_PERCENT_WITHOUT_SURGE))
            <= MAX_HEALTHY_PERCENT_WITHOUT_SURGE
        ):
            # At least one host has to terminate before another can replace it.
            min_healthy = min(min_healthy, (group.desired_capacity or 0) - 1)
        for host in outdated[: max(0, serving - min_healthy)]:
            group.terminate_host(host, "in response to an instance refresh")

    def _is_paused(self) -> bool:
        """Return True if a checkpoint pauses the refresh. Several checkpoints reached at once pause it only once."""
        checkpoints_passed = sum(
            self.percent_complete >= mark for mark in self.preferences.get("CheckpointPercentages", [])
        )
        if checkpoints_passed > self._passed_checkpoint_count:
            self._passed_checkpoint_count = checkpoints_passed
            self._resumes_at = time.monotonic() + int(self.preferences.get("CheckpointDelay", 3600))
        return time.monotonic() < self._resumes_at

    def _is_baking(self) -> bool:
        """Return True during the bake time after the last replacement."""
        if self.reason != "Baking.":
            self.reason = "Baking."
            self._resumes_at = time.monotonic() + int(self.preferences.get("BakeTime", 0))
        return time.monotonic() < self._resumes_at

    def describe(self, group: str) -> dict[str, Any]:
        """Return the refresh in the format of DescribeInstanceRefreshes."""
        return {
            "InstanceRefreshId": self.id,
            "AutoScalingGroupName": group,
            "Status": self.status,
            "StatusReason": self.reason or None,
            "StartTime": self.started_at,
            "EndTime": self.ended_at,
            "PercentageComplete": self.percent_complete,
            "InstancesToUpdate": self.total_count - self.replaced_count,
            "Preferences": self.preferences,
            "DesiredConfiguration": {"LaunchTemplate": self.template},
        }
