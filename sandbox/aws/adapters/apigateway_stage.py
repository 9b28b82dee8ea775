"""API Gateway: deployments, stages, and the account's role for their logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.apigateway import ApiGateway, as_text, patches
from sandbox.aws.adapters.base import Properties, without


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
