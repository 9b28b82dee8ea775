"""A rejected request body is read within limits before the connection closes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voice_runtime.lingering_close import LingeringCloseMiddleware

PART = bytes(1 << 20)


class Client:
    """The client of a connection, which sends parts of a body and counts those that are read."""

    def __init__(self, parts: float, *, is_complete: bool = False) -> None:
        self.parts = parts
        self.is_complete = is_complete
        self.read = 0
        self.received: list[Message] = []
        self.read_when_answered: list[int] = []

    async def next_part(self) -> Message:
        if not self.parts:
            await asyncio.Event().wait()
        self.parts -= 1
        self.read += 1
        if self.is_complete and not self.parts:
            return {"type": "http.request", "body": b"x"}
        return {"type": "http.request", "body": PART, "more_body": True}

    async def accept(self, message: Message) -> None:
        self.received.append(message)
        if message.get("body"):
            self.read_when_answered.append(self.read)

    async def request(self, headers: dict[str, str]) -> bytes:
        return await self.request_from(PlainTextResponse("refused", headers=headers))

    async def request_from(self, program: ASGIApp) -> bytes:
        app = LingeringCloseMiddleware(program)
        await asyncio.wait_for(app({"type": "http", "method": "POST"}, self.next_part, self.accept), 60)
        assert [message.get("more_body", False) for message in self.received][-1] is False
        return b"".join(message.get("body", b"") for message in self.received)


async def test_endless_body_is_read_up_to_a_limit() -> None:
    client = Client(float("inf"))
    assert await client.request({"Connection": "close"}) == b"refused"
    assert client.read * len(PART) == 8 << 20
    assert client.read_when_answered == [0], "the response precedes the rest of the body"


async def test_silent_client_is_awaited_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s: list[float | None] = []
    begin = asyncio.timeout

    def begin_shorter(limit_s: float | None) -> asyncio.Timeout:
        limits_s.append(limit_s)
        return begin(0.05)

    monkeypatch.setattr(asyncio, "timeout", begin_shorter)
    client = Client(2)
    assert await client.request({"Connection": "close"}) == b"refused"
    assert client.read == 2
    assert limits_s == [2]


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_body_is_read_to_its_end(parts: int) -> None:
    client = Client(parts, is_complete=True)
    assert await client.request({"Connection": "close"}) == b"refused"
    assert client.read == parts


async def test_a_response_to_a_complete_request_ends_at_once() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        size = len(await Request(scope, receive).body())
        await PlainTextResponse(f"{size}", headers={"Connection": "close"})(scope, receive, send)

    client = Client(2, is_complete=True)
    assert await client.request_from(answer) == b"1048577"
    assert [message.get("more_body", False) for message in client.received] == [False, False]


async def test_a_response_in_parts_is_complete_before_the_rest_of_the_body_is_read() -> None:
    async def parts() -> AsyncIterator[str]:
        for part in ("a", "b"):
            yield part

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(parts(), headers={"Connection": "close"})(
            {**scope, "asgi": {"spec_version": "2.4"}}, receive, send
        )

    client = Client(3, is_complete=True)
    assert await client.request_from(answer) == b"ab"
    assert client.read_when_answered == [0, 0]
    assert client.read == 3


async def test_connection_that_stays_open_is_left_to_the_server() -> None:
    client = Client(float("inf"))
    assert await client.request({}) == b"refused"
    assert client.read == 0
