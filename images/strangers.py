"""Unauthenticated clients that keep connections open, for the image tests."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

PARTIAL_HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
COMPLETE_HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
CONNECTION_COUNT = 100
_UPGRADE_HEAD = (
    "HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def build_malformed_upgrade_heads(path: str) -> dict[str, bytes]:
    """Return the heads of WebSocket requests that h11 accepts and ``websockets`` rejects, by defect."""
    return {
        "line": f"GET {path}?{'a' * 9000} {_UPGRADE_HEAD}\r\n".encode(),
        "header": f"GET {path} {_UPGRADE_HEAD}X: {'a' * 9000}\r\n\r\n".encode(),
        "headers": f"GET {path} {_UPGRADE_HEAD}".encode() + b"a: b\r\n" * 200 + b"\r\n",
        "method": f"POST {path} {_UPGRADE_HEAD}\r\n".encode(),
        "body": f"GET {path} {_UPGRADE_HEAD}Content-Length: 5\r\n\r\n".encode(),
    }


FRAME_MASK = bytes(4)
PING, PONG, EMPTY_TEXT = (bytes([opcode, 0x80]) + FRAME_MASK for opcode in (0x89, 0x8A, 0x81))
FRAGMENTED_MESSAGE = (
    bytes([0x01, 0x80]) + FRAME_MASK + (bytes([0x00, 0x80]) + FRAME_MASK) * 50 + bytes([0x80, 0x80]) + FRAME_MASK
)
LONG_PING = bytes([0x89, 0xFD]) + FRAME_MASK + bytes(125)
SMALLEST_FRAMES_BY_NAME = {"pings": PING, "pongs": PONG, "empty messages": EMPTY_TEXT, "fragments": FRAGMENTED_MESSAGE}
"""The smallest frames that a WebSocket client can send (RFC 6455, section 5.2), by kind."""
FLOOD_CONNECTION_COUNT = 4
MAX_ATTEMPTS = 5
LATENCY_TOLERANCE_S = 0.5
"""Permitted additional time for a request. In an idle process, a request takes a few milliseconds."""

MAX_RECOVERY_S = 60
"""Maximum time that a server processes the data of strangers who have left."""

BLOCKED_AFTER_S = 1
"""Clients that read nothing count as blocked when the server has accepted no data from any of them for this time."""
MAX_FLOOD_S = 30
"""Maximum time to wait until these clients are blocked. A caller is measured even if they are not."""

IdleConnection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def open_idle_connections(
    port: int, *parts: bytes, count: int = CONNECTION_COUNT
) -> AsyncIterator[list[IdleConnection]]:
    """Open connections, send each part after the response to the previous part, and leave the connections open."""

    async def connect_and_send() -> IdleConnection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts[:-1]:
            writer.write(part)
            await reader.readuntil(b"\r\n\r\n")
        writer.write(parts[-1])
        return reader, writer

    opened = await asyncio.gather(*(connect_and_send() for _ in range(count)))
    try:
        yield list(opened)
    finally:
        for _, writer in opened:
            writer.close()


async def wait_until_closed(stranger: IdleConnection) -> bool:
    """Wait until a connection is closed, and return True."""
    with contextlib.suppress(ConnectionError):
        while await stranger[0].read(4096):
            pass
    return True


async def check_caller_latency(
    name: str, measure_caller: Callable[[], Awaitable[float]], attack: Callable[[], AbstractAsyncContextManager[object]]
) -> None:
    """Check that a caller is served within twice the usual time during an attack.

    Other programs may occupy the machine's cores in some attempts, but are unlikely to do so in all. The usual time is
    measured after the server has processed the data of the attempt before.
    """
    tries = []
    for _ in range(MAX_ATTEMPTS):
        recovery_ends_at = time.monotonic() + MAX_RECOVERY_S
        while (baseline_s := await measure_caller()) > LATENCY_TOLERANCE_S and time.monotonic() < recovery_ends_at:
            await asyncio.sleep(LATENCY_TOLERANCE_S)
        async with attack():
            duration_s = await measure_caller()
        if duration_s < 2 * baseline_s + LATENCY_TOLERANCE_S:
            return
        tries.append(f"{duration_s:.1f} s, and {baseline_s:.1f} s before")
    raise AssertionError(f"{name}: {'; '.join(tries)}")


@contextlib.asynccontextmanager
async def flood_without_reading(
    port: int, piece: bytes, head: bytes = b"", count: int = CONNECTION_COUNT
) -> AsyncIterator[None]:
    """Send a piece until the server accepts no more, and read only the first byte of the response to the head."""
    loop = asyncio.get_running_loop()
    accepted_at = time.monotonic()

    async def send(to: socket.socket) -> None:
        nonlocal accepted_at
        await loop.sock_connect(to, ("127.0.0.1", port))
        if head:
            await loop.sock_sendall(to, head)
            await loop.sock_recv(to, 1)
        while piece:
            await loop.sock_sendall(to, piece)
            accepted_at = time.monotonic()
        await asyncio.Event().wait()

    with contextlib.ExitStack() as opened:
        tasks = []
        for _ in range(count):
            each = opened.enter_context(socket.socket())
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            tasks.append(asyncio.create_task(send(each)))
        deadline = time.monotonic() + MAX_FLOOD_S
        while time.monotonic() < min(accepted_at + BLOCKED_AFTER_S, deadline):
            await asyncio.sleep(BLOCKED_AFTER_S / 10)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError | ConnectionError) for each in ends), ends


def count_open_files(pid: int) -> int:
    """Return the number of files and sockets that a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.asynccontextmanager
async def flood_frames(port: int, path: str, frame: bytes) -> AsyncIterator[None]:
    """Send frames as fast as the server reads them, on sockets that never read a response."""
    async with _flood(port, build_upgrade_head(path), frame, answer=b" 101 "):
        yield


def build_upgrade_head(path: str) -> bytes:
    """Return the head of a WebSocket upgrade request."""
    return f"GET {path} {_UPGRADE_HEAD}\r\n".encode()


@contextlib.asynccontextmanager
async def flood_chunks(port: int, method_and_path: str) -> AsyncIterator[None]:
    """Send endless bodies in the smallest possible chunks (RFC 9112, section 7.1), as fast as the server reads them."""
    head = f"{method_and_path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with _flood(port, head.encode(), b"1\r\nx\r\n"):
        yield


@contextlib.asynccontextmanager
async def _flood(port: int, head: bytes, piece: bytes, answer: bytes = b"") -> AsyncIterator[None]:
    async def send_until_disconnected() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(head)
            assert not answer or answer in await reader.readuntil(b"\r\n\r\n")
            while True:
                writer.write(piece * 10_000)
                await writer.drain()
        finally:
            writer.close()

    async def flood() -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await send_until_disconnected()
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(flood()) for _ in range(FLOOD_CONNECTION_COUNT)]
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        failed = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [each for each in failed if not isinstance(each, asyncio.CancelledError)], failed
