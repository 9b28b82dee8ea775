"""Close codes of callers' sockets, and connections to a gateway that stops reading."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import websockets
from starlette.types import Message

from images.agent.tests.conftest import settings_of
from images.agent.tests.engines import Engines
from images.conftest import BUSY_TIMEOUT_S
from voice_agent import connections, speech_to_text
from voice_agent.connections import CallerWebSocket, CloseReason
from voice_agent.speech_to_text import GatewayClient
from voice_agent.trace import ConversationTracer

MESSAGE = "a" * 2**20


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (None, 1000),
        (connections.MALFORMED_MESSAGE, 1007),
        (connections.CALLER_REFUSED, 1008),
        (connections.TRY_AGAIN_LATER, 1013),
    ],
)
async def test_a_socket_is_closed_with_the_code_of_its_conversation(ending: CloseReason | None, code: int) -> None:
    """Pipecat's transport closes each one with 1000."""
    messages: list[Message] = [{"type": "websocket.connect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    socket = CallerWebSocket({"type": "websocket"}, receive, send)
    await socket.accept()
    if ending:
        socket.ending = ending
    await socket.close(code=1000)
    assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", code)
    assert sent[-1]["reason"]


@pytest.fixture
async def connection() -> AsyncIterator[websockets.ClientConnection]:
    """A connection to a gateway that accepts it, and reads nothing."""
    stopped = asyncio.Event()

    async def stop_reading(socket: websockets.ServerConnection) -> None:
        socket.transport.pause_reading()
        await stopped.wait()
        socket.transport.abort()

    async with websockets.serve(stop_reading, "127.0.0.1", 0) as gateway:
        engines = Engines()
        engines.port = next(iter(gateway.sockets)).getsockname()[1]
        connection = await GatewayClient(
            settings_of(engines, 1), "", ConversationTracer("", 0, "test").begin()
        ).open_session()
        yield connection
        connection.transport.abort()
        stopped.set()


async def send_continuously(connection: websockets.ClientConnection) -> None:
    while True:
        await connection.send(MESSAGE)


async def test_a_gateway_that_stops_reading_is_disconnected(
    connection: websockets.ClientConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_to_text, "SEND_TIMEOUT_S", 0.2)
    async with asyncio.timeout(BUSY_TIMEOUT_S / 4):
        with pytest.raises(websockets.ConnectionClosed):
            await send_continuously(connection)


async def test_a_connection_to_a_gateway_that_stops_reading_can_be_closed(
    connection: websockets.ClientConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_to_text, "CLOSE_TIMEOUT_S", 0.2)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(send_continuously(connection), 0.5)  # cancelled, like a pipeline that ends
    async with asyncio.timeout(BUSY_TIMEOUT_S / 4):
        await connection.close()
    assert connection.state is websockets.State.CLOSED
