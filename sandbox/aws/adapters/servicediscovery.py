"""Cloud Map: namespaces and services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class _Namespace(Adapter):
    """Shared by the kinds of namespace."""

    service = "servicediscovery"
    kind: str
    replaced_by = frozenset({"Name", "Vpc"})

    def create(self, properties: Properties) -> str:
        """Create the namespace; the call answers with an operation that names it."""
        started = self.call(f"create_{self.kind}_namespace", properties)
        operation = self.call("get_operation", OperationId=started["OperationId"])["Operation"]
        return str(operation["Targets"]["NAMESPACE"])

    def update(self, new: Properties) -> None:
        """Change the description."""
        namespace = only(new, "Description", "Properties")
        self.call(f"update_{self.kind}_namespace", Id=self.id, Namespace=namespace)

    def delete(self) -> None:
        """Delete the namespace."""
        self.call("delete_namespace", Id=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN, id and hosted zone."""
        namespace = self.call("get_namespace", Id=self.id)["Namespace"]
        zone = namespace.get("Properties", {}).get("DnsProperties", {}).get("HostedZoneId", "")
        return {"Arn": namespace["Arn"], "Id": self.id, "HostedZoneId": zone.rsplit("/", 1)[-1]}


class PrivateDnsNamespace(_Namespace):
    """A namespace that a VPC resolves by DNS."""

    resource_type = "AWS::ServiceDiscovery::PrivateDnsNamespace"
    kind = "private_dns"


class HttpNamespace(_Namespace):
    """A namespace that is read by API only."""

    resource_type = "AWS::ServiceDiscovery::HttpNamespace"
    kind = "http"


class Service(Adapter):
    """A service of a namespace."""

    resource_type = "AWS::ServiceDiscovery::Service"
    service = "servicediscovery"
    name = "Name"
    name_limit = 64
    replaced_by = frozenset({"NamespaceId", "HealthCheckCustomConfig", "Type", "CreatorRequestId"})

    def create(self, properties: Properties) -> str:
        """Create the service."""
        return str(self.call("create_service", properties)["Service"]["Id"])

    def update(self, new: Properties) -> None:
        """Change description, records and health check; routing and namespace stay."""
        changed = only(new, "Description", "HealthCheckConfig")
        if "DnsConfig" in new:
            changed["DnsConfig"] = without(new["DnsConfig"], "NamespaceId", "RoutingPolicy")
        self.call("update_service", Id=self.id, Service=changed)

    def delete(self) -> None:
        """Delete the service."""
        self.call("delete_service", Id=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN, id and name."""
        return only(self.call("get_service", Id=self.id)["Service"], "Arn", "Id", "Name")
