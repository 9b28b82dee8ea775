"""Idle connections of unauthenticated clients do not prevent a caller from connecting."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial

import httpx2
import pytest
import websockets
from redis.asyncio import Redis
from websockets.frames import CloseCode

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.issuer import AUDIENCE, Issuer
from images.gateway.tests.running import TOKEN_KEY, GatewayProcess
from images.gateway.tests.test_transcriptions import TRANSCRIPTIONS, client_of, noise, wav
from images.strangers import (
    COMPLETE_HEAD,
    CONNECTION_COUNT,
    PARTIAL_HEAD,
    SMALLEST_FRAMES_BY_NAME,
    build_malformed_upgrade_heads,
    check_caller_latency,
    count_open_files,
    flood_chunks,
    flood_frames,
    flood_without_reading,
    open_idle_connections,
    wait_until_closed,
)
from voice_blueprint.contract.openapi import OPENAPI_PATH
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S
from voice_gateway.gateway import MAX_CONCURRENT_FILES, MAX_UNAUTHENTICATED_UPLOADS, UPLOAD_DISCARD_TIMEOUT_S
from voice_gateway.tokens import SessionTokenManager
from voice_runtime import state
from voice_runtime.http import MAX_IDLE_CONNECTIONS, REQUEST_HEAD_TIMEOUT_S
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.websocket import CLIENT_READ_TIMEOUT_S

pytestmark = pytest.mark.usefixtures("hosts")
CLOSED = 0
REQUEST = '{"transport": "websocket"}'


async def time_to_health(gateway: GatewayProcess) -> float:
    since = time.monotonic()
    async with gateway.client() as client:
        assert (await client.get(f"http://127.0.0.1:{gateway.media_port}/healthz")).status_code == 200
    return time.monotonic() - since


@pytest.mark.parametrize("parts", [(PARTIAL_HEAD,), (COMPLETE_HEAD, PARTIAL_HEAD)], ids=["first head", "second head"])
async def test_incomplete_head_times_out(start: Start, parts: tuple[bytes, ...]) -> None:
    gateway = await start(MAX_CONNECTIONS=20).ready()
    await check_caller_latency(
        "heads", partial(time_to_health, gateway), partial(open_idle_connections, gateway.media_port, *parts)
    )
    async with open_idle_connections(gateway.media_port, *parts) as opened:
        async with asyncio.timeout(REQUEST_HEAD_TIMEOUT_S + BUSY_TIMEOUT_S):
            assert all(await asyncio.gather(*map(wait_until_closed, opened)))


async def test_idle_connections_are_bounded_and_the_busiest_address_loses_its_oldest(gateway: GatewayProcess) -> None:
    beyond = 100
    async with open_idle_connections(gateway.media_port, PARTIAL_HEAD, count=MAX_IDLE_CONNECTIONS + beyond) as opened:
        endings = [asyncio.create_task(wait_until_closed(each)) for each in opened]
        async with asyncio.timeout(REQUEST_HEAD_TIMEOUT_S):  # the timeout that applies to all of them
            while sum(each.done() for each in endings) < beyond:
                await asyncio.sleep(0.02)
        await time_to_health(gateway)
        for each in endings:
            each.cancel()
        await asyncio.gather(*endings, return_exceptions=True)


async def test_unread_responses_are_limited_in_number_and_time(start: Start) -> None:
    gateway = await start(MAX_CONNECTIONS=20).ready()
    before = count_open_files(gateway.process.pid)
    requests = f"GET {OPENAPI_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 100
    more_than_its_connections = partial(
        flood_without_reading, gateway.media_port, requests, count=MAX_IDLE_CONNECTIONS + 100
    )
    await check_caller_latency("unread answers", partial(time_to_health, gateway), more_than_its_connections)
    async with more_than_its_connections(), asyncio.timeout(CLIENT_READ_TIMEOUT_S + BUSY_TIMEOUT_S):
        while count_open_files(gateway.process.pid) > before + 20:  # connections to the store, and health checks
            await asyncio.sleep(0.1)


async def test_a_slowly_sent_head_times_out(gateway: GatewayProcess) -> None:
    async with open_idle_connections(gateway.media_port, PARTIAL_HEAD) as [(reader, writer), *_]:
        ending = asyncio.create_task(wait_until_closed((reader, writer)))
        since = time.monotonic()
        while not ending.done():
            writer.write(b"x")
            await asyncio.sleep(0.5)
            assert time.monotonic() - since < REQUEST_HEAD_TIMEOUT_S + BUSY_TIMEOUT_S


async def test_invalid_upgrades_are_rejected_and_closed(gateway: GatewayProcess) -> None:
    for name, head in build_malformed_upgrade_heads("/v1/presence").items():
        async with (
            open_idle_connections(gateway.media_port, head, count=1) as [(reader, writer)],
            asyncio.timeout(BUSY_TIMEOUT_S),
        ):
            assert (await reader.readline())[:10] == b"HTTP/1.1 4", name
            assert await wait_until_closed((reader, writer)), name


async def test_a_client_that_disconnects_during_its_body_is_not_an_error(start: Start) -> None:
    gateway = await start(AUTHORIZER="none").ready()
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n%s\r\n--x\r\n"
    form = b"Content-Type: multipart/form-data; boundary=x\r\n"
    for port, path in ((gateway.http_port, b"/v1/sessions"), (gateway.media_port, TRANSCRIPTIONS.encode())):
        async with open_idle_connections(port, head % (path, form), count=1):
            await asyncio.sleep(0.5)
    await asyncio.sleep(0.5)
    await time_to_health(gateway)
    assert not [line for line in gateway.logged() if line.get("level") == "error"]


async def test_invalid_utf8_closes_the_socket_without_an_error(start: Start) -> None:
    gateway = await start(AUTHORIZER="none").ready()
    async with websockets.connect(f"ws://127.0.0.1:{gateway.media_port}/v1/presence") as socket:
        await socket.send(b"\xff", text=True)
        await socket.wait_closed()
    assert socket.close_code == CloseCode.INVALID_DATA
    await time_to_health(gateway)
    assert not [line for line in gateway.logged() if line.get("level") == "error"]


async def test_the_rest_of_an_answered_body_times_out(gateway: GatewayProcess) -> None:
    head = b"POST /healthz HTTP/1.1\r\nHost: gateway\r\nContent-Length: 1000\r\n\r\n"
    async with (
        open_idle_connections(gateway.media_port, head) as opened,
        asyncio.timeout(REQUEST_HEAD_TIMEOUT_S + BUSY_TIMEOUT_S),
    ):
        assert all(await asyncio.gather(*map(wait_until_closed, opened)))


async def test_slow_uploads_use_no_slot(gateway: GatewayProcess, store: Redis) -> None:
    async with _slow_uploads(gateway, MAX_CONCURRENT_FILES + 1):
        client = client_of(gateway)
        asking = asyncio.create_task(client.audio.transcriptions.create(file=wav(noise(60)), model="any"))
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not await store.llen(state.QUEUED_FILE_PIECES_KEY):
                assert not asking.done(), asking.exception()
                await asyncio.sleep(0.02)
        asking.cancel()
        await asyncio.wait({asking})


async def test_a_caller_with_too_many_uploads_loses_its_oldest(start: Start) -> None:
    gateway = await (await start(AUTHORIZER="none").ready()).accepts_callers()
    async with _slow_uploads(gateway, 40) as uploading:
        done, _ = await asyncio.wait(uploading, timeout=BUSY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        assert done.pop().result() in {429, CLOSED}


async def test_an_unauthenticated_upload_is_closed_early(start: Start) -> None:
    gateway = await start(AUTHORIZER="iam").ready()
    async with _slow_uploads(gateway, 3) as uploading:
        done, _ = await asyncio.wait(uploading, timeout=REQUEST_HEAD_TIMEOUT_S + BUSY_TIMEOUT_S)
        assert len(done) == 3
        assert {each.result() for each in done} <= {401, CLOSED}


@pytest.mark.parametrize("path", ["/v1/listen?encoding=linear16&sample_rate=16000", "/v1/realtime", "/v1/presence"])
async def test_unknown_keys_use_no_connections(start: Start, store: Redis, issuer: Issuer, path: str) -> None:
    """The issuer is slow, and more unauthenticated clients wait for it than there may be connected callers."""
    issuer.answers.clear()
    gateway = await start(JWT_ISSUER=issuer.url, JWT_AUDIENCE=AUDIENCE, MAX_CONNECTIONS=5).ready()
    url = f"ws://127.0.0.1:{gateway.media_port}"
    unknown = {"Authorization": f"Bearer {issuer.token()}"}
    knocking = [asyncio.create_task(_knock(f"{url}{path}", unknown)) for _ in range(20)]
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not issuer.asked:
            await asyncio.sleep(0.02)
    tokens = SessionTokenManager(TOKEN_KEY, 60)
    ssrc = 7
    session = Session(
        ssrc, tokens.create_session_id(ssrc), SessionState.OPEN, SessionKind.GATEWAY, "caller", int(time.time()) + 60
    )
    assert await SessionStore(store).create(session, max_sessions=1)
    token, _ = tokens.create(session.id)
    async with websockets.connect(f"{url}/v1/sessions/{session.id}/audio", subprotocols=["voice.v1", token]):  # type: ignore[list-item]
        assert not any(each.done() for each in knocking), "they still wait"
    for each in knocking:
        each.cancel()
    await asyncio.gather(*knocking, return_exceptions=True)


async def _knock(url: str, headers: dict[str, str]) -> None:
    async with websockets.connect(url, additional_headers=headers, open_timeout=BUSY_TIMEOUT_S) as socket:
        await socket.wait_closed()


async def test_unauthenticated_uploads_are_limited_per_address(start: Start) -> None:
    """More than are read at a time: the oldest of the busiest address are answered immediately."""
    gateway = await start(AUTHORIZER="iam", FORWARDED="true").ready()
    head = b"POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: 100000\r\n\r\n" % TRANSCRIPTIONS.encode()
    async with open_idle_connections(gateway.media_port, head) as opened:
        answers = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader, _ in opened]
        async with asyncio.timeout(UPLOAD_DISCARD_TIMEOUT_S):  # the timeout for reading each of them
            while sum(each.done() for each in answers) < CONNECTION_COUNT - MAX_UNAUTHENTICATED_UPLOADS:
                await asyncio.sleep(0.02)
            assert all(b" 401 " in each.result() for each in answers if each.done())
            async with gateway.client() as client:
                answer = await client.post(
                    f"http://127.0.0.1:{gateway.media_port}{TRANSCRIPTIONS}",
                    content=b"x" * 100_000,
                    headers={"X-Forwarded-For": "203.0.113.7"},
                )
            assert answer.status_code == 401
        for each in answers:
            each.cancel()
        await asyncio.gather(*answers, return_exceptions=True)


async def test_callers_without_keys_are_distinguished_by_the_proxys_header(start: Start) -> None:
    gateway = await (
        await start(AUTHORIZER="none", FORWARDED="true", CALLER_CREATIONS_PER_S=1).ready()
    ).accepts_callers()

    async def asks(*forwarded: str) -> int:
        headers = [("X-Forwarded-For", each) for each in forwarded]
        return (await client.get(f"http://127.0.0.1:{gateway.media_port}/v1/models", headers=headers)).status_code

    async with gateway.client() as client:
        for _ in range(20):  # all but the first within a second have used up their share
            await asks("198.51.100.1, 203.0.113.7:1234")
        statuses = [await asks("198.51.100.1", f"{each}, 203.0.113.7:{each}") for each in range(5)]
        assert 429 in statuses, "a client chooses all but the last address"
        assert await asks("203.0.113.7", "203.0.113.8:1234") == 200


@contextlib.asynccontextmanager
async def _slow_uploads(gateway: GatewayProcess, count: int) -> AsyncIterator[list["asyncio.Task[int]"]]:
    async def drip() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        while True:
            yield b"\0"
            await asyncio.sleep(1)

    async def upload(client: httpx2.AsyncClient) -> int:
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        url = f"http://127.0.0.1:{gateway.media_port}{TRANSCRIPTIONS}"
        try:
            return (await client.post(url, content=drip(), headers=headers, timeout=None)).status_code
        # a client that is still sending when the connection closes cannot read the response
        except httpx2.TransportError:
            return CLOSED

    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None)) as client:
        tasks = [asyncio.create_task(upload(client)) for _ in range(count)]
        await asyncio.sleep(0.5)
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("kind", SMALLEST_FRAMES_BY_NAME)
async def test_endless_frames_do_not_block_the_event_loop(gateway: GatewayProcess, kind: str) -> None:
    attack = partial(flood_frames, gateway.media_port, "/v1/presence", SMALLEST_FRAMES_BY_NAME[kind])
    await check_caller_latency(kind, partial(time_to_health, gateway), attack)
    async with attack():
        await asyncio.sleep(HOST_HEARTBEAT_TIMEOUT_S)
        await time_to_health(gateway)  # the store is not mistaken for silent
        opened = await gateway.open()
    assert await opened.close() == 204


async def test_endless_chunks_do_not_block_the_event_loop(start: Start) -> None:
    gateway = await start(AUTHORIZER="iam").ready()
    for line in ("POST /nowhere", "POST /healthz", f"POST {TRANSCRIPTIONS}"):
        await check_caller_latency(
            line, partial(time_to_health, gateway), partial(flood_chunks, gateway.media_port, line)
        )


PAGES = (
    ("127.0.0.1", None, True),
    ("localhost:8080", "http://localhost:3000", True),
    ("127.0.0.1", "https://page.test", True),
    ("127.0.0.1", "https://evil.test", False),
    ("127.0.0.1", "null", False),
    ("127.0.0.1", "http://localhost.evil.test", False),
    ("127.0.0.1", "http://127.0.0.1.evil.test", False),
    ("evil.test", "http://evil.test", False),
    ("evil.test", None, False),
    ("", None, False),
)
"""Host and Origin of a request, and whether it is served."""


async def test_web_pages_are_rejected_if_callers_need_no_key(start: Start) -> None:
    gateway = await start(AUTHORIZER="none", ALLOWED_ORIGINS="https://page.test").ready()
    upgrade = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    posted = f"Content-Type: text/plain\r\nContent-Length: {len(REQUEST)}\r\n\r\n{REQUEST}"
    for host, origin, is_served in PAGES:
        shown = f"Host: {host}\r\n" + (f"Origin: {origin}\r\n" if origin else "")
        for port, line, rest, served in (
            (gateway.media_port, "GET /v1/presence", upgrade, {101}),
            (gateway.http_port, "POST /v1/sessions", posted, {201, 503}),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{line} HTTP/1.1\r\n{shown}{rest}".encode())
            answered = int((await reader.readline()).split()[1])
            writer.close()
            assert answered in (served if is_served else {403}), (host, origin, line)
