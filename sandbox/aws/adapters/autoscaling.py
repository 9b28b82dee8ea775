"""EC2 Auto Scaling: groups."""

from __future__ import annotations

from sandbox.aws.adapters.adapter import Adapter, Properties


class Group(Adapter):
    """A group; its tags name it one by one."""

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
