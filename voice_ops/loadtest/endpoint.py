"""An OpenAI-compatible endpoint: URL, credentials and model."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Self

import aiohttp
from yarl import URL

from voice_ops.call.access import HeaderProvider, create_header_provider
from voice_ops.loadtest.failures import EndpointResponseError, format_error_response

_READ_BUFFER_BYTES = 2**22
"""Maximum line length of an event stream, which is sufficient for seconds of audio in base64."""


@dataclass(frozen=True)
class Endpoint:
    """An endpoint under load. Proxies from the environment are not used, since they would be measured as well."""

    name: str
    url: URL
    model: str
    body: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields in every request, which override the harness's fields."""
    header_provider: HeaderProvider = field(default=create_header_provider(None, None, ""), repr=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    @cached_property
    def session(self) -> aiohttp.ClientSession:
        """HTTP client without compression, timeouts, or a limit on the number of connections."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"Accept-Encoding": "identity"},
            middlewares=(self._authorize,),
            read_bufsize=_READ_BUFFER_BYTES,
        )

    async def _authorize(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        # Other URLs of a session (its WebSocket) use their own token, and must not receive this secret.
        if request.url.origin() == self.url.origin():
            body = await request.body.as_bytes() if isinstance(request.body, aiohttp.BytesPayload) else b""
            request.headers.update(self.header_provider(request.method, str(request.url), body))
        return await handler(request)

    def url_for(self, path: str) -> URL:
        """Return the URL of an API."""
        return self.url.with_path(self.url.path.rstrip("/") + path)

    @asynccontextmanager
    async def post(self, path: str, request_id: str, **content: Any) -> AsyncIterator[aiohttp.ClientResponse]:  # noqa: ANN401  parameters of aiohttp
        """Send a request and yield its response as it arrives.

        Raises:
            EndpointResponseError: The status is an error.
        """
        async with self.session.post(self.url_for(path), headers={"X-Request-Id": request_id}, **content) as response:
            if not response.ok:
                raise EndpointResponseError(format_error_response(response.status, await response.read()))
            yield response

    async def list_models(self) -> list[str] | None:
        """Return the names of the models that the endpoint lists, or ``None`` if it has no list of models.

        Raises:
            EndpointResponseError: The endpoint rejects the key, or fails.
        """
        async with self.session.get(self.url_for("/v1/models")) as response:
            if response.status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
                return None
            if not response.ok:
                raise EndpointResponseError(format_error_response(response.status, await response.read()))
            try:
                return [str(model["id"]) for model in (await response.json(content_type=None))["data"]]
            except (ValueError, KeyError, TypeError):
                raise EndpointResponseError("/v1/models did not return a list of models") from None
