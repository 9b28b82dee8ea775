"""EC2 Auto Scaling: groups, lifecycle hooks, scaling policies, scheduled actions and warm pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, without


class AutoScalingGroup(Adapter):
    """A group, with the lifecycle hooks, notifications and metrics that its template declares inline.

    Not represented: `UpdatePolicy` and `CreationPolicy` (no rolling replacement, no waiting for signals), and
    notification configurations, which moto does not have.
    """

    resource_type = "AWS::AutoScaling::AutoScalingGroup"
    service = "autoscaling"
    name = "AutoScalingGroupName"
    _apart = (
        "LifecycleHookSpecificationList",
        "MetricsCollection",
        "NotificationConfiguration",
        "NotificationConfigurations",
        "Cooldown",
        "Tags",
    )

    def create(self, properties: Properties) -> str:
        """Create the group."""
        name = str(properties["AutoScalingGroupName"])
        hooks = properties.get("LifecycleHookSpecificationList", [])
        self.call(
            "create_auto_scaling_group",
            self._group(properties),
            {"LifecycleHookSpecificationList": hooks} if hooks else {},
            Tags=_tags(name, properties),
        )
        self.begin(name)
        for metrics in properties.get("MetricsCollection", []):
            self.call("enable_metrics_collection", metrics, AutoScalingGroupName=name)
        return name

    def update(self, new: Properties) -> None:
        """Change the group, then its tags, hooks and target groups by their own calls."""
        self.call("update_auto_scaling_group", without(self._group(new), "TargetGroupARNs"))
        self._attach(new)
        for metrics in new.get("MetricsCollection", []):
            self.call("enable_metrics_collection", metrics, AutoScalingGroupName=self.id)
        gone = {tag["Key"] for tag in self.properties.get("Tags", [])} - {tag["Key"] for tag in new.get("Tags", [])}
        if gone:
            self.call("delete_tags", Tags=_tags(self.id, {"Tags": [{"Key": key} for key in sorted(gone)]}))
        if tags := _tags(self.id, new):
            self.call("create_or_update_tags", Tags=tags)
        before, after = _hooks(self.properties), _hooks(new)
        for name in before.keys() - after.keys():
            self.call("delete_lifecycle_hook", AutoScalingGroupName=self.id, LifecycleHookName=name)
        for name, hook in after.items():
            if hook != before.get(name):
                self.call("put_lifecycle_hook", hook, AutoScalingGroupName=self.id)

    def delete(self) -> None:
        """Delete the group with its instances, protected ones too, as CloudFormation does."""
        self.call("delete_auto_scaling_group", AutoScalingGroupName=self.id, ForceDelete=True)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        groups = self.call("describe_auto_scaling_groups", AutoScalingGroupNames=[self.id])["AutoScalingGroups"]
        return {"AutoScalingGroupARN": groups[0]["AutoScalingGroupARN"]}

    def _group(self, properties: Properties) -> Properties:
        group = without(properties, *self._apart)
        if "Cooldown" in properties:
            group["DefaultCooldown"] = properties["Cooldown"]
        if isinstance(group.get("VPCZoneIdentifier"), list):
            group["VPCZoneIdentifier"] = ",".join(group["VPCZoneIdentifier"])
        return group

    def _attach(self, new: Properties) -> None:
        before, after = set(self.properties.get("TargetGroupARNs", [])), set(new.get("TargetGroupARNs", []))
        for operation, arns in (("detach", before - after), ("attach", after - before)):
            if arns:
                self.call(
                    f"{operation}_load_balancer_target_groups",
                    AutoScalingGroupName=self.id,
                    TargetGroupARNs=sorted(arns),
                )


def _hooks(properties: Properties) -> dict[str, Properties]:
    return {hook["LifecycleHookName"]: hook for hook in properties.get("LifecycleHookSpecificationList", [])}


def _tags(group: str, properties: Properties) -> list[Properties]:
    return [{"ResourceId": group, "ResourceType": "auto-scaling-group", **tag} for tag in properties.get("Tags", [])]


class _OfGroup(Adapter):
    """What belongs to a group and is put and deleted under the group's name."""

    service = "autoscaling"

    def _group(self, properties: Properties) -> dict[str, Any]:
        return {"AutoScalingGroupName": properties["AutoScalingGroupName"]}


class LifecycleHook(_OfGroup):
    """A lifecycle hook that stands on its own."""

    resource_type = "AWS::AutoScaling::LifecycleHook"
    name = "LifecycleHookName"
    replaced_by = frozenset({"AutoScalingGroupName"})

    def create(self, properties: Properties) -> str:
        """Put the hook."""
        self.call("put_lifecycle_hook", properties)
        return str(properties["LifecycleHookName"])

    def update(self, new: Properties) -> None:
        """Put the hook again."""
        self.call("put_lifecycle_hook", new)

    def delete(self) -> None:
        """Delete the hook."""
        self.call("delete_lifecycle_hook", self._group(self.properties), LifecycleHookName=self.id)


class ScalingPolicy(_OfGroup):
    """A scaling policy. moto stores it; the scaling drill evaluates it."""

    resource_type = "AWS::AutoScaling::ScalingPolicy"
    replaced_by = frozenset({"AutoScalingGroupName"})

    def create(self, properties: Properties) -> str:
        """Put the policy under a generated name; its id is its ARN."""
        name = self.generate_name(self.scope)
        return str(self.call("put_scaling_policy", properties, PolicyName=name)["PolicyARN"])

    def update(self, new: Properties) -> None:
        """Put the policy again under its name."""
        self.call("put_scaling_policy", new, PolicyName=_policy_name(self.id))

    def delete(self) -> None:
        """Delete the policy."""
        self.call("delete_policy", self._group(self.properties), PolicyName=_policy_name(self.id))

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and name."""
        return {"Arn": self.id, "PolicyName": _policy_name(self.id)}


def _policy_name(arn: str) -> str:
    return arn.rsplit("policyName/", 1)[1]


class ScheduledAction(_OfGroup):
    """A scheduled change of a group's size."""

    resource_type = "AWS::AutoScaling::ScheduledAction"
    replaced_by = frozenset({"AutoScalingGroupName"})

    def create(self, properties: Properties) -> str:
        """Put the action under a generated name."""
        name = self.generate_name(self.scope)
        self.call("put_scheduled_update_group_action", properties, ScheduledActionName=name)
        return name

    def update(self, new: Properties) -> None:
        """Put the action again."""
        self.call("put_scheduled_update_group_action", new, ScheduledActionName=self.id)

    def delete(self) -> None:
        """Delete the action."""
        self.call("delete_scheduled_action", self._group(self.properties), ScheduledActionName=self.id)


class WarmPool(_OfGroup):
    """A group's warm pool; moto keeps its configuration and launches no instances into it."""

    resource_type = "AWS::AutoScaling::WarmPool"
    replaced_by = frozenset({"AutoScalingGroupName"})

    def create(self, properties: Properties) -> str:
        """Put the pool."""
        self.call("put_warm_pool", properties)
        return f"{properties['AutoScalingGroupName']}/WarmPool"

    def update(self, new: Properties) -> None:
        """Put the pool again."""
        self.call("put_warm_pool", new)

    def delete(self) -> None:
        """Delete the pool."""
        self.call("delete_warm_pool", self._group(self.properties), ForceDelete=True)
