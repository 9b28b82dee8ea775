"""API Gateway: methods with their integrations, and nested properties that a single patch path cannot express."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, build_patch, omit_keys, select_keys


class Method(Adapter):
    """A method on a resource with its integration and its responses."""

    def configure(self, before: Properties, after: Properties) -> None:  # noqa: ARG002 - a method is always recreated
        """Create the method's responses and integration."""
        for response in after.get("MethodResponses", []):
            self.call_on_resource("put_method_response", after, response)
        if integration := after.get("Integration"):
            # A method's own HttpMethod differs from that of its integration.
            method_id = {"restApiId": after["RestApiId"], "resourceId": after["ResourceId"]}
            self.call(
                "put_integration",
                omit_keys(integration, "IntegrationResponses"),
                method_id,
                httpMethod=after["HttpMethod"],
            )
            for response in integration.get("IntegrationResponses", []):
                self.call_on_resource("put_integration_response", after, response)


class RestApi(Adapter):
    """A REST API whose paths and methods are separate resources in the template."""

    def build_patch_operations(self, before: Properties, after: Properties) -> list[dict[str, str]]:
        """Return the patch operations, including the one that changes the endpoint type."""
        current, desired = _get_endpoint_type(before), _get_endpoint_type(after)
        return super().build_patch_operations(before, after) + build_patch(
            {"type": current}, {"type": desired}, {"type": f"/endpointConfiguration/types/{current}"}
        )


def _get_endpoint_type(properties: Properties) -> str:
    return str(properties.get("EndpointConfiguration", {}).get("Types", ["EDGE"])[0])


# Patch path for each property of a method setting.
_METHOD_SETTING_PATHS = {
    "CacheDataEncrypted": "caching/dataEncrypted",
    "CacheTtlInSeconds": "caching/ttlInSeconds",
    "CachingEnabled": "caching/enabled",
    "DataTraceEnabled": "logging/dataTrace",
    "LoggingLevel": "logging/loglevel",
    "MetricsEnabled": "metrics/enabled",
    "ThrottlingBurstLimit": "throttling/burstLimit",
    "ThrottlingRateLimit": "throttling/rateLimit",
}
_ACCESS_LOG_PATHS = {"DestinationArn": "/accessLogSettings/destinationArn", "Format": "/accessLogSettings/format"}


class Stage(Adapter):
    """A stage. A method setting that a template no longer contains remains set."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Patch the access log and the method settings, which the create operation does not support."""
        current, desired = before.get("AccessLogSetting", {}), after.get("AccessLogSetting", {})
        operations = build_patch(current, desired, _ACCESS_LOG_PATHS) if desired else []
        if current and not desired:
            operations = [{"op": "remove", "path": "/accessLogSettings"}]
        for setting in after.get("MethodSettings", []):
            if setting not in before.get("MethodSettings", []):
                path = setting.get("ResourcePath", "/*").removeprefix("/").replace("/", "~1")
                setting_path = f"/{path if path == '*' else '~1' + path}/{setting.get('HttpMethod', '*')}"
                named = {name: f"{setting_path}/{suffix}" for name, suffix in _METHOD_SETTING_PATHS.items()}
                operations += build_patch({}, setting, select_keys(named, *setting))
        if operations:
            self.call_on_resource("update_stage", after, {"patchOperations": operations})
