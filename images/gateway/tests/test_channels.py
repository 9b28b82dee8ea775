"""One socket per channel of a client's audio."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketState

from images.conftest import BUSY_TIMEOUT_S
from voice_gateway.audio import AudioFormat, Encoding
from voice_gateway.channels import ChannelSplitter

DISCONNECT: Message = {"type": "websocket.disconnect", "code": 1001, "reason": ""}


class Connection:
    """The client's side of a socket with two channels."""

    def __init__(self, encoding: Encoding = Encoding.PCM16) -> None:
        self.received: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        websocket = WebSocket({"type": "websocket"}, self.received.get, self._keep)
        websocket.client_state = websocket.application_state = WebSocketState.CONNECTED
        self.splitter = ChannelSplitter(websocket, AudioFormat(encoding=encoding, channels=2))
        self.left, self.right = self.splitter.sockets

    async def _keep(self, message: Message) -> None:
        self.sent.append(message)

    def send(self, *messages: bytes | str | Message) -> None:
        for each in messages:
            part = {"bytes": each} if isinstance(each, bytes) else {"text": each}
            self.received.put_nowait(each if isinstance(each, dict) else {"type": "websocket.receive", **part})

    async def split(self) -> list[list[Any]]:
        """Return the messages of each channel up to the end of the connection."""
        self.send(DISCONNECT)
        splitting = asyncio.create_task(self.splitter.run())
        channels = [await read_until_disconnect(each) for each in (self.left, self.right)]
        await asyncio.wait_for(splitting, BUSY_TIMEOUT_S)
        return channels


async def read_until_disconnect(socket: WebSocket) -> list[Any]:
    messages = []
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while (message := await socket.receive()) != DISCONNECT:
            messages.append(message.get("text", message.get("bytes")))
    return messages


@pytest.mark.parametrize(
    ("encoding", "audio", "channels"),
    [
        (Encoding.PCM16, b"aabbccdd", [[b"aacc"], [b"bbdd"]]),
        (Encoding.MULAW, b"abcd", [[b"ac"], [b"bd"]]),
        (Encoding.ALAW, b"abcd", [[b"ac"], [b"bd"]]),
    ],
)
async def test_samples_of_the_channels_alternate(encoding: Encoding, audio: bytes, channels: list[Any]) -> None:
    """A sample has two bytes in PCM16, and one in G.711."""
    connection = Connection(encoding)
    connection.send(audio)
    assert await connection.split() == channels


@pytest.mark.parametrize("size", [1, 2, 3, 5])
async def test_messages_may_end_within_a_sample(size: int) -> None:
    connection = Connection()
    audio = b"aabbccddeeffgghhiijjkkllmmnnoo"
    connection.send(*(audio[begin : begin + size] for begin in range(0, len(audio), size)))
    left, right = await connection.split()
    assert (b"".join(left), b"".join(right)) == (b"aacceeggiikkmm", b"bbddffhhjjllnn")
    assert b"" not in left + right, "an empty message would end a channel"


async def test_other_messages_are_for_all_channels() -> None:
    connection = Connection()
    connection.send("text", b"", b"aabb")
    assert await connection.split() == [["text", b"", b"aa"], ["text", b"", b"bb"]]


async def test_a_channel_lags_behind_by_sixteen_messages_at_most() -> None:
    """Further messages wait in the connection, whose client then has to wait as well."""
    connection = Connection()
    connection.send(*([b"aabb"] * 20))
    splitting = asyncio.create_task(connection.splitter.run())
    for _ in range(100):  # the task runs until it waits
        await asyncio.sleep(0)
    assert connection.received.qsize() == 20 - 16 - 1
    for _ in range(17):
        await connection.left.receive()
    for _ in range(100):
        await asyncio.sleep(0)
    assert connection.received.qsize() == 20 - 16 - 1, "the right channel has received nothing yet"
    connection.send(DISCONNECT)
    await connection.right.close(1000)
    await asyncio.wait_for(read_until_disconnect(connection.left), BUSY_TIMEOUT_S)
    await asyncio.wait_for(splitting, BUSY_TIMEOUT_S)


async def test_messages_of_a_channel_are_sent_unchanged() -> None:
    connection = Connection()
    await connection.left.send_text("left")
    await connection.right.send_text("right")
    assert [message["text"] for message in connection.sent] == ["left", "right"]


def closes(connection: Connection) -> list[tuple[int, str]]:
    return [(each["code"], each["reason"]) for each in connection.sent if each["type"] == "websocket.close"]


async def test_the_connection_is_closed_after_its_last_channel() -> None:
    connection = Connection()
    await connection.left.close(1000, "left")
    assert closes(connection) == []
    await connection.right.close(1000, "right")
    assert closes(connection) == [(1000, "right")]


@pytest.mark.parametrize("code", [1001, 1012])
async def test_an_error_of_a_channel_closes_the_connection(code: int) -> None:
    connection = Connection()
    await connection.left.close(code, "why")
    assert closes(connection) == [(code, "why")]


def test_the_last_channel_is_the_second_one_to_complete() -> None:
    splitter = Connection().splitter
    assert [splitter.mark_channel_complete() for _ in range(2)] == [False, True]
