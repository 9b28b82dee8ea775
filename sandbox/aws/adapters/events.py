"""EventBridge: rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class Rule(Adapter):
    """A rule with its targets; moto keeps both and delivers events only to some targets."""

    resource_type = "AWS::Events::Rule"
    service = "events"
    name = "Name"
    name_limit = 64
    replaced_by = frozenset({"EventBusName"})

    def create(self, properties: Properties) -> str:
        """Put the rule and its targets."""
        self.call("put_rule", without(properties, "Targets"))
        name = self.begin(str(properties["Name"]))
        self._aim(properties)
        return name

    def update(self, new: Properties) -> None:
        """Put the rule and its targets again."""
        self.call("put_rule", without(new, "Targets", "Tags"))
        self._aim(new)

    def delete(self) -> None:
        """Delete the rule after its targets."""
        self._aim(without(self.properties, "Targets"))
        self.call("delete_rule", only(self.properties, "EventBusName"), Name=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return only(self.call("describe_rule", only(self.properties, "EventBusName"), Name=self.id), "Arn")

    def _aim(self, new: Properties) -> None:
        bus = only(new, "EventBusName")
        kept = {target["Id"] for target in new.get("Targets", [])}
        if gone := [target["Id"] for target in self.properties.get("Targets", []) if target["Id"] not in kept]:
            self.call("remove_targets", bus, Rule=self.id, Ids=gone)
        if targets := new.get("Targets"):
            self.call("put_targets", bus, Rule=self.id, Targets=targets)
