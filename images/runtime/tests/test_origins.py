"""Web origins that may use a program on this machine, or on a network without keys."""

import json

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voice_runtime.origins import OriginCheckMiddleware, is_local_host


@pytest.mark.parametrize(
    ("name", "local"),
    [("localhost", True), ("a.localhost", True), ("localhost.", True), ("127.0.0.9", True), ("::1", True),
     ("localhost.evil.test", False), ("10.0.0.1", False), ("", False), ("notlocalhost", False)],
)  # fmt: skip
def test_local_names_are_recognized(name: str, local: bool) -> None:
    assert is_local_host(name) is local


async def answer(scope: Scope, app: ASGIApp, *, same_origin: bool = False) -> list[Message]:
    """Return what is sent in response to a request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await OriginCheckMiddleware(app, ["https://page.test"], same_origin=same_origin)(scope, receive, send)
    return sent


async def status(arrived: str, host: str, origin: str | None, *, same_origin: bool = False, path: str = "/") -> int:
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope: Scope = {"type": "http", "path": path, "method": "GET", "server": (arrived, 80), "headers": headers}
    sent = await answer(scope, PlainTextResponse("ok"), same_origin=same_origin)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("arrived", "host", "origin", "same_origin", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:8080", None, False, 200),
        ("127.0.0.1", "localhost", "http://localhost:3000", False, 200),
        ("127.0.0.1", "localhost", "https://page.test", False, 200),
        ("127.0.0.1", "localhost", "https://evil.test", False, 403),
        ("127.0.0.1", "evil.test", None, False, 403),
        ("127.0.0.1", "[", None, False, 403),
        ("10.0.0.1", "voice.test", "https://evil.test", False, 200),
        ("10.0.0.1", "voice.test", "https://evil.test", True, 403),
        ("10.0.0.1", "voice.test", "https://voice.test", True, 200),
        ("10.0.0.1", "voice.test", None, True, 200),
        ("10.0.0.1", "voice.test", "https://page.test", True, 200),
        ("10.0.0.1", "voice.test", "null", True, 403),
        ("10.0.0.1", "localhost", "https://evil.test", False, 403),
        ("10.0.0.1", "localhost", "http://127.0.0.1", True, 200),
    ],
)
async def test_pages_are_accepted_by_origin(
    arrived: str, host: str, origin: str | None, same_origin: bool, expected: int
) -> None:
    assert await status(arrived, host, origin, same_origin=same_origin) == expected


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
async def test_health_is_public(path: str) -> None:
    assert await status("127.0.0.1", "evil.test", "https://evil.test", path=path) == 200


async def accept(scope: Scope, _: Receive, send: Send) -> None:
    await send({"type": f"{scope['type']}.accepted"})


FOREIGN: Scope = {"path": "/", "server": ("127.0.0.1", 80), "headers": [(b"host", b"evil.test")]}


async def test_a_websocket_of_a_foreign_page_is_refused_with_the_reason() -> None:
    scope = {**FOREIGN, "type": "websocket", "extensions": {"websocket.http.response": {}}}
    start, body = await answer(scope, accept)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 403)
    assert json.loads(body["body"]) == {
        "error": "foreign page", "detail": "Host 'evil.test' is not this machine; use localhost or 127.0.0.1"
    }  # fmt: skip
    assert await answer(scope | {"headers": []} | {"server": None}, accept) == [{"type": "websocket.accepted"}]


async def test_messages_that_are_no_requests_are_not_checked() -> None:
    assert await answer({"type": "lifespan"}, accept) == [{"type": "lifespan.accepted"}]
