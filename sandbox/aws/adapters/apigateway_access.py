"""API Gateway: who may call how much, under which name, and how a call gets into a VPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.apigateway import ApiGateway, patches
from sandbox.aws.adapters.base import Properties, only, without


class VpcLink(ApiGateway):
    """The way from API Gateway into a VPC."""

    resource_type = "AWS::ApiGateway::VpcLink"
    arn_path = "vpclinks"
    replaced_by = frozenset({"TargetArns"})

    def create(self, properties: Properties) -> str:
        """Create the link."""
        return str(self.call("create_vpc_link", properties)["id"])

    def update(self, new: Properties) -> None:
        """Patch name and description."""
        operations = patches(self.properties, new, {"Name": "/name", "Description": "/description"})
        self.call("update_vpc_link", vpcLinkId=self.id, patchOperations=operations)

    def delete(self) -> None:
        """Delete the link."""
        self.call("delete_vpc_link", vpcLinkId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"VpcLinkId": self.id}


class UsagePlan(ApiGateway):
    """How much a key may call."""

    resource_type = "AWS::ApiGateway::UsagePlan"
    arn_path = "usageplans"
    name = "UsagePlanName"
    renames = True

    def create(self, properties: Properties) -> str:
        """Create the plan."""
        renamed = {"name" if key == "UsagePlanName" else key: value for key, value in properties.items()}
        return str(self.call("create_usage_plan", renamed)["id"])

    def update(self, new: Properties) -> None:
        """Patch description, limits and stages."""
        operations = patches(self.properties, new, {"Description": "/description", "UsagePlanName": "/name"})
        for group, names in (("Throttle", ("RateLimit", "BurstLimit")), ("Quota", ("Limit", "Period", "Offset"))):
            paths = {name: f"/{group.lower()}/{name[0].lower()}{name[1:]}" for name in names}
            if group in new:
                operations += patches(self.properties.get(group, {}), new[group], paths)
            elif group in self.properties:
                operations.append({"op": "remove", "path": f"/{group.lower()}"})
        before, after = self.properties.get("ApiStages", []), new.get("ApiStages", [])
        for operation, stages in (("remove", before), ("add", after)):
            moved = [stage for stage in stages if not (stage in before and stage in after)]
            operations += [
                {"op": operation, "path": "/apiStages", "value": f"{stage['ApiId']}:{stage['Stage']}"}
                for stage in moved
            ]
        self.call("update_usage_plan", usagePlanId=self.id, patchOperations=operations)

    def delete(self) -> None:
        """Delete the plan."""
        self.call("delete_usage_plan", usagePlanId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"Id": self.id}


class ApiKey(ApiGateway):
    """A caller's key."""

    resource_type = "AWS::ApiGateway::ApiKey"
    arn_path = "apikeys"
    name = "Name"
    replaced_by = frozenset({"GenerateDistinctId", "Value"})

    def create(self, properties: Properties) -> str:
        """Create the key."""
        return str(self.call("create_api_key", properties)["id"])

    def update(self, new: Properties) -> None:
        """Patch description and state."""
        operations = patches(self.properties, new, {"Description": "/description", "Enabled": "/enabled"})
        self.call("update_api_key", apiKey=self.id, patchOperations=operations)

    def delete(self) -> None:
        """Delete the key."""
        self.call("delete_api_key", apiKey=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"APIKeyId": self.id}


class UsagePlanKey(ApiGateway):
    """A key's place in a usage plan."""

    resource_type = "AWS::ApiGateway::UsagePlanKey"

    def create(self, properties: Properties) -> str:
        """Put the key into the plan."""
        self.call("create_usage_plan_key", properties)
        return f"{properties['KeyId']}:{properties['UsagePlanId']}"

    def delete(self) -> None:
        """Take the key out of the plan."""
        self.call("delete_usage_plan_key", only(self.properties, "UsagePlanId", "KeyId"))

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"Id": self.id}


class DomainName(ApiGateway):
    """A domain of one's own."""

    resource_type = "AWS::ApiGateway::DomainName"
    arn_path = "domainnames"
    replaced_by = frozenset({"DomainName", "EndpointConfiguration"})
    _paths = {  # noqa: RUF012 - a constant
        "CertificateArn": "/certificateArn",
        "RegionalCertificateArn": "/regionalCertificateArn",
        "SecurityPolicy": "/securityPolicy",
    }

    def create(self, properties: Properties) -> str:
        """Create the domain."""
        self.call("create_domain_name", properties)
        return str(properties["DomainName"])

    def update(self, new: Properties) -> None:
        """Patch certificate and policy."""
        self.call("update_domain_name", domainName=self.id, patchOperations=patches(self.properties, new, self._paths))

    def delete(self) -> None:
        """Delete the domain."""
        self.call("delete_domain_name", domainName=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the names behind the domain."""
        domain = self.call("get_domain_name", domainName=self.id)
        return {
            "DomainNameArn": self.tag_target(),
            "RegionalDomainName": domain.get("regionalDomainName"),
            "RegionalHostedZoneId": domain.get("regionalHostedZoneId"),
            "DistributionDomainName": domain.get("distributionDomainName"),
            "DistributionHostedZoneId": domain.get("distributionHostedZoneId"),
        }


class BasePathMapping(ApiGateway):
    """Which stage answers under a path of a domain."""

    resource_type = "AWS::ApiGateway::BasePathMapping"
    replaced_by = frozenset({"BasePath", "DomainName"})

    def create(self, properties: Properties) -> str:
        """Create the mapping."""
        self.call("create_base_path_mapping", without(properties, "Id"))
        return f"{properties['DomainName']}|{properties.get('BasePath', '')}"

    def update(self, new: Properties) -> None:
        """Point the path at another API or stage."""
        operations = patches(self.properties, new, {"RestApiId": "/restapiId", "Stage": "/stage"})
        self.call("update_base_path_mapping", self._place(), patchOperations=operations)

    def delete(self) -> None:
        """Delete the mapping."""
        self.call("delete_base_path_mapping", self._place())

    def _place(self) -> dict[str, str]:
        return {
            "domainName": self.properties["DomainName"],
            "basePath": self.properties.get("BasePath") or "(none)",
        }
