"""The state of one connection: when it is paused, and when a request must be complete in time."""

import asyncio
import gc
from collections.abc import Callable
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from images.conftest import BUSY_TIMEOUT_S, until
from images.runtime.tests.connections import FakeLoop, FakeTransport
from images.strangers import COMPLETE_HEAD, PARTIAL_HEAD, build_upgrade_head
from voice_runtime import http
from voice_runtime.websocket import MAX_SLICE_BYTES, PacedWebSocket

SLICES = 4
TURN_S = 0.005
"""CPU time after which a connection is paused."""


def ok(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


def protocol_for(state: ServerState) -> Callable[[], http.RequestHeadTimeoutProtocol]:
    kind = http.RequestHeadTimeoutProtocol.with_connection_limit(2)
    config = uvicorn.Config(
        Starlette(routes=[Route("/healthz", ok)]), ws="none", timeout_keep_alive=2 * BUSY_TIMEOUT_S, log_config=None
    )
    return lambda: kind(config, state, {})


@pytest.mark.parametrize(
    ("slice_s", "parsed"),
    [(0.0, SLICES), (TURN_S / SLICES, SLICES), (TURN_S / 2, 2), (TURN_S, 1)],
)
async def test_a_connection_is_paused_after_a_turn_of_cpu_time(
    monkeypatch: pytest.MonkeyPatch, slice_s: float, parsed: int
) -> None:
    """The pieces of an incomplete head take the given time each."""
    cpu_s, pieces = 0.0, list[bytes]()
    monkeypatch.setattr(http, "time", SimpleNamespace(thread_time=lambda: cpu_s))

    def parse(_: object, piece: bytes) -> None:
        nonlocal cpu_s
        pieces.append(piece)
        cpu_s += slice_s

    monkeypatch.setattr(H11Protocol, "data_received", parse)
    protocol, transport = protocol_for(ServerState())(), Mock(is_closing=lambda: False)
    transport.get_protocol.return_value = protocol
    protocol.connection_made(transport)
    protocol.data_received(bytes(SLICES * MAX_SLICE_BYTES))
    assert [len(piece) for piece in pieces] == [MAX_SLICE_BYTES] * parsed
    assert (protocol._pause_timer is not None) == transport.pause_reading.called == (slice_s > 0)
    protocol.connection_lost(None)


async def test_only_a_request_that_has_begun_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection has the longer timeout of keep-alive."""
    monkeypatch.setattr(http, "REQUEST_HEAD_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(protocol_for(state), "127.0.0.1", 0)

    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        await until(lambda: bool(state.connections))
        [protocol] = state.connections
        assert isinstance(protocol, http.RequestHeadTimeoutProtocol)
        assert protocol._timer is not None, "a new connection"
        writer.write(COMPLETE_HEAD)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await until(lambda: protocol._pause_timer is None and not protocol._is_answered)
        assert protocol._timer is None, "idle"
        writer.write(PARTIAL_HEAD)
        await until(lambda: protocol._timer is not None)
        writer.close()
        await until(lambda: not state.connections)


class Connection:
    """A connection with its transport and its timers, and the CPU time that the process has used."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        room: int = 1024,
        peer: tuple[str, int] = ("10.0.0.9", 4711),
        kind: type[http.RequestHeadTimeoutProtocol] | None = None,
    ) -> None:
        self.cpu_s = 0.0
        self.loop, self.transport, self.state = FakeLoop(), FakeTransport(peer), ServerState()
        app = Starlette(routes=[Route("/healthz", ok)])
        config = uvicorn.Config(app, ws=PacedWebSocket, timeout_keep_alive=75, log_config=None)
        self.kind = kind or http.RequestHeadTimeoutProtocol.with_connection_limit(room)
        self.protocol = self.kind(config, self.state, {}, self.loop)
        self.transport.set_protocol(self.protocol)
        monkeypatch.setattr(http, "time", SimpleNamespace(thread_time=lambda: self.cpu_s))
        self.protocol.connection_made(self.transport)

    async def receive_response(self) -> None:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not self.transport.written.endswith(b"ok"):
                await asyncio.sleep(0)
        self.transport.written = b""

    @property
    def is_waiting(self) -> bool:
        """Whether the connection counts as one without a request."""
        return self.protocol in self.kind.waiting_connections


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setattr(PacedWebSocket, "paused_connections", set())
    return Connection(monkeypatch)


async def test_a_request_head_has_ten_seconds(connection: Connection) -> None:
    assert connection.loop.delays_s == [10], "from the start of the connection"
    connection.protocol.data_received(COMPLETE_HEAD)
    assert connection.loop.delays_s == []
    assert not connection.is_waiting
    await connection.receive_response()
    connection.loop.fire()
    assert connection.is_waiting
    assert connection.loop.delays_s == [75], "idle"
    connection.protocol.data_received(PARTIAL_HEAD)
    assert connection.loop.delays_s == [10], "from the first byte"
    connection.protocol.data_received(b"x")
    assert connection.loop.delays_s == [10]
    connection.loop.fire()
    assert connection.transport.is_closed
    assert not connection.transport.is_aborted


async def test_a_client_without_a_request_that_leaves_data_unread_is_disconnected(connection: Connection) -> None:
    connection.transport.unread_bytes = 1
    connection.loop.fire()
    assert connection.transport.is_aborted


async def test_the_timeout_of_a_connection_that_is_gone_does_nothing(connection: Connection) -> None:
    connection.state.connections.clear()
    connection.kind.waiting_connections.discard(connection.protocol)
    connection.transport.protocol = None
    connection.transport.unread_bytes = 1
    del connection.protocol
    gc.collect()
    connection.loop.fire()
    assert not connection.transport.is_closed


