"""One WebSocket at a time: how much of its data is processed, and when it is closed."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from images.runtime.tests.connections import FakeLoop, FakeTransport
from images.strangers import PING, build_malformed_upgrade_heads, build_upgrade_head
from voice_runtime import websocket
from voice_runtime.websocket import PacedWebSocket

SLICE_BYTES = 4096
USUAL_BYTES = 1 << 16
TOTAL_BYTES = 256 << 20


async def _accept(socket: WebSocket) -> None:
    await socket.accept()
    await asyncio.Event().wait()


APP = Starlette(routes=[WebSocketRoute("/listen", _accept), WebSocketRoute("/other", _accept)])


class Connection:
    """A WebSocket with its transport, its timers and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slice_s = 0.0
        self.pieces: list[bytes] = []
        self.loop, self.transport = FakeLoop(), FakeTransport()
        config = uvicorn.Config(APP, ws_max_size=USUAL_BYTES, log_config=None)
        kind = PacedWebSocket.with_limits({"/listen": 4 << 20})
        self.socket = kind(config, ServerState(), {}, self.loop)
        self.transport.set_protocol(self.socket)
        monkeypatch.setattr(websocket, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.socket.connection_made(self.transport)

    def measure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Process each piece in ``slice_s``, without its contents."""

        def parse(_: object, piece: bytes) -> None:
            self.pieces.append(piece)
            self.now += self.slice_s

        monkeypatch.setattr(WebSocketsSansIOProtocol, "data_received", parse)
        self.socket.handshake_initiated = True

    async def upgrade(self, path: str) -> None:
        self.socket.data_received(build_upgrade_head(path))
        while not self.socket.handshake_complete:
            await asyncio.sleep(0)
        self.transport.written = b""

    def read_close_code(self) -> int:
        """Return the code of the frame that closes the connection (RFC 6455, section 5.5.1)."""
        assert self.transport.is_closed
        assert self.transport.written[0] == 0x88
        return int.from_bytes(self.transport.written[2:4], "big")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setattr(PacedWebSocket, "paused_connections", set())
    monkeypatch.setattr(PacedWebSocket, "large_message_bytes_by_socket", {})
    return Connection(monkeypatch)


@pytest.fixture
def measured(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Connection:
    connection.measure(monkeypatch)
    return connection


@pytest.mark.parametrize(("others", "pause_s"), [(0, 0.04), (1, 0.04), (3, 0.12)])
def test_all_connections_with_a_backlog_use_a_fifth_of_the_time(
    measured: Connection, others: int, pause_s: float
) -> None:
    PacedWebSocket.paused_connections.update(Mock() for _ in range(others))
    measured.slice_s = 0.01
    measured.socket.data_received(bytes(range(256)) * 40)
    assert [len(piece) for piece in measured.pieces] == [SLICE_BYTES]
    assert measured.loop.delays_s == [pytest.approx(pause_s)]
    assert not measured.transport.is_reading_now
    assert len(PacedWebSocket.paused_connections) == others + 1

    measured.now += pause_s / 2
    measured.loop.fire()
    assert len(measured.pieces) == 1, "the pause has not ended"
    assert measured.loop.delays_s == [pytest.approx(pause_s / 2)]

    for _ in range(2):
        measured.now += 10
        measured.loop.fire()
    assert [len(piece) for piece in measured.pieces] == [SLICE_BYTES, SLICE_BYTES, 10_240 - 2 * SLICE_BYTES]
    assert b"".join(measured.pieces) == bytes(range(256)) * 40
    assert measured.transport.is_reading_now
    assert measured.loop.delays_s == []
    assert len(PacedWebSocket.paused_connections) == others


def test_a_pause_ends_at_its_time(measured: Connection) -> None:
    measured.slice_s = 0.25
    measured.socket.data_received(bytes(2 * SLICE_BYTES))
    measured.now += 1.0
    measured.loop.fire()
    assert len(measured.pieces) == 2


def test_the_shortest_pause_is_a_millisecond(measured: Connection) -> None:
    measured.socket.data_received(bytes(SLICE_BYTES + 1))
    assert measured.loop.delays_s == [0.001]


def test_data_of_one_slice_causes_no_pause(measured: Connection) -> None:
    measured.socket.data_received(bytes(SLICE_BYTES))
    assert [len(piece) for piece in measured.pieces] == [SLICE_BYTES]
    assert measured.loop.timers == []
    assert measured.transport.is_reading_now


def test_data_received_during_a_pause_waits(measured: Connection) -> None:
    measured.socket.data_received(bytes(SLICE_BYTES + 1))
    measured.socket.data_received(b"x" * 5)
    measured.socket.resume_writing()
    assert len(measured.pieces) == 1
    measured.now += 1
    measured.loop.fire()
    assert measured.pieces[1:] == [b"\0" + b"x" * 5]


def test_a_closed_connection_or_one_of_another_protocol_is_not_continued(measured: Connection) -> None:
    measured.transport.set_protocol(asyncio.Protocol())
    measured.socket.data_received(bytes(SLICE_BYTES + 1))
    measured.transport.set_protocol(measured.socket)
    measured.transport.is_closed = True
    measured.socket.data_received(bytes(SLICE_BYTES))
    assert len(measured.pieces) == 2
    assert measured.loop.timers == []
    assert measured.transport.is_reading_now


def test_reading_is_not_resumed_while_the_program_has_a_message(measured: Connection) -> None:
    measured.socket.read_paused = True
    measured.transport.pause_reading()
    measured.socket.data_received(b"x")
    assert not measured.transport.is_reading_now


@pytest.mark.parametrize(("unread_bytes", "is_read"), [(0, True), (65_536, True), (65_537, False)])
def test_a_client_is_not_read_while_it_leaves_too_much_unread(
    measured: Connection, unread_bytes: int, is_read: bool
) -> None:
    measured.transport.unread_bytes = unread_bytes
    measured.socket.data_received(b"x")
    assert bool(measured.pieces) is is_read
    assert measured.transport.is_reading_now is is_read
    measured.transport.unread_bytes = 0
    measured.socket.resume_writing()
    assert measured.pieces == [b"x"]
    assert measured.transport.is_reading_now
    measured.socket.resume_writing()
    assert measured.pieces == [b"x"]


def set_incomplete_message(connection: Connection, buffered: int, size: int | None) -> Mock:
    conn = Mock(reader=SimpleNamespace(buffer=range(buffered)), current_size=size)
    conn.data_to_send.return_value = []
    connection.socket.conn = conn
    return conn


@pytest.mark.parametrize(
    ("buffered", "size", "counted"),
    [
        (USUAL_BYTES, None, 0),
        (USUAL_BYTES + 1, None, USUAL_BYTES + 1),
        (1, USUAL_BYTES - 1, 0),
        (2, USUAL_BYTES, 65_538),
    ],
)
def test_only_messages_above_the_usual_limit_count_as_large(
    measured: Connection, buffered: int, size: int | None, counted: int
) -> None:
    set_incomplete_message(measured, buffered, size)
    measured.socket.data_received(b"x")
    assert sum(PacedWebSocket.large_message_bytes_by_socket.values()) == counted
    set_incomplete_message(measured, 0, None)
    measured.socket.data_received(b"x")
    assert PacedWebSocket.large_message_bytes_by_socket == {}


@pytest.mark.parametrize(("others", "is_closed"), [(TOTAL_BYTES - 70_000, False), (TOTAL_BYTES - 69_999, True)])
def test_the_connection_that_exceeds_the_total_of_large_messages_is_closed(
    measured: Connection, others: int, is_closed: bool
) -> None:
    PacedWebSocket.large_message_bytes_by_socket[Mock()] = others
    conn = set_incomplete_message(measured, 0, 70_000)
    measured.socket.data_received(b"x")
    assert measured.transport.is_closed is is_closed
    assert [call.args[0] for call in conn.fail.call_args_list] == ([1013] if is_closed else [])


def test_a_lost_connection_leaves_nothing_behind(measured: Connection) -> None:
    set_incomplete_message(measured, 0, 70_000)
    measured.socket.pause_writing()
    measured.socket.data_received(bytes(SLICE_BYTES + 1))
    assert len(measured.loop.delays_s) == 2
    measured.socket.connection_lost(None)
    assert measured.loop.delays_s == []
    assert PacedWebSocket.paused_connections == set()
    assert PacedWebSocket.large_message_bytes_by_socket == {}


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/listen", 4 << 20), ("/listen?a=/other", 4 << 20), ("/other", USUAL_BYTES), ("/", USUAL_BYTES)],
)
async def test_the_limit_of_a_message_depends_on_the_path(connection: Connection, path: str, limit: int) -> None:
    connection.socket.data_received(build_upgrade_head(path))
    assert connection.socket.conn.max_message_size == limit
    for task in connection.socket.tasks:
        task.cancel()


@pytest.mark.parametrize("head", [*build_malformed_upgrade_heads("/listen").values(), b"GET /listen HTTP/1.1\r\n"])
def test_an_unreadable_request_is_answered_and_closed(connection: Connection, head: bytes) -> None:
    connection.socket.data_received(head)
    assert connection.transport.written.startswith(b"HTTP/1.1 4")
    assert connection.transport.is_closed


def frame(opcode: Opcode, data: bytes) -> bytes:
    return Frame(opcode, data).serialize(mask=True)


@pytest.mark.parametrize(
    ("opcode", "data", "message"),
    [
        (Opcode.TEXT, "é".encode(), {"text": "é"}),
        (Opcode.BINARY, b"\xff", {"bytes": b"\xff"}),
        (Opcode.TEXT, b"\xff", None),
    ],
)
async def test_text_that_is_not_utf8_closes_the_connection(
    connection: Connection,
    caplog: pytest.LogCaptureFixture,
    opcode: Opcode,
    data: bytes,
    message: dict[str, Any] | None,
) -> None:
    """With status 1007 (RFC 6455, section 8.1), and without an error of this program."""
    await connection.upgrade("/listen")
    connection.socket.data_received(frame(opcode, data))
    if message is None:
        assert connection.read_close_code() == 1007
        assert [record for record in caplog.records if record.name != "asyncio"] == []
    else:
        assert not connection.transport.is_closed
        assert await connection.socket.queue.get() == {"type": "websocket.receive"} | message


@pytest.mark.parametrize(("has_message", "has_data"), [(False, False), (True, False), (False, True)])
async def test_a_client_whose_response_may_be_in_unread_data_is_not_closed(
    connection: Connection, has_message: bool, has_data: bool
) -> None:
    await connection.upgrade("/listen")
    connection.socket.read_paused = has_message
    connection.socket._unread += PING if has_data else b""
    connection.socket.pending_ping_payload = b"ping"
    connection.loop.timers.clear()
    connection.socket.keepalive_timeout()
    assert connection.socket.pending_ping_payload is None
    if has_message or has_data:
        assert not connection.transport.is_closed
        assert len(connection.loop.delays_s) == 1, "the next ping"
    else:
        assert connection.read_close_code() == 1011


@pytest.mark.parametrize("has_data", [True, False])
async def test_reading_stays_paused_while_data_waits(connection: Connection, has_data: bool) -> None:
    connection.socket._unread += b"x" if has_data else b""
    connection.socket.queue.put_nowait({"type": "websocket.connect"})
    connection.socket.read_paused = True
    assert await connection.socket.receive() == {"type": "websocket.connect"}
    assert connection.transport.is_reading_now is not has_data


def test_a_client_has_twenty_seconds_to_read_something(connection: Connection) -> None:
    connection.transport.unread_bytes = 1000
    connection.socket.pause_writing()
    assert connection.loop.delays_s == [20]
    assert not connection.socket.writable.is_set()
    connection.transport.unread_bytes = 999
    connection.loop.fire()
    assert not connection.transport.is_aborted
    assert connection.loop.delays_s == [20]
    connection.loop.fire()
    assert connection.transport.is_aborted


@pytest.mark.parametrize(("unread_bytes", "is_aborted"), [(999, False), (1000, True), (1001, True)])
def test_a_client_that_has_read_something_is_not_closed(
    connection: Connection, unread_bytes: int, is_aborted: bool
) -> None:
    connection.transport.unread_bytes = 1000
    connection.socket.pause_writing()
    connection.transport.unread_bytes = unread_bytes
    connection.loop.fire()
    assert connection.transport.is_aborted is is_aborted


def test_a_closing_connection_is_closed_even_if_its_client_reads_slowly(connection: Connection) -> None:
    connection.transport.unread_bytes = 1000
    connection.transport.is_closed = True
    connection.socket.pause_writing()
    connection.transport.unread_bytes = 1
    connection.loop.fire()
    assert connection.transport.is_aborted


def test_a_client_that_has_read_everything_has_no_timeout(connection: Connection) -> None:
    connection.socket.pause_writing()
    connection.socket.pause_writing()
    assert len(connection.loop.delays_s) == 1
    connection.socket.resume_writing()
    assert connection.loop.delays_s == []
    assert connection.socket.writable.is_set()


@pytest.mark.parametrize("unread_bytes", [0, 1])
def test_data_of_the_previous_protocol_must_be_read_too(connection: Connection, unread_bytes: int) -> None:
    connection.transport.unread_bytes = unread_bytes
    connection.socket.connection_made(connection.transport)
    assert connection.transport.limits_bytes == (None, 0)
    assert connection.loop.delays_s == [20] * unread_bytes


def test_the_timeout_of_a_connection_that_is_gone_does_nothing(connection: Connection) -> None:
    connection.socket.pause_writing()
    transport, loop = connection.transport, connection.loop
    connection.socket.connections.clear()
    transport.protocol = None
    del connection.socket
    gc.collect()
    loop.fire()
    assert not transport.is_closed
