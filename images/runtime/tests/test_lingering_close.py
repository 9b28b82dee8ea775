"""A rejected request body is read within limits before the connection closes."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from voice_runtime import lingering_close
from voice_runtime.lingering_close import MAX_LINGER_BYTES, LingeringCloseMiddleware

PART = bytes(1 << 20)


class Client:
    """The client of a connection, which sends parts of a body and counts those that are read."""

    def __init__(self, parts: float) -> None:
        self.parts = parts
        self.read = 0
        self.received: list[Message] = []
        self.read_when_answered: list[int] = []

    async def next_part(self) -> Message:
        if not self.parts:
            await asyncio.Event().wait()
        self.parts -= 1
        self.read += 1
        return {"type": "http.request", "body": PART, "more_body": True}

    async def accept(self, message: Message) -> None:
        self.received.append(message)
        if message.get("body"):
            self.read_when_answered.append(self.read)

    async def request(self, headers: dict[str, str]) -> bytes:
        app = LingeringCloseMiddleware(PlainTextResponse("refused", headers=headers))
        await asyncio.wait_for(app({"type": "http", "method": "POST"}, self.next_part, self.accept), 60)
        assert [message.get("more_body", False) for message in self.received][-1] is False
        return b"".join(message.get("body", b"") for message in self.received)


async def test_endless_body_is_read_up_to_a_limit() -> None:
    client = Client(float("inf"))
    assert await client.request({"Connection": "close"}) == b"refused"
    assert client.read * len(PART) == MAX_LINGER_BYTES
    assert client.read_when_answered == [0], "the response precedes the rest of the body"


async def test_silent_client_is_awaited_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering_close, "MAX_LINGER_S", 0.05)
    client = Client(2)
    assert await client.request({"Connection": "close"}) == b"refused"
    assert client.read == 2


async def test_connection_that_stays_open_is_left_to_the_server() -> None:
    client = Client(float("inf"))
    assert await client.request({}) == b"refused"
    assert client.read == 0
