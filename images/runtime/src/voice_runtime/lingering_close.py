"""Middleware that delivers a response although the client is still sending its request."""

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_LINGER_S = 2.0
MAX_LINGER_BYTES = 8 << 20


class LingeringCloseMiddleware:
    """Reads the rest of a request's body before a connection is closed.

    The kernel resets a connection that is closed with unread data, and the client can lose a response that it has not
    read yet. Only responses with ``Connection: close`` are affected; on other connections, uvicorn reads the rest.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request to the application."""
        if scope["type"] == "http":
            connection = _Connection(receive, send)
            receive, send = connection.receive, connection.send
        await self._app(scope, receive, send)


class _Connection:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_incomplete = True
        self._closes_connection = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_incomplete = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._closes_connection = (b"connection", b"close") in message["headers"]
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and self._closes_connection and self._is_incomplete:
            await self._send({**message, "more_body": True})
            await self._discard_body()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _discard_body(self) -> None:
        discarded = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_LINGER_S):
                while self._is_incomplete and discarded < MAX_LINGER_BYTES:
                    discarded += len((await self.receive()).get("body", b""))
