"""Application Auto Scaling: scalable targets and their policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without

_TARGET = ("ResourceId", "ScalableDimension", "ServiceNamespace")


class ScalableTarget(Adapter):
    """Something with a capacity that can be scaled."""

    resource_type = "AWS::ApplicationAutoScaling::ScalableTarget"
    service = "application-autoscaling"
    replaced_by = frozenset(_TARGET)

    def create(self, properties: Properties) -> str:
        """Register the target."""
        self.update(properties)
        return "|".join(properties[name] for name in _TARGET)

    def update(self, new: Properties) -> None:
        """Register the target again, and its scheduled actions."""
        self.call("register_scalable_target", without(new, "ScheduledActions"))
        target = only(new, *_TARGET)
        names = {action["ScheduledActionName"] for action in new.get("ScheduledActions", [])}
        for action in self.properties.get("ScheduledActions", []):
            if action["ScheduledActionName"] not in names:
                self.call("delete_scheduled_action", target, only(action, "ScheduledActionName"))
        for action in new.get("ScheduledActions", []):
            self.call("put_scheduled_action", target, action)

    def delete(self) -> None:
        """Deregister the target."""
        self.call("deregister_scalable_target", only(self.properties, *_TARGET))

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"Id": self.id}


class ScalingPolicy(Adapter):
    """A policy of a scalable target. Not represented: predictive scaling."""

    resource_type = "AWS::ApplicationAutoScaling::ScalingPolicy"
    service = "application-autoscaling"
    replaced_by = frozenset({"PolicyName", "ScalingTargetId", *_TARGET})

    def create(self, properties: Properties) -> str:
        """Put the policy; its id is its ARN."""
        return str(self.call("put_scaling_policy", self._placed(properties))["PolicyARN"])

    def update(self, new: Properties) -> None:
        """Put the policy again."""
        self.call("put_scaling_policy", self._placed(new))

    def delete(self) -> None:
        """Delete the policy."""
        self.call("delete_scaling_policy", only(self._placed(self.properties), "PolicyName", *_TARGET))

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"Arn": self.id}

    @staticmethod
    def _placed(properties: Properties) -> Properties:
        target = properties.get("ScalingTargetId")
        named = dict(zip(_TARGET, target.split("|"), strict=True)) if target else {}
        return {**without(properties, "ScalingTargetId"), **named}
