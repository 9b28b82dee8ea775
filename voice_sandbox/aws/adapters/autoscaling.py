"""EC2 Auto Scaling: groups."""

from __future__ import annotations

import time

from voice_sandbox.aws.adapters.adapter import Adapter, Properties

POLL_INTERVAL_S = 0.1
PAUSE_TIMEOUT_S = 120.0
"""Maximum wait for an instance refresh during a checkpoint pause or the bake time."""
STALL_TIMEOUT_S = 600.0
"""Maximum wait for a group while none of its hosts comes into service or is replaced."""
REFRESH_PAUSE_REASONS = ("Waiting at a checkpoint.", "Baking.")
PAUSE_ADVICE = "set `rollout.checkpoint_pause_s` and `rollout.bake_s` to 0 in the rehearsed file"
STALL_ADVICE = "see the consoles of its hosts, and the log of the local AWS for incomplete lifecycle actions"


class StallDetector:
    """Tracks when a group last made progress, so that a rehearsal does not wait forever."""

    def __init__(self, group: str) -> None:
        self._group, self._last_progress_at = group, time.monotonic()
        self._last: object = None

    def raise_if_stalled(self, now: object, text: str, limit_s: float, remedy: str) -> None:
        """Raise an error if nothing has changed for too long.

        Args:
            now: Values that change while the group makes progress.
            text: Description of the state that the group waits for.

        Raises:
            ValueError: Nothing has changed in time; the message contains the description.
        """
        if now != self._last:
            self._last, self._last_progress_at = now, time.monotonic()
        elif (waited := time.monotonic() - self._last_progress_at) > limit_s:
            raise ValueError(
                f"{self._group}: {text}; nothing has changed for {waited:.0f} s, and the local AWS waits for "
                f"{limit_s:.0f} s: {remedy}"
            )


class Group(Adapter):
    """An Auto Scaling group, whose tags have a format of their own."""

    def create(self, properties: Properties) -> None:
        """Create the group, and wait until its minimum number of hosts is in service.

        Raises:
            ValueError: A launch failed before the minimum number of hosts was in service.
        """
        super().create(properties)
        progress = StallDetector(self.id)
        while True:
            named = {"AutoScalingGroupNames": [self.id]}
            (group,) = self.call("describe_auto_scaling_groups", named)["AutoScalingGroups"]
            serving = sum(host["LifecycleState"] == "InService" for host in group["Instances"])
            if serving >= group["MinSize"]:
                return
            progress.raise_if_stalled(
                serving, f"{serving} of {group['MinSize']} hosts are in service", STALL_TIMEOUT_S, STALL_ADVICE
            )
            activities = self.call("describe_scaling_activities", AutoScalingGroupName=self.id)["Activities"]
            for activity in activities:
                if activity["StatusCode"] in {"Failed", "Cancelled"}:
                    raise ValueError(
                        "Group did not stabilize. {current/minimum/desired group size} = "
                        f"{{{serving}/{group['MinSize']}/{group['DesiredCapacity']}}}. "
                        f"Failed Scaling Activity: {activity['StatusMessage']}"
                    )
            time.sleep(POLL_INTERVAL_S)

    def change(self, new: Properties) -> None:
        """Change the group. If the update policy requires it, a new launch template starts an instance refresh.

        Raises:
            ValueError: The refresh failed.
        """
        policy = self.update_policy.get("AutoScalingInstanceRefresh")
        template, before = new.get("LaunchTemplate"), self.properties.get("LaunchTemplate")
        if not policy or template == before:
            super().change(new)
            return
        super().change({**new, "LaunchTemplate": before})
        refresh = self.call(
            "start_instance_refresh",
            policy,
            AutoScalingGroupName=self.id,
            DesiredConfiguration={"LaunchTemplate": template},
        )
        named = {"AutoScalingGroupName": self.id, "InstanceRefreshIds": [refresh["InstanceRefreshId"]]}
        progress = StallDetector(self.id)
        while True:
            (instance_refresh,) = self.call("describe_instance_refreshes", named)["InstanceRefreshes"]
            if instance_refresh["Status"] == "Successful":
                return
            if instance_refresh["Status"] != "InProgress":
                raise ValueError(
                    f"Instance refresh {instance_refresh['InstanceRefreshId']} of {self.id} is "
                    f"{instance_refresh['Status']}: "
                    f"{instance_refresh.get('StatusReason')}"
                )
            reason, percent = instance_refresh.get("StatusReason") or "", instance_refresh.get("PercentageComplete", 0)
            limit, remedy = (
                (PAUSE_TIMEOUT_S, PAUSE_ADVICE) if reason in REFRESH_PAUSE_REASONS else (STALL_TIMEOUT_S, STALL_ADVICE)
            )
            progress.raise_if_stalled(
                (percent, reason), f"{percent} % of its hosts are replaced {reason}".strip(), limit, remedy
            )
            time.sleep(POLL_INTERVAL_S)

    def translate(self, properties: Properties) -> Properties:
        """Convert tags and subnets to the API's format."""
        name = properties["AutoScalingGroupName"]
        tags = [{"ResourceId": name, "ResourceType": "auto-scaling-group", **tag} for tag in properties.get("Tags", [])]
        subnets = properties.get("VPCZoneIdentifier", [])
        return {**properties, "Tags": tags, "VPCZoneIdentifier": ",".join(subnets)}

    def configure(self, before: Properties, after: Properties) -> None:
        """Set the group's tags and metrics."""
        super().configure(before, after)
        for metrics in after.get("MetricsCollection", []):
            self.call_on_resource("enable_metrics_collection", after, metrics)
        current, desired = ({tag["Key"]: tag for tag in item["Tags"]} for item in (before, after))
        if removed := [current[key] for key in sorted(current.keys() - desired.keys())]:
            self.call("delete_tags", Tags=removed)
        if new := [tag for tag in desired.values() if tag not in current.values()]:
            self.call("create_or_update_tags", Tags=new)
