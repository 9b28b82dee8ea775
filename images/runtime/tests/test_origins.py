"""Web origins that may use a program on this machine, or on a network without keys."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from voice_runtime.origins import OriginCheckMiddleware, is_local_host


@pytest.mark.parametrize(
    ("name", "local"),
    [("localhost", True), ("a.localhost", True), ("localhost.", True), ("127.0.0.9", True), ("::1", True),
     ("localhost.evil.test", False), ("10.0.0.1", False), ("", False), ("notlocalhost", False)],
)  # fmt: skip
def test_local_names_are_recognized(name: str, local: bool) -> None:
    assert is_local_host(name) is local


async def status(arrived: str, host: str, origin: str | None, *, same_origin: bool = False, path: str = "/") -> int:
    sent: list[Message] = []
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope: Scope = {"type": "http", "path": path, "method": "GET", "server": (arrived, 80), "headers": headers}

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await OriginCheckMiddleware(PlainTextResponse("ok"), ["https://page.test"], same_origin=same_origin)(
        scope, receive, send
    )
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
    ],
)
async def test_pages_are_accepted_by_origin(
    arrived: str, host: str, origin: str | None, same_origin: bool, expected: int
) -> None:
    assert await status(arrived, host, origin, same_origin=same_origin) == expected


async def test_health_is_public() -> None:
    assert await status("127.0.0.1", "evil.test", "https://evil.test", path="/healthz") == 200