@pytest.mark.parametrize(("others", "pause_s"), [(0, 0.004), (2, 0.012)])
async def test_each_request_is_followed_by_a_pause(connection: Connection, others: int, pause_s: float) -> None:
    """The pause is four times the time of a request, for each connection that pauses."""
    PacedWebSocket.paused_connections.update(Mock() for _ in range(others))
    connection.protocol.data_received(COMPLETE_HEAD * 2)
    await connection.receive_response()
    assert connection.loop.delays_s == [10, pytest.approx(pause_s)], "the head of the second request has begun"
    assert not connection.transport.is_reading_now
    assert len(PacedWebSocket.paused_connections) == others + 1
    connection.loop.fire(within_s=1)
    await connection.receive_response()
    assert connection.loop.delays_s[-1] == pytest.approx(pause_s)
    connection.loop.fire(within_s=1)
    assert connection.loop.delays_s == [75]
    assert connection.transport.is_reading_now
    assert len(PacedWebSocket.paused_connections) == others


async def test_a_turn_is_followed_by_a_pause_of_four_times_its_cpu_time(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = list[bytes]()

    def parse(_: object, piece: bytes) -> None:
        pieces.append(piece)
        connection.cpu_s += 0.25

    monkeypatch.setattr(H11Protocol, "data_received", parse)
    connection.protocol.data_received(bytes(2 * MAX_SLICE_BYTES))
    assert connection.loop.delays_s == [10, 1.0]
    connection.protocol.data_received(b"x")
    connection.protocol.continue_reading_unless_paused()
    assert len(pieces) == 1
    connection.protocol.continue_reading()
    assert len(pieces) == 2
    connection.transport.is_closed = True
    connection.protocol.continue_reading()
    assert len(pieces) == 2, "a closed connection"
    connection.protocol.connection_lost(None)
    assert connection.loop.delays_s == []
    assert PacedWebSocket.paused_connections == set()


async def test_the_shortest_pause_is_a_millisecond(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ASSUMED_REQUEST_CPU_S", 0.0001)
    connection.protocol.data_received(COMPLETE_HEAD)
    await connection.receive_response()
    assert connection.loop.delays_s == [0.001]


async def test_a_connection_whose_client_does_not_read_the_response_counts_as_waiting(connection: Connection) -> None:
    connection.protocol.data_received(COMPLETE_HEAD)
    assert not connection.is_waiting
    connection.protocol.pause_writing()
    assert connection.is_waiting
    connection.protocol.resume_writing()
    assert not connection.is_waiting
    await connection.receive_response()
    assert connection.is_waiting


async def test_a_websocket_does_not_count_as_waiting(connection: Connection) -> None:
    connection.protocol.pause_writing()
    connection.protocol.data_received(build_upgrade_head("/healthz") + b"x")
    assert isinstance(connection.transport.protocol, PacedWebSocket)
    assert not connection.is_waiting
    assert connection.loop.delays_s == []
    assert not connection.protocol._unread
    for task in list(connection.state.tasks):
        task.cancel()


async def test_a_request_that_closes_its_connection_is_followed_by_no_pause(connection: Connection) -> None:
    connection.protocol.data_received(COMPLETE_HEAD.replace(b"Host", b"Connection: close\r\nHost"))
    await connection.receive_response()
    assert connection.transport.is_closed
    assert connection.transport.is_reading_now
    assert PacedWebSocket.paused_connections == set()


async def test_a_body_is_read_as_fast_as_the_program_reads_it(connection: Connection) -> None:
    connection.protocol.data_received(b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
    connection.protocol.data_received(bytes(65_536))
    assert not connection.protocol.flow.read_paused
    connection.protocol.data_received(bytes(1))
    assert connection.protocol.flow.read_paused
    assert not connection.transport.is_reading_now
    connection.protocol.data_received(bytes(5))
    assert len(connection.protocol._unread) == 5
    connection.protocol.flow.resume_reading()
    connection.loop.fire()
    assert not connection.protocol._unread
    for task in list(connection.state.tasks):
        task.cancel()


async def test_the_address_with_the_most_waiting_connections_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.2", 3), ("10.0.0.3", 4)]
    first = Connection(monkeypatch, 3, peers[0])
    connections = [first, *(Connection(monkeypatch, peer=peer, kind=first.kind) for peer in peers[1:])]
    assert [each.transport.is_closed for each in connections] == [False, True, False, False]
    assert [each.is_waiting for each in connections] == [True, False, True, True]


def test_a_server_has_room_for_1024_connections_without_a_request() -> None:
    waiting = http.RequestHeadTimeoutProtocol.with_connection_limit().waiting_connections
    assert all(waiting.add(Mock(), f"{number}") is None for number in range(1024))
    assert waiting.add(Mock(), "another") is not None


async def test_data_after_a_malformed_request_is_discarded(connection: Connection) -> None:
    connection.protocol.data_received(b"\0\r\n\r\n" + bytes(2 * MAX_SLICE_BYTES))
    assert connection.transport.written.count(b"HTTP/1.1 400") == 1
    assert connection.transport.is_closed
    assert not connection.protocol._unread


async def test_data_after_a_pipelined_upgrade_is_discarded(connection: Connection) -> None:
    """A WebSocket's client sends nothing before the response (RFC 6455, section 4.1)."""
    connection.protocol.data_received(COMPLETE_HEAD + build_upgrade_head("/healthz"))
    await connection.receive_response()
    connection.protocol.data_received(b"x")
    assert connection.protocol._unread == b"x"
    connection.loop.fire(within_s=1)
    assert isinstance(connection.transport.protocol, PacedWebSocket)
    assert not connection.protocol._unread
    assert not connection.is_waiting
    for task in list(connection.state.tasks):
        task.cancel()
