"""The state of one connection: when it is paused, and when a request must be complete in time."""

import asyncio
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

from images.conftest import BUSY_TIMEOUT_S
from images.strangers import COMPLETE_HEAD, PARTIAL_HEAD
from voice_runtime import http
from voice_runtime.websocket import MAX_SLICE_BYTES

SLICES = 4
TURN_S = 0.005
"""CPU time after which a connection is paused."""


def ok(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


def protocol_for(state: ServerState) -> Callable[[], http.RequestHeadTimeoutProtocol]:
    kind = http.RequestHeadTimeoutProtocol.with_connection_limit(2)
    config = uvicorn.Config(Starlette(routes=[Route("/healthz", ok)]), ws="none", timeout_keep_alive=2 * BUSY_TIMEOUT_S)
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

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.005)

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
