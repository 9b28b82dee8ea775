"""KMS: keys and aliases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, tag_map
from sandbox.aws.shapes import Json


class Key(Adapter):
    """A key. Its deletion schedules the key's end, as in AWS: it stays in the state PendingDeletion."""

    resource_type = "AWS::KMS::Key"
    service = "kms"
    replaced_by = frozenset({"KeySpec", "KeyUsage", "MultiRegion", "Origin"})
    _created_with = ("Description", "KeySpec", "KeyUsage", "MultiRegion", "Origin", "BypassPolicyLockoutSafetyCheck")

    def create(self, properties: Properties) -> str:
        """Create the key, then set its policy, rotation and state."""
        made = self.call("create_key", only(properties, *self._created_with), Tags=_tags(tag_map(properties)))
        key_id = self.begin(made["KeyMetadata"]["KeyId"])
        self.update(properties)
        return key_id

    def update(self, new: Properties) -> None:
        """Set description, policy, rotation and state."""
        self.call("update_key_description", KeyId=self.id, Description=new.get("Description", ""))
        if "KeyPolicy" in new:
            self.call("put_key_policy", KeyId=self.id, PolicyName="default", Policy=new["KeyPolicy"])
        if _true(new.get("EnableKeyRotation")):
            self.call("enable_key_rotation", only(new, "RotationPeriodInDays"), KeyId=self.id)
        elif _true(self.properties.get("EnableKeyRotation")):
            self.call("disable_key_rotation", KeyId=self.id)
        was, shall_be = _true(self.properties.get("Enabled", True)), _true(new.get("Enabled", True))
        if was != shall_be:
            self.call("enable_key" if shall_be else "disable_key", KeyId=self.id)

    def delete(self) -> None:
        """Schedule the key's deletion."""
        self.call("schedule_key_deletion", only(self.properties, "PendingWindowInDays"), KeyId=self.id)

    def retag(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Set the tags; KMS has names of its own for their parts."""
        if gone := sorted(before.keys() - after.keys()):
            self.call("untag_resource", KeyId=self.id, TagKeys=gone)
        self.call("tag_resource", KeyId=self.id, Tags=_tags(after))

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and id."""
        return only(self.call("describe_key", KeyId=self.id)["KeyMetadata"], "Arn", "KeyId")


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"TagKey": key, "TagValue": value} for key, value in tags.items()]


def _true(value: Json) -> bool:
    return str(value).lower() == "true"


class Alias(Adapter):
    """A key's alias."""

    resource_type = "AWS::KMS::Alias"
    service = "kms"
    replaced_by = frozenset({"AliasName"})

    def create(self, properties: Properties) -> str:
        """Create the alias."""
        self.call("create_alias", properties)
        return str(properties["AliasName"])

    def update(self, new: Properties) -> None:
        """Point the alias at another key."""
        self.call("update_alias", new)

    def delete(self) -> None:
        """Delete the alias."""
        self.call("delete_alias", AliasName=self.id)
