"""API Gateway: a REST API with its resources, methods, models and responses. Nothing answers behind its URL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, Scope, only, without
from sandbox.aws.shapes import Json


def patches(old: Properties, new: Properties, paths: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the patch operations that bring properties from old to new.

    Args:
        old: Properties before.
        new: Properties after.
        paths: The path of each property that can be patched.
    """
    return [
        {"op": "replace", "path": path, "value": as_text(new.get(name, ""))}
        for name, path in paths.items()
        if old.get(name) != new.get(name)
    ]


def as_text(value: Json) -> str:
    """Return a value as patch operations carry it."""
    return value if isinstance(value, str) else json.dumps(value)


class ApiGateway(Adapter):
    """Shared by API Gateway's types."""

    service = "apigateway"
    arn_path: str = ""

    def tag_target(self) -> str:
        """Return the ARN."""
        return f"arn:aws:apigateway:{self.scope.region}::/{self.arn_path}/{self.id}"


class RestApi(ApiGateway):
    """A REST API that its template describes resource by resource; an OpenAPI body is refused."""

    resource_type = "AWS::ApiGateway::RestApi"
    arn_path = "restapis"
    name = "Name"
    renames = True
    _paths = {  # noqa: RUF012 - a constant
        "ApiKeySourceType": "/apiKeySource",
        "Description": "/description",
        "DisableExecuteApiEndpoint": "/disableExecuteApiEndpoint",
        "MinimumCompressionSize": "/minimumCompressionSize",
        "Name": "/name",
        "Policy": "/policy",
    }

    def create(self, properties: Properties) -> str:
        """Create the API."""
        renamed = {"ApiKeySource" if key == "ApiKeySourceType" else key: value for key, value in properties.items()}
        api = str(self.call("create_rest_api", without(renamed, "BinaryMediaTypes"))["id"])
        self.begin(api)
        self.properties = properties | {"BinaryMediaTypes": []}  # which the call above does not take
        self.update(properties)
        return api

    def update(self, new: Properties) -> None:
        """Patch the API."""
        operations = patches(self.properties, new, self._paths)
        before, after = self.properties.get("BinaryMediaTypes", []), new.get("BinaryMediaTypes", [])
        for operation, kinds in (("remove", before), ("add", after)):
            unmatched = [kind for kind in kinds if not (kind in before and kind in after)]
            operations += [
                {"op": operation, "path": f"/binaryMediaTypes/{kind.replace('/', '~1')}"} for kind in unmatched
            ]
        if _endpoint(new) != _endpoint(self.properties):
            path = f"/endpointConfiguration/types/{_endpoint(self.properties)}"
            operations.append({"op": "replace", "path": path, "value": _endpoint(new)})
        if operations:
            self.call("update_rest_api", restApiId=self.id, patchOperations=operations)

    def delete(self) -> None:
        """Delete the API."""
        self.call("delete_rest_api", restApiId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return id and root resource."""
        api = self.call("get_rest_api", restApiId=self.id)
        return {"RestApiId": self.id, "RootResourceId": api["rootResourceId"]}


def _endpoint(properties: Properties) -> str:
    return str(properties.get("EndpointConfiguration", {}).get("Types", ["EDGE"])[0])


class Resource(ApiGateway):
    """A path of the API."""

    resource_type = "AWS::ApiGateway::Resource"

    def create(self, properties: Properties) -> str:
        """Create the resource."""
        return str(self.call("create_resource", properties)["id"])

    def delete(self) -> None:
        """Delete the resource."""
        self.call("delete_resource", restApiId=self.properties["RestApiId"], resourceId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"ResourceId": self.id}


class Method(ApiGateway):
    """A method of a resource with its integration and its responses."""

    resource_type = "AWS::ApiGateway::Method"
    _place = ("RestApiId", "ResourceId", "HttpMethod")
    replaced_by = frozenset(_place)

    def create(self, properties: Properties) -> str:
        """Put the method, then its integration and responses."""
        place = only(properties, *self._place)
        self.call("put_method", without(properties, "Integration", "MethodResponses"))
        physical_id = self.begin("-".join(place.values()))
        for response in properties.get("MethodResponses", []):
            self.call("put_method_response", place, response)
        if integration := properties.get("Integration"):
            renamed = {"httpMethod" if key == "HttpMethod" else key: value for key, value in integration.items()}
            self.call("put_integration", without(renamed, "IntegrationResponses"), place)
            for response in integration.get("IntegrationResponses", []):
                self.call("put_integration_response", place, response)
        return physical_id

    def update(self, new: Properties) -> None:
        """Put everything again in place of what was there."""
        self.delete()
        self.create(new)

    def delete(self) -> None:
        """Delete the method with all that belongs to it."""
        self.call("delete_method", only(self.properties, *self._place))


class RequestValidator(ApiGateway):
    """What API Gateway checks of a request."""

    resource_type = "AWS::ApiGateway::RequestValidator"
    replaced_by = frozenset({"Name", "RestApiId"})
    _paths = {  # noqa: RUF012 - a constant
        "ValidateRequestBody": "/validateRequestBody",
        "ValidateRequestParameters": "/validateRequestParameters",
    }

    def create(self, properties: Properties) -> str:
        """Create the validator."""
        return str(self.call("create_request_validator", properties)["id"])

    def update(self, new: Properties) -> None:
        """Patch the validator."""
        self.call("update_request_validator", self._named(), patchOperations=patches(self.properties, new, self._paths))

    def delete(self) -> None:
        """Delete the validator."""
        self.call("delete_request_validator", self._named())

    def _named(self) -> dict[str, str]:
        return {"restApiId": self.properties["RestApiId"], "requestValidatorId": self.id}


class Model(ApiGateway):
    """The schema of a body."""

    resource_type = "AWS::ApiGateway::Model"
    name = "Name"
    replaced_by = frozenset({"ContentType", "RestApiId"})

    def create(self, properties: Properties) -> str:
        """Create the model."""
        self.call("create_model", {"ContentType": "application/json"}, properties)
        return str(properties["Name"])

    def update(self, new: Properties) -> None:
        """Create the model anew under its name: moto cannot change one."""
        self.delete()
        self.create(new)

    def delete(self) -> None:
        """Delete the model."""
        self.call("delete_model", restApiId=self.properties["RestApiId"], modelName=self.id)

    @classmethod
    def generate_name(cls, scope: Scope) -> str:
        """Make up a name of letters and digits, which is all that a model's name may hold."""
        return super().generate_name(scope).replace("-", "")


class GatewayResponse(ApiGateway):
    """What API Gateway answers by itself."""

    resource_type = "AWS::ApiGateway::GatewayResponse"
    replaced_by = frozenset({"ResponseType", "RestApiId"})

    def create(self, properties: Properties) -> str:
        """Put the response."""
        self.update(properties)
        return f"{properties['RestApiId']}-{properties['ResponseType']}"

    def update(self, new: Properties) -> None:
        """Put the response again."""
        self.call("put_gateway_response", new)

    def delete(self) -> None:
        """Delete the response."""
        self.call("delete_gateway_response", only(self.properties, "RestApiId", "ResponseType"))


class Authorizer(ApiGateway):
    """What decides whether a caller may call."""

    resource_type = "AWS::ApiGateway::Authorizer"

    def create(self, properties: Properties) -> str:
        """Create the authorizer."""
        return str(self.call("create_authorizer", properties)["id"])

    def delete(self) -> None:
        """Delete the authorizer."""
        self.call("delete_authorizer", restApiId=self.properties["RestApiId"], authorizerId=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the id."""
        return {"AuthorizerId": self.id}
