"""A gateway in a separate process, with hosts as realistic as it can observe."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import httpx2
import numpy as np
import pytest
import websockets
from redis.asyncio import Redis
from redis.exceptions import RedisError

from images.conftest import BUSY_TIMEOUT_S, INHERITED_ENVIRONMENT, StoreServer
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import HEALTH_PATH, TOKEN_HEADER
from voice_gateway.tokens import SessionTokenManager
from voice_runtime.hosts import Host, HostKind, HostRegistry
from voice_runtime.store import StoreSettings, connect
from voice_sandbox.loopback import find_free_port

FOLDER = Path(__file__).parents[2]
SOURCES = os.pathsep.join(map(str, (FOLDER.parent, FOLDER / "gateway/src", FOLDER / "runtime/src")))
TOKEN_KEY = "only-for-tests-only-for-tests-only-for-tests"
FRAME_BYTES = 640
NO_TLS = False
"""Certificates need not be loaded for plain HTTP, which takes longer than the requests."""


async def holds(what: str, condition: Callable[[], bool], limit_s: float = BUSY_TIMEOUT_S) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        await asyncio.sleep(0.02)


class GatewayProcess:
    """``python -m voice_gateway``."""

    def __init__(self, store: StoreServer, rtp_port: int, **settings: object) -> None:
        self.http_port, self.media_port, self.rtp_port = find_free_port(), find_free_port(), rtp_port
        defaults: dict[str, object] = {
            "DEPLOYMENT": "test",
            "FLEET": "gateway",
            "VALKEY_HOST": "127.0.0.1",
            "VALKEY_PORT": store.port,
            "VALKEY_USER": "default",
            "VALKEY_TLS": "false",
            "HTTP_PORT": self.http_port,
            "MEDIA_PORT": self.media_port,
            "RTP_PORT": rtp_port,
            "TOKEN_KEY": TOKEN_KEY,
            "TOKEN_TTL_S": 300,
            "AUTHORIZER": "jwt" if settings.get("JWT_ISSUER") else "none",
            "MEDIA_HOST": "127.0.0.1",
            "MEDIA_TLS": "false",
            "IDLE_TIMEOUT_S": 30,
            "DRAIN_TIMEOUT_S": 5,
            "BIND_ADDRESS": "127.0.0.1",
            "CALLER_CREATIONS_PER_S": 10_000,
            "CALLER_SESSIONS": 1000,
            "RECONNECT_GRACE_S": 20,
            "END_OF_TURN_MS": 600,
            "SESSION_MAX_S": 3600,
            "MAX_CONNECTIONS": 4096,
            "ALLOWED_ORIGINS": "",
        }
        self.environment = {f"VOICE_{name}": str(value) for name, value in {**defaults, **settings}.items()}
        self.environment |= {"PYTHONPATH": SOURCES, **INHERITED_ENVIRONMENT}
        self.lines: list[str] = []

    def start(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("counted.py"))],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout
        self.lines.extend(self.process.stdout)

    async def ready(self) -> Self:
        await holds(f"the gateway is ready: {self.lines}", lambda: self.health() == 200)
        return self

    async def accepts_callers(self) -> Self:
        """Wait until it admits callers, since it reads the hosts every half second."""
        await self.answers(201)
        return self

    async def answers(self, status: int, transport: str = "websocket") -> httpx2.Response:
        """Request sessions until the response has a status, and return that response; opened sessions are closed."""
        async with self.client() as client, asyncio.timeout(BUSY_TIMEOUT_S):
            while True:
                answer = await client.post("/v1/sessions", json={"transport": transport})
                if answer.status_code == 201:
                    await Opened(self, answer.json()).close()
                if answer.status_code == status:
                    return answer
                await asyncio.sleep(0.1)

    def health(self, port: int | None = None, path: str = HEALTH_PATH) -> int:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"http://127.0.0.1:{port or self.http_port}{path}", verify=NO_TLS).status_code
        return 0

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def metric(self, name: str) -> list[float]:
        """Return the values of a metric written so far."""
        found = [line[name] for line in self.logged() if name in line]
        return [value for each in found for value in (each if isinstance(each, list) else [each])]

    async def objects(self) -> int:
        """Return its number of objects."""
        asked = len(self.metric("objects"))
        self.process.send_signal(signal.SIGUSR1)
        await holds("it counts", lambda: len(self.metric("objects")) > asked)
        return int(self.metric("objects")[-1])

    async def holds_no_more_than(self, objects: float) -> None:
        """Wait until it has at most this number of objects."""
        end = time.monotonic() + BUSY_TIMEOUT_S
        while (found := await self.objects()) > objects:
            assert time.monotonic() < end, f"it holds {found} objects, and {objects:.0f} at most are right"
            await asyncio.sleep(0.5)

    @property
    def memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        try:
            code = self.process.wait(BUSY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR2)
            self._reader.join(1)
            pytest.fail(f"the gateway does not end: {''.join(self.lines)}")
        self._reader.join(BUSY_TIMEOUT_S)
        return code

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=BUSY_TIMEOUT_S, verify=NO_TLS)

    async def open(self, transport: str = "websocket", **request: object) -> "Opened":
        asked = {"transport": transport, **request}
        async with self.client() as client, asyncio.timeout(BUSY_TIMEOUT_S):
            # On a busy machine, heartbeats and the store are late, so a refused request is retried.
            while (response := await client.post("/v1/sessions", json=asked)).status_code == 503:
                await asyncio.sleep(0.1)
        assert response.status_code == 201, response.text
        return Opened(self, response.json())


async def leave_while_opening(gateway: GatewayProcess, store: Redis, path: str, protocols: str = "") -> None:
    """Request a WebSocket, and reset the connection while the gateway waits for the store."""
    await store.client_pause(1500, all=False)  # of writes; less than the gateway's timeout
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.media_port)
    head = {
        "Host": "127.0.0.1",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    } | ({"Sec-WebSocket-Protocol": protocols} if protocols else {})
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()
    await asyncio.sleep(0.3)  # until the gateway has read the request
    writer.transport.abort()
    await asyncio.sleep(0.3)  # until it has noticed the reset
    await store.client_unpause()


@dataclass
class Opened:
    """A session from its caller's perspective."""

    gateway: GatewayProcess
    described: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.described["id"])

    @property
    def ssrc(self) -> int:
        return SessionTokenManager(TOKEN_KEY, 1).derive_ssrc(self.id)

    @property
    def token(self) -> str:
        return str(self.described["token"])

    @property
    def headers(self) -> dict[str, str]:
        return {TOKEN_HEADER: self.token}

    def at(self, gateway: GatewayProcess) -> "Opened":
        return replace(self, gateway=gateway)

    def socket(self, token: str | None = None, **options: Any) -> websockets.connect:
        url = f"ws://127.0.0.1:{self.gateway.media_port}/v1/sessions/{self.id}/audio"
        protocols: Any = ["voice.v1", token or self.token]
        return websockets.connect(url, subprotocols=protocols, compression=None, **options)

    @contextlib.asynccontextmanager
    async def stream(self, last_event_id: str | None = None) -> AsyncIterator["Events"]:
        headers = self.headers | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        async with (
            self.gateway.client() as client,
            client.stream("GET", f"/v1/sessions/{self.id}/events", headers=headers) as response,
        ):
            assert response.status_code == 200, await response.aread()
            yield Events(response)

    async def close(self) -> int:
        async with self.gateway.client() as client:
            return (await client.delete(f"/v1/sessions/{self.id}", headers=self.headers)).status_code


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    name: str
    id: str | None
    data: Any


