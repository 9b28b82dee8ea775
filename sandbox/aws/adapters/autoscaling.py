"""EC2 Auto Scaling: groups."""

from __future__ import annotations

import time

from sandbox.aws.adapters.adapter import Adapter, Properties

POLL_S = 0.1


class Group(Adapter):
    """A group; its tags name it one by one."""

    def create(self, properties: Properties) -> None:
        """Create the group, and wait until its minimum is in service.

        Raises:
            ValueError: A launch failed before that.
        """
        super().create(properties)
        while True:
            named = {"AutoScalingGroupNames": [self.id]}
            (group,) = self.call("describe_auto_scaling_groups", named)["AutoScalingGroups"]
            serving = sum(host["LifecycleState"] == "InService" for host in group["Instances"])
            if serving >= group["MinSize"]:
                return
            activities = self.call("describe_scaling_activities", AutoScalingGroupName=self.id)["Activities"]
            for activity in activities:
                if activity["StatusCode"] in {"Failed", "Cancelled"}:
                    raise ValueError(
                        "Group did not stabilize. {current/minimum/desired group size} = "
                        f"{{{serving}/{group['MinSize']}/{group['DesiredCapacity']}}}. "
                        f"Failed Scaling Activity: {activity['StatusMessage']}"
                    )
            time.sleep(POLL_S)

    def change(self, new: Properties) -> None:
        """Change the group; under a policy of instance refresh another launch template comes by way of one.

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
        while True:
            (found,) = self.call("describe_instance_refreshes", named)["InstanceRefreshes"]
            if found["Status"] == "Successful":
                return
            if found["Status"] != "InProgress":
                raise ValueError(
                    f"Instance refresh {found['InstanceRefreshId']} of {self.id} is {found['Status']}: "
                    f"{found.get('StatusReason')}"
                )
            time.sleep(POLL_S)

    def translated(self, properties: Properties) -> Properties:
        """Write tags and subnets as the API has them."""
        name = properties["AutoScalingGroupName"]
        tags = [{"ResourceId": name, "ResourceType": "auto-scaling-group", **tag} for tag in properties.get("Tags", [])]
        subnets = properties.get("VPCZoneIdentifier", [])
        return {**properties, "Tags": tags, "VPCZoneIdentifier": ",".join(subnets)}

    def configure(self, before: Properties, after: Properties) -> None:
        """Set tags and metrics."""
        super().configure(before, after)
        for metrics in after.get("MetricsCollection", []):
            self.on("enable_metrics_collection", after, metrics)
        had, wanted = ({tag["Key"]: tag for tag in item["Tags"]} for item in (before, after))
        if gone := [had[key] for key in sorted(had.keys() - wanted.keys())]:
            self.call("delete_tags", Tags=gone)
        if new := [tag for tag in wanted.values() if tag not in had.values()]:
            self.call("create_or_update_tags", Tags=new)
