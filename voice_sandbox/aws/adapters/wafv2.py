"""WAF: web ACLs and their logging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter, Properties


class WebAcl(Adapter):
    """A web ACL, which WAF identifies by name, scope and id, and protects with a lock token."""

    def build_identifying_arguments(self, properties: Properties) -> dict[str, Any]:  # noqa: ARG002 - all of it is in the id
        """Return the identifying arguments with the current lock token."""
        name, identifier, scope = self.id.split("|")
        acl_id = {"Name": name, "Id": identifier, "Scope": scope}
        return {**acl_id, "LockToken": self.call("get_web_acl", acl_id)["LockToken"]}

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"Arn": self.call_on_resource("get_web_acl", self.properties)["WebACL"]["ARN"]}

    def get_tag_resource_id(self) -> str:
        """Return the ARN."""
        return str(self.get_attributes()["Arn"])


class LoggingConfiguration(Adapter):
    """The logging configuration for a web ACL."""

    def translate(self, properties: Properties) -> Properties:
        """Wrap the properties in the single argument that the API accepts."""
        return {"LoggingConfiguration": properties}
