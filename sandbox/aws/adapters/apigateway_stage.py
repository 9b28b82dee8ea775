"""API Gateway: what stands before a REST API - deployments, stages, usage plans, keys, domains, VPC links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.apigateway import ApiGateway, as_text, patches
from sandbox.aws.adapters.base import Properties, only, without


class Deployment(ApiGateway):
    """A deployment; the CDK gives each change of the API a new one."""

    resource_type = "AWS::ApiGateway::Deployment"
    replaced_by = frozenset({"DeploymentCanarySettings", "RestApiId", "StageDescription", "StageName"})

    def create(self, properties: Properties) -> str:
        """Create the deployment."""
        return str(self.call("create_deployment", without(properties, "StageDescription"))["id"])

    def update(self, new: Properties) -> None:
        """Patch the description."""
        operations = patches(self.properties, new, {"Description": "/description"})
        place = {"restApiId": new["RestApiId"], "deploymentId": self.id}
        self.call("update_deployment", place, patchOperations=operations)

    def delete(self) -> None:
        """Delete the deployment."""
        self.call("delete_deployment", restApiId=self.properties["RestApiId"], deploymentId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"DeploymentId": self.id}


# A method setting's property -> where a patch finds it.
_METHOD_SETTINGS = {
    "CacheDataEncrypted": "caching/dataEncrypted",
    "CacheTtlInSeconds": "caching/ttlInSeconds",
    "CachingEnabled": "caching/enabled",
    "DataTraceEnabled": "logging/dataTrace",
    "LoggingLevel": "logging/loglevel",
    "MetricsEnabled": "metrics/enabled",
    "ThrottlingBurstLimit": "throttling/burstLimit",
    "ThrottlingRateLimit": "throttling/rateLimit",
}


class Stage(ApiGateway):
    """A stage. Not represented: canaries, client certificates; a method setting that goes stays set."""

    resource_type = "AWS::ApiGateway::Stage"
    name = "StageName"
    replaced_by = frozenset({"RestApiId"})
    _patched = ("AccessLogSetting", "MethodSettings", "CanarySetting", "ClientCertificateId")
    _paths = {  # noqa: RUF012 - a constant
        "CacheClusterEnabled": "/cacheClusterEnabled",
        "CacheClusterSize": "/cacheClusterSize",
        "DeploymentId": "/deploymentId",
        "Description": "/description",
        "TracingEnabled": "/tracingEnabled",
    }

    def create(self, properties: Properties) -> str:
        """Create the stage, then patch what its creation does not take."""
        self.call("create_stage", without(properties, *self._patched))
        name = self.begin(str(properties["StageName"]))
        self.properties = without(properties, *self._patched)
        self.update(properties)
        return name

    def update(self, new: Properties) -> None:
        """Patch the stage."""
        operations = patches(self.properties, new, self._paths)
        for name in ("DestinationArn", "Format"):
            before, after = (item.get("AccessLogSetting", {}).get(name) for item in (self.properties, new))
            if after and before != after:
                path = f"/accessLogSettings/{name[0].lower()}{name[1:]}"
                operations.append({"op": "replace", "path": path, "value": after})
        if "AccessLogSetting" in self.properties and "AccessLogSetting" not in new:
            operations.append({"op": "remove", "path": "/accessLogSettings"})
        before, after = self.properties.get("Variables", {}), new.get("Variables", {})
        operations += [{"op": "remove", "path": f"/variables/{key}"} for key in before.keys() - after.keys()]
        operations += [
            {"op": "replace", "path": f"/variables/{key}", "value": value}
            for key, value in after.items()
            if before.get(key) != value
        ]
        operations += _method_settings(self.properties, new)
        if operations:
            self.call("update_stage", restApiId=new["RestApiId"], stageName=self.id, patchOperations=operations)

    def delete(self) -> None:
        """Delete the stage."""
        self.call("delete_stage", restApiId=self.properties["RestApiId"], stageName=self.id)

    def tag_target(self) -> str:
        """Return the ARN."""
        return f"arn:aws:apigateway:{self.scope.region}::/restapis/{self.properties['RestApiId']}/stages/{self.id}"


def _method_settings(old: Properties, new: Properties) -> list[dict[str, str]]:
    operations = []
    for setting in new.get("MethodSettings", []):
        if setting in old.get("MethodSettings", []):
            continue
        path = setting.get("ResourcePath", "/*").removeprefix("/").replace("/", "~1")
        place = f"/{path if path == '*' else '~1' + path}/{setting.get('HttpMethod', '*')}"
        operations += [
            {"op": "replace", "path": f"{place}/{where}", "value": as_text(setting[name])}
            for name, where in _METHOD_SETTINGS.items()
            if name in setting
        ]
    return operations


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


class Account(ApiGateway):
    """The account's role for writing logs; its deletion leaves the role set, as in AWS."""

    resource_type = "AWS::ApiGateway::Account"

    def create(self, properties: Properties) -> str:
        """Set the role."""
        self.update(properties)
        return self.generate_name(self.scope)

    def update(self, new: Properties) -> None:
        """Set the role again."""
        operations = patches({}, new, {"CloudWatchRoleArn": "/cloudwatchRoleArn"})
        self.call("update_account", patchOperations=operations)

    def delete(self) -> None:
        """Leave the role set."""


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
