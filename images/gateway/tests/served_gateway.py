"""A gateway in the test's own process, whose media API is called without a network."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Self

import httpx2
from redis.asyncio import Redis
from starlette.types import Message

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.local_gateway import SETTINGS
from images.gateway.tests.running import Hosts
from voice_blueprint.contract.network import Tier
from voice_gateway.apps import create_media_api
from voice_gateway.gateway import Gateway
from voice_gateway.settings import GatewaySettings
from voice_runtime import tasks
from voice_runtime.metrics import Metrics
from voice_runtime.transcripts import Transcript


def make_gateway(store: Redis, **changes: Any) -> Gateway:
    """Return a gateway that has discovered no hosts."""
    settings = SETTINGS | {"caller_sessions": 1000, "caller_creations_per_s": 10_000, "max_connections": 4096} | changes
    return Gateway(GatewaySettings(**settings), store, Metrics("test", "gateway", lambda _: None))


@contextlib.asynccontextmanager
async def serving_gateway(store: Redis, **changes: Any) -> AsyncIterator[Gateway]:
    """Make a gateway that has discovered a host of each tier, and reads transcripts."""
    hosts = Hosts(store)
    hosts.put(Tier.ASR, "asr-1")
    hosts.put(Tier.VAD, "vad-1")
    await hosts.beat()
    gateway = make_gateway(store, **changes)
    await gateway.fleet.refresh()
    reading = asyncio.create_task(gateway.followers.run())
    try:
        yield gateway
    finally:
        await tasks.cancel_tasks([reading])


def client_of(gateway: Gateway) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_media_api(gateway), client=("127.0.0.1", 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=BUSY_TIMEOUT_S)


class SocketClient:
    """A client's side of a WebSocket (ASGI specification, "WebSocket")."""

    def __init__(self, gateway: Gateway, path: str, key: str = "any") -> None:
        self._gateway = gateway
        self._key = key
        self._path, _, self._query = path.partition("?")
        self._to_server: asyncio.Queue[Message] = asyncio.Queue()
        self._to_client: asyncio.Queue[Message] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        accepted = await self._connect()
        assert accepted["type"] == "websocket.accept", [accepted, await self._receive()]
        self.headers = dict(accepted["headers"])
        return self

    async def connect_and_be_denied(self) -> int:
        """Return the status of the response in place of a WebSocket, after all of it."""
        denied = await self._connect()
        assert denied["type"] == "websocket.http.response.start", denied
        await self.wait_until_served()
        return int(denied["status"])

    async def _connect(self) -> Message:
        scope = {
            "type": "websocket",
            "scheme": "ws",
            "path": self._path,
            "query_string": self._query.encode(),
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {self._key}".encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        app = create_media_api(self._gateway)
        self._serving = asyncio.ensure_future(app(scope, self._to_server.get, self._to_client.put))
        self._to_server.put_nowait({"type": "websocket.connect"})
        return await self._receive()

    async def __aexit__(self, *_: object) -> None:
        await tasks.cancel_tasks([self._serving])

    async def _receive(self) -> Message:
        receiving = asyncio.ensure_future(self._to_client.get())
        await asyncio.wait({receiving, self._serving}, timeout=BUSY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            receiving.cancel()
            raise AssertionError("the server sends nothing") from (
                self._serving.exception() if self._serving.done() else None
            )
        return receiving.result()

    def send(self, message: bytes | str | dict[str, Any]) -> None:
        text = json.dumps(message) if isinstance(message, dict) else message
        part = {"bytes": text} if isinstance(text, bytes) else {"text": text}
        self._to_server.put_nowait({"type": "websocket.receive", **part})

    def disconnect(self) -> None:
        self._to_server.put_nowait({"type": "websocket.disconnect", "code": 1006, "reason": ""})

    async def wait_until_served(self) -> None:
        """Wait until the gateway has released the connection."""
        await asyncio.wait_for(self._serving, BUSY_TIMEOUT_S)

    async def receive_until_close(self) -> tuple[list[dict[str, Any]], int]:
        """Return the messages up to the close frame, and its code."""
        messages = []
        while (message := await self._receive())["type"] == "websocket.send":
            messages.append(json.loads(message["text"]))
        return messages, message["code"]

    async def publish(self, *transcripts: Transcript) -> None:
        """Publish transcripts of the socket's session, as an engine does."""
        ssrc = self._gateway.tokens.derive_ssrc(self.headers[b"dg-request-id"].decode())
        for number, each in enumerate(transcripts, 2):
            assert await self._gateway.transcripts.publish(ssrc, each, number)
