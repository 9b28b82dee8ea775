"""Systems Manager: parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, as_tags, tag_map, without


class Parameter(Adapter):
    """A parameter of the parameter store."""

    resource_type = "AWS::SSM::Parameter"
    service = "ssm"
    name = "Name"
    name_limit = 1011

    def create(self, properties: Properties) -> str:
        """Put the parameter."""
        self.call("put_parameter", properties, Tags=as_tags(tag_map(properties)))
        return str(properties["Name"])

    def update(self, new: Properties) -> None:
        """Put the parameter again; its tags have calls of their own."""
        self.call("put_parameter", without(new, "Tags"), Overwrite=True)
        resource = {"ResourceType": "Parameter", "ResourceId": self.id}
        if gone := sorted(tag_map(self.properties).keys() - tag_map(new).keys()):
            self.call("remove_tags_from_resource", resource, TagKeys=gone)
        if tags := tag_map(new):
            self.call("add_tags_to_resource", resource, Tags=as_tags(tags))

    def delete(self) -> None:
        """Delete the parameter."""
        self.call("delete_parameter", Name=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return type and value."""
        return {"Type": self.properties["Type"], "Value": self.properties["Value"]}