class Events:
    """Reads server-sent events of a response."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()
        self.comments = 0

    async def __aiter__(self) -> AsyncIterator[Event]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                yield Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
                fields = {}
            else:
                fields = {}

    async def transcripts(self, count: int) -> list[Event]:
        """Return this number of transcript events, skipping others."""
        found = []
        async for event in self:
            if event.name in {"partial", "final"}:
                found.append(event)
            if len(found) == count:
                return found
        raise AssertionError(f"the stream ended after {found}")

    async def until(self, name: str) -> list[Event]:
        """Return all events up to the first with a name."""
        found = []
        async for event in self:
            found.append(event)
            if event.name == name:
                return found
        raise AssertionError(f"the stream ended without {name}: {found}")


@dataclass(frozen=True)
class Packet:
    """A received RTP packet."""

    at: float
    source: tuple[str, int]
    payload_type: int
    sequence: int
    timestamp: int
    ssrc: int
    samples: np.ndarray


BYE, APP = b"\xcb", b"\xcc"
"""Packet types of RTCP (RFC 3550, section 12.1)."""


@dataclass
class VadHost:
    """A UDP port that receives RTP."""

    port: int
    address: str = "127.0.0.1"
    packets: list[Packet] = field(default_factory=list)
    notices: list[tuple[int, bytes]] = field(default_factory=list)
    """SSRC and kind of RTCP packets."""

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind((self.address, self.port))
        self._socket.settimeout(0.2)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                datagram, source = self._socket.recvfrom(4096)
                if datagram[1] == 201:
                    self.notices.append((int.from_bytes(datagram[4:8]), datagram[9:10]))
                    continue
                first, second, sequence, timestamp, ssrc = struct.unpack_from(">BBHII", datagram)
                assert first == 0x80
                assert len(datagram) == 12 + FRAME_BYTES
                samples = np.frombuffer(datagram, ">i2", offset=12).astype(np.int16)
                self.packets.append(Packet(time.monotonic(), source, second, sequence, timestamp, ssrc, samples))

    def of(self, ssrc: int) -> list[Packet]:
        return [packet for packet in self.packets if packet.ssrc == ssrc]

    async def heard(self, ssrc: int, frames: int) -> list[Packet]:
        """Wait until this number of packets of a session has arrived, and return all."""
        await holds(f"{frames} packets", lambda: len(self.of(ssrc)) >= frames)
        return self.of(ssrc)

    def audio(self, ssrc: int) -> np.ndarray:
        return np.concatenate([packet.samples for packet in self.of(ssrc)] or [np.empty(0, np.int16)])

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._socket.close()


class Hosts:
    """Writes heartbeats of hosts every half second, in a thread of its own, independent of the test."""

    def __init__(self, store: Redis) -> None:
        self._registries = _registries(store)
        self._one_beat = threading.Lock()
        self.present: dict[tuple[Tier, str], Host] = {}

    def put(
        self,
        tier: Tier,
        host_id: str,
        address: str = "127.0.0.1",
        slots: int = 10_000,
        *,
        draining: bool = False,
        languages: tuple[str, ...] = (),
    ) -> None:
        kind = HostKind.VAD if tier is Tier.VAD else HostKind.GPU
        self.present[tier, host_id] = Host(host_id, kind, address, slots, draining, slots, languages)

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Remove all hosts for a while."""
        present, self.present = self.present, {}
        with self._one_beat:
            for tier, host_id in present:
                await self._registries[tier].remove(host_id)
        yield
        self.present = present
        await self.beat()

    async def beat(self) -> None:
        await self._beat(self._registries)

    @contextlib.contextmanager
    def beating(self, settings: StoreSettings) -> Iterator[None]:
        stopping = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(settings, stopping)))
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    async def _run(self, settings: StoreSettings, stopping: threading.Event) -> None:
        async with connect(settings) as store:
            registries = _registries(store)
            while not stopping.is_set():
                with contextlib.suppress(RedisError):
                    await self._beat(registries)
                await asyncio.sleep(0.5)

    async def _beat(self, registries: dict[Tier, HostRegistry]) -> None:
        """Write every host, one beat at a time: another could write what a host was before a test changed it."""
        with self._one_beat:
            for (tier, _), host in list(self.present.items()):
                await registries[tier].send_heartbeat(host)


def _registries(store: Redis) -> dict[Tier, HostRegistry]:
    return {tier: HostRegistry(store, tier) for tier in (Tier.ASR, Tier.VAD)}
