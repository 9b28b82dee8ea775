"""A gateway in the process of the test, whose hosts, metrics and WebSockets the test controls."""

import asyncio
import json
import time
from typing import Any

from redis.asyncio import Redis
from starlette.datastructures import Headers, State
from starlette.types import Message
from starlette.websockets import WebSocket

from voice_blueprint.contract.network import Tier
from voice_gateway.gateway import Gateway
from voice_gateway.settings import GatewaySettings
from voice_runtime.hosts import Host, HostKind
from voice_runtime.metrics import Metrics
from voice_runtime.sessions import Session, SessionKind, SessionState

SETTINGS: dict[str, Any] = {
    "deployment": "test", "fleet": "gateway", "http_port": 8080, "media_port": 8081, "rtp_port": 5004,
    "token_key": "k" * 32, "token_ttl_s": 60, "authorizer": "none", "media_host": "audio.test", "idle_timeout_s": 30,
    "drain_timeout_s": 5, "reconnect_grace_s": 20, "end_of_turn_ms": 600, "session_max_s": 3600, "caller_sessions": 10,
    "caller_creations_per_s": 100, "max_connections": 10, "allowed_origins": "",
}  # fmt: skip


class LocalGateway(Gateway):
    """A gateway with a host of each tier, which it need not discover."""

    def __init__(self, store: Redis, **settings: object) -> None:
        self.lines: list[str] = []
        super().__init__(GatewaySettings(**SETTINGS | settings), store, Metrics("test", "gateway", self.lines.append))
        self.fleet._age_s = 0.0
        self.set_hosts()

    def set_hosts(self, *, asr_slots: int = 10, vad_slots: int = 10, languages: tuple[str, ...] = ()) -> None:
        self.fleet._hosts = {
            Tier.ASR: [Host("asr-1", HostKind.GPU, "127.0.0.1", asr_slots, False, asr_slots, languages)],
            Tier.VAD: [Host("vad-1", HostKind.VAD, "127.0.0.1", vad_slots, False, vad_slots)],
        }

    def read_metrics(self) -> dict[str, Any]:
        """Return the values of the metrics since the last call."""
        self.metrics.flush()
        found = [json.loads(line) for line in self.lines]
        self.lines.clear()
        names = [line["_aws"]["CloudWatchMetrics"][0]["Metrics"][0]["Name"] for line in found]
        return {name: line[name] for name, line in zip(names, found, strict=True)}

    async def open_session(self, ssrc: int = 7, **fields: Any) -> Session:
        """Return a new session of a WebSocket."""
        values = {"caller": "tenant", "kind": SessionKind.GATEWAY, "expires_at": int(time.time()) + 3600, **fields}
        session = Session(ssrc=ssrc, id=self.tokens.create_session_id(ssrc), state=SessionState.OPEN, **values)
        assert await self.sessions.create(session, max_sessions=100)
        return session

    async def read_session(self, ssrc: int = 7) -> Session:
        session = await self.sessions.read(ssrc)
        assert session
        return session


class LocalSocket(WebSocket):
    """The gateway's side of a WebSocket, with the client's messages in a queue."""

    def __init__(self, gateway: Gateway, token: str = "") -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        app = type("App", (), {"state": State({"gateway": gateway})})()
        headers = Headers({"Authorization": f"Bearer {token}"} if token else {})
        scope = {
            "type": "websocket", "app": app, "headers": headers.raw, "client": ("127.0.0.1", 1), "subprotocols": [],
            "extensions": {"websocket.http.response": {}}, "path": "/",
        }  # fmt: skip
        super().__init__(scope, self.messages.get, self._keep)
        self.messages.put_nowait({"type": "websocket.connect"})

    async def _keep(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def closed(self) -> tuple[int, str] | None:
        """Code and reason of the close frame."""
        return next(((each["code"], each["reason"]) for each in self.sent if each["type"] == "websocket.close"), None)

    @property
    def denied_with(self) -> int | None:
        """Status of the response in place of the WebSocket."""
        kind = "websocket.http.response.start"
        return next((each["status"] for each in self.sent if each["type"] == kind), None)

    def put(self, message: bytes | str) -> None:
        part = {"bytes": message} if isinstance(message, bytes) else {"text": message}
        self.messages.put_nowait({"type": "websocket.receive", **part})

    def disconnect(self, code: int = 1006) -> None:
        self.messages.put_nowait({"type": "websocket.disconnect", "code": code, "reason": ""})
