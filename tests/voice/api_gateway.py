"""API Gateway between a page and the gateway process, according to the deployed API.

The local AWS stores an API without serving it. This module serves it from its definition: routes, authorizers, required
parameters, models, integrations, errors and their headers.
"""

import json
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
import jsonschema
import uvicorn
from botocore.client import BaseClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from voice_ops.demo.services import LOOPBACK
from voice_sandbox.loopback import find_free_port

VERBS = ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"]
HOP_BY_HOP = {"connection", "host", "keep-alive", "transfer-encoding"}
REFUSED = {
    "MISSING_AUTHENTICATION_TOKEN": (403, "Missing Authentication Token"),
    "INVALID_API_KEY": (403, "Forbidden"),
    "BAD_REQUEST_PARAMETERS": (400, "Missing required request parameters"),
    "BAD_REQUEST_BODY": (400, "Invalid request body"),
}
"""Default responses of API Gateway: status and message unless the API overrides them."""


class RefusedError(Exception):
    """A refused request; the argument is the type of API Gateway's response."""


@dataclass(frozen=True)
class Method:
    """A method of the API, and the pattern of its path."""

    path: re.Pattern[str]
    described: dict[str, Any]


class ApiGateway:
    """Serve the only API of an account in a thread.

    Args:
        client: Client of that account's API Gateway.
        gateway_url: URL of the gateway process, which replaces the load balancer of the VPC link.

    Attributes:
        url: Address of the API for callers.
        asked: Method and path of all requests.
    """

    def __init__(self, client: BaseClient, gateway_url: str) -> None:
        api: Any = client
        self.asked: list[tuple[str, str]] = []
        (self._id,) = (item["id"] for item in api.get_rest_apis()["items"])
        self._methods = [
            (verb, Method(re.compile(re.sub(r"\{(\w+)}", r"(?P<\1>[^/]+)", resource["path"])), method))
            for resource in api.get_resources(restApiId=self._id, embed=["methods"], limit=100)["items"]
            for verb, method in resource.get("resourceMethods", {}).items()
        ]
        self._models = {
            name: json.loads(api.get_model(restApiId=self._id, modelName=name)["schema"])
            for _, method in self._methods
            for name in method.described.get("requestModels", {}).values()
        }
        self._refusals = {item["responseType"]: item for item in api.get_gateway_responses(restApiId=self._id)["items"]}
        self._gateway_url = gateway_url
        self._port = find_free_port()
        self.url = f"http://localhost:{self._port}"

    def __enter__(self) -> Self:
        app = Starlette(routes=[Route("/{path:path}", self._serve, methods=VERBS)])
        self._server = uvicorn.Server(
            uvicorn.Config(app, host=LOOPBACK, port=self._port, log_level="warning", lifespan="off")
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    async def _serve(self, request: Request) -> Response:
        self.asked.append((request.method, request.url.path))
        try:
            method, values = self._method(request)
            body = await request.body()
            self._admit(request, method, body)
        except RefusedError as error:
            return self._refuse(str(error))
        return await self._pass_on(request, method["methodIntegration"], values, body)

    def _method(self, request: Request) -> tuple[dict[str, Any], dict[str, str]]:
        for verb, method in self._methods:
            found = method.path.fullmatch(request.url.path)
            if found and verb == request.method:
                return method.described, found.groupdict()
        raise RefusedError("MISSING_AUTHENTICATION_TOKEN")

    def _admit(self, request: Request, method: dict[str, Any], body: bytes) -> None:
        signed = request.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 ")
        if method["authorizationType"] == "AWS_IAM" and not signed:
            raise RefusedError("MISSING_AUTHENTICATION_TOKEN")
        if method["apiKeyRequired"] and "x-api-key" not in request.headers:
            raise RefusedError("INVALID_API_KEY")
        for name, is_required in (method.get("requestParameters") or {}).items():
            _, _, kind, parameter = name.split(".", 3)
            if is_required and kind == "header" and parameter not in request.headers:
                raise RefusedError("BAD_REQUEST_PARAMETERS")
        for model in (method.get("requestModels") or {}).values():
            try:
                jsonschema.Draft4Validator(self._models[model]).validate(json.loads(body))
            except (ValueError, jsonschema.ValidationError):
                raise RefusedError("BAD_REQUEST_BODY") from None

    async def _pass_on(
        self, request: Request, integration: dict[str, Any], values: dict[str, str], body: bytes
    ) -> Response:
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        path = urlsplit(integration["uri"]).path
        for to, source in (integration.get("requestParameters") or {}).items():
            kind, name = to.split(".")[2:]
            if kind == "path":
                path = path.replace(f"{{{name}}}", values[source.rpartition(".")[2]])
            else:
                headers[name] = source  # a variable of API Gateway that contains the caller
        client = httpx2.AsyncClient(timeout=None)
        asked = client.build_request(
            integration["httpMethod"], f"{self._gateway_url}{path}", headers=headers, content=body
        )
        answer = await client.send(asked, stream=True)

        async def content() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.aiter_raw():
                    yield chunk
            finally:
                await client.aclose()

        passed = StreamingResponse(content(), answer.status_code)
        passed.raw_headers = [(k, v) for k, v in answer.headers.raw if k.decode().lower() not in HOP_BY_HOP]
        return passed

    def _refuse(self, kind: str) -> Response:
        status, message = REFUSED[kind]
        told = self._refusals.get(kind) or self._refusals.get(f"DEFAULT_{status // 100}XX", {})
        headers = {
            name.removeprefix("gatewayresponse.header."): value.strip("'")
            for name, value in told.get("responseParameters", {}).items()
        }
        template = told.get("responseTemplates", {}).get("application/json", '{"message":$context.error.messageString}')
        body = template.replace("$context.error.messageString", json.dumps(message))
        body = body.replace("$context.error.responseType", kind)
        return Response(body, int(told.get("statusCode") or status), headers | {"Content-Type": "application/json"})
