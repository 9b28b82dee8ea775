"""WAF: web ACLs, IP sets, associations and logging. moto stores rules and filters nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class _Named(Adapter):
    """Shared by what WAF addresses by name, scope and id, and guards by a lock token."""

    service = "wafv2"
    name = "Name"
    replaced_by = frozenset({"Scope"})
    kind: str  # in the operations' names
    key: str  # in their answers

    def create(self, properties: Properties) -> str:
        """Create it."""
        made = self.call(f"create_{self.kind}", properties)["Summary"]
        return f"{made['Name']}|{made['Id']}|{properties['Scope']}"

    def update(self, new: Properties) -> None:
        """Change it."""
        self.call(f"update_{self.kind}", without(new, "Tags"), self._locked())

    def delete(self) -> None:
        """Delete it."""
        self.call(f"delete_{self.kind}", self._locked())

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN, id and what the kind adds to them."""
        found = self.call(f"get_{self.kind}", _address(self.id))[self.key]
        return {"Arn": found["ARN"], "Id": found["Id"], **only(found, "Capacity", "LabelNamespace")}

    def _locked(self) -> dict[str, str]:
        token = self.call(f"get_{self.kind}", _address(self.id))["LockToken"]
        return {**_address(self.id), "LockToken": token}


def _address(physical_id: str) -> dict[str, str]:
    name, identifier, scope = physical_id.split("|")
    return {"Name": name, "Id": identifier, "Scope": scope}


class WebAcl(_Named):
    """A web ACL."""

    resource_type = "AWS::WAFv2::WebACL"
    kind = "web_acl"
    key = "WebACL"


class IpSet(_Named):
    """A set of address ranges."""

    resource_type = "AWS::WAFv2::IPSet"
    kind = "ip_set"
    key = "IPSet"
    replaced_by = frozenset({"Scope", "IPAddressVersion"})

    def update(self, new: Properties) -> None:
        """Change description and addresses."""
        self.call("update_ip_set", only(new, "Description", "Addresses"), self._locked())


class WebAclAssociation(Adapter):
    """The association of a web ACL with what it protects."""

    resource_type = "AWS::WAFv2::WebACLAssociation"
    service = "wafv2"

    def create(self, properties: Properties) -> str:
        """Associate them."""
        self.call("associate_web_acl", properties)
        return f"{properties['WebACLArn']}|{properties['ResourceArn']}"

    def delete(self) -> None:
        """Dissociate them."""
        self.call("disassociate_web_acl", only(self.properties, "ResourceArn"))


class LoggingConfiguration(Adapter):
    """Where a web ACL writes its log."""

    resource_type = "AWS::WAFv2::LoggingConfiguration"
    service = "wafv2"
    replaced_by = frozenset({"ResourceArn"})

    def create(self, properties: Properties) -> str:
        """Put the configuration."""
        self.update(properties)
        return str(properties["ResourceArn"])

    def update(self, new: Properties) -> None:
        """Put the configuration again."""
        self.call("put_logging_configuration", LoggingConfiguration=new)

    def delete(self) -> None:
        """Delete the configuration."""
        self.call("delete_logging_configuration", ResourceArn=self.id)
