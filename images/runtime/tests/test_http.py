"""Client addresses of requests, and the limit of connections that have sent no request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import uvicorn
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.server import ServerState

from images.conftest import BUSY_TIMEOUT_S
from images.strangers import COMPLETE_HEAD, PARTIAL_HEAD, build_upgrade_head, flood_without_reading, wait_until_closed
from voice_runtime import http, websocket
from voice_runtime.http import get_client_address


@pytest.mark.parametrize(
    ("headers", "forwarded", "address"),
    [
        ([], True, "10.0.0.9"),
        (["203.0.113.7"], False, "10.0.0.9"),
        (["203.0.113.7"], True, "203.0.113.7"),
        (["203.0.113.7:4711"], True, "203.0.113.7"),
        (["198.51.100.1, 203.0.113.7:4711"], True, "203.0.113.7"),
        (["198.51.100.1", "203.0.113.7:4711"], True, "203.0.113.7"),
        (["2001:db8::7"], True, "2001:db8::7"),
        (["[2001:db8::7]:4711"], True, "[2001:db8::7]"),
        (["203.0.113.7, "], True, "10.0.0.9"),
    ],
)
def test_client_address_comes_from_the_proxy_header_if_any(headers: list[str], forwarded: bool, address: str) -> None:
    found = [(b"x-forwarded-for", each.encode()) for each in headers]
    request = Request({"type": "http", "headers": found, "client": ("10.0.0.9", 1)})
    assert get_client_address(request, forwarded=forwarded) == address


async def test_a_connection_beyond_the_limit_closes_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_HEAD_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    config = uvicorn.Config(Starlette(), ws="none", log_config=None)
    protocol, state = http.RequestHeadTimeoutProtocol.with_connection_limit(2), ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        opened = []
        for _ in range(3):
            opened.append(await asyncio.open_connection("127.0.0.1", port))
            opened[-1][1].write(PARTIAL_HEAD)
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            assert await wait_until_closed(opened[0])
        assert not any(reader.at_eof() for reader, _ in opened[1:])
        for _, writer in opened:
            writer.close()


async def _large(_: Request) -> Response:
    return StreamingResponse(iter(["x" * (1 << 19)] * 2))


async def _talk(socket: WebSocket) -> None:
    await socket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        await socket.send_text("x" * (8 << 20))
        await socket.close()


async def _listen(socket: WebSocket) -> None:
    await socket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await socket.receive_bytes()


@contextlib.asynccontextmanager
async def _serving(room: int) -> AsyncIterator[tuple[int, ServerState]]:
    """Serve large answers at a port, with room for so many connections without a request."""
    app = Starlette(
        routes=[Route("/healthz", _large), WebSocketRoute("/talk", _talk), WebSocketRoute("/listen", _listen)]
    )
    sockets = websocket.PacedWebSocket.with_limits({"/listen": 4 << 20})
    config = uvicorn.Config(
        app, ws=sockets, ws_max_size=1 << 16, timeout_keep_alive=2 * BUSY_TIMEOUT_S, log_config=None
    )
    protocol, state = http.RequestHeadTimeoutProtocol.with_connection_limit(room), ServerState()
    async with await asyncio.get_running_loop().create_server(
        lambda: protocol(config, state, {}), "127.0.0.1", 0
    ) as server:
        yield server.sockets[0].getsockname()[1], state


async def _until_no_more_than(connections: int, state: ServerState) -> None:
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while len(state.connections) > connections or len(state.tasks) > connections:
            await asyncio.sleep(0.02)


async def test_connections_with_unread_responses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "CLIENT_READ_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    async with _serving(room=2) as (port, state):
        async with contextlib.AsyncExitStack() as opened:
            for _ in range(5):  # each waits for its client to read before the next one comes
                await opened.enter_async_context(flood_without_reading(port, COMPLETE_HEAD, count=1))
            await _until_no_more_than(2, state)
            assert len(state.connections) == 2
        await _until_no_more_than(0, state)


@pytest.mark.parametrize("head", [b"", build_upgrade_head("/talk")], ids=["http", "websocket"])
async def test_a_client_that_reads_nothing_is_closed(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(websocket, "CLIENT_READ_TIMEOUT_S", 0.5)
    async with (
        _serving(room=100) as (port, state),
        flood_without_reading(port, b"" if head else COMPLETE_HEAD, head, count=5),
    ):
        await _until_no_more_than(0, state)


async def test_a_slow_client_receives_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "CLIENT_READ_TIMEOUT_S", 0.5)
    async with _serving(room=1) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        writer.write(COMPLETE_HEAD)
        await reader.readuntil(b"\r\n\r\n")
        body = 0
        while body < 1 << 20:
            body += len(await reader.read(32 * 1024))
            await asyncio.sleep(0.1)
        writer.close()


async def test_incomplete_large_messages_are_limited_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_TOTAL_LARGE_MESSAGE_BYTES", 3 << 20)
    never = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield bytes(2 << 20)
        await never.wait()

    async with _serving(room=1) as (port, _):
        clients = [await websockets.connect(f"ws://127.0.0.1:{port}/listen") for _ in range(2)]
        sending = [asyncio.create_task(each.send(half())) for each in clients]
        closing = [asyncio.create_task(each.wait_closed()) for each in clients]
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)
        assert [each.close_code for each in clients if each.close_code] == [1013]
        for each in (*sending, *closing):
            each.cancel()
        await asyncio.gather(*sending, *closing, *(each.close() for each in clients), return_exceptions=True)


async def test_pipelined_requests_do_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is followed by a rest of its connection, the longer the more connections there are that rest."""
    loop, served = asyncio.get_running_loop(), 0

    async def count(*_: object) -> Response:
        nonlocal served
        served += 1
        return PlainTextResponse("ok")

    monkeypatch.setitem(globals(), "_large", count)

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(COMPLETE_HEAD * 10_000)
        while await reader.read(1 << 16):
            pass

    async with _serving(room=5) as (port, _):
        since = loop.time()
        asking = [asyncio.create_task(ask(port)) for _ in range(5)]
        while served < 200:
            await asyncio.sleep(0.02)
        assert loop.time() - since >= 0.8 * (served - 5) * 0.004, "a fifth of the loop, at 1 ms a request"
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
