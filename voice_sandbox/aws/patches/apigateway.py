"""API Gateway: integrations through VPC links and with streaming, and patch operations that moto does not support."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.apigateway import models, urls
from moto.apigateway.models import Deployment, DomainName, Integration, VpcLink
from moto.apigateway.responses import APIGatewayResponse
from moto.core.common_models import BaseModel
from moto.core.common_types import TYPE_RESPONSE

from voice_sandbox.aws.patches.base import JsonObject, replace_response_class

# Fields that moto's integrations do not store.
_STORED_FIELDS = ("cacheKeyParameters", "connectionId", "integrationTarget", "responseTransferMode")

PatchableFields = dict[str, tuple[str, Callable[[str], Any]]]


def _parse_bool(text: str) -> bool:
    return text.lower() == "true"


_REST_API_FIELDS: PatchableFields = {
    "/description": ("description", str),
    "/disableExecuteApiEndpoint": ("disableExecuteApiEndpoint", _parse_bool),
    "/name": ("name", str),
}
_VPC_LINK_FIELDS: PatchableFields = {"/description": ("description", str), "/name": ("name", str)}
_DOMAIN_NAME_FIELDS: PatchableFields = {
    "/certificateArn": ("certificate_arn", str),
    "/regionalCertificateArn": ("regional_certificate_arn", str),
    "/securityPolicy": ("security_policy", str),
}


class PatchedIntegration(Integration):
    """An integration that stores the fields that moto drops."""

    extra_fields: JsonObject = {}  # noqa: RUF012 - replaced, never changed

    def to_json(self) -> dict[str, Any]:
        """Return the integration in the API's format."""
        return {**super().to_json(), **self.extra_fields}


class PatchedApiGateway(APIGatewayResponse):
    """moto's API Gateway API, extended with the operations that moto lacks."""

    def put_integration(self) -> TYPE_RESPONSE:
        status, headers, _ = super().put_integration()
        _, _, api, _, resource, _, method = self.path.split("/")[:7]
        integration: Any = self.backend.get_integration(api, resource, method)
        sent = json.loads(self.body)
        integration.extra_fields = {"responseTransferMode": "BUFFERED"} | {
            name: sent[name] for name in _STORED_FIELDS if name in sent
        }
        return status, headers, json.dumps(integration.to_json())

    def update_rest_api(self) -> TYPE_RESPONSE:
        api = self.backend.get_rest_api(self._read_resource_id())
        for patch in self._get_param("patchOperations"):
            if patch["path"].startswith("/endpointConfiguration/types/"):
                api.endpoint_configuration["types"] = [patch["value"]]
            else:
                _apply_operation(api, patch, _REST_API_FIELDS)
        return 200, {}, json.dumps(api.to_dict())

    def update_deployment(self) -> TYPE_RESPONSE:
        _, _, api, _, deployment = self.path.split("/")[:5]
        stored = self.backend.get_deployment(api, deployment)
        return self._apply_patch(stored, {"/description": ("description", str)})

    def update_vpc_link(self) -> TYPE_RESPONSE:
        link = self.backend.get_vpc_link(self._read_resource_id())
        return self._apply_patch(link, _VPC_LINK_FIELDS)

    def update_domain_name(self) -> TYPE_RESPONSE:
        return self._apply_patch(self.backend.get_domain_name(self._read_resource_id()), _DOMAIN_NAME_FIELDS)

    def _apply_patch(self, model: VpcLink | DomainName | Deployment, fields: PatchableFields) -> TYPE_RESPONSE:
        for patch in self._get_param("patchOperations"):
            _apply_operation(model, patch, fields)
        return 200, {}, json.dumps(model.to_json())

    def _read_resource_id(self) -> str:
        return self.path.strip("/").split("/")[1]


def _apply_operation(model: BaseModel, patch: dict[str, str], fields: PatchableFields) -> None:
    if patch["path"] not in fields:
        raise NotImplementedError(f"API Gateway: the sandbox does not support a patch of {patch['path']}")
    attribute, convert = fields[patch["path"]]
    setattr(model, attribute, convert(patch.get("value", "")))


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, APIGatewayResponse, PatchedApiGateway)
    module: Any = models
    module.Integration = PatchedIntegration
