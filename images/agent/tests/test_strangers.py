"""Idle connections of unauthenticated clients do not prevent a caller from connecting."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest
import websockets
from redis.asyncio import Redis

from images.agent.tests.conftest import Place, running_agent
from images.agent.tests.engines import Engines
from images.agent.tests.test_process import running
from images.agent.tests.test_siblings import SECOND, known
from images.conftest import BUSY_TIMEOUT_S, StoreServer, until
from images.strangers import (
    COMPLETE_HEAD,
    LONG_PING,
    PARTIAL_HEAD,
    SMALLEST_FRAMES_BY_NAME,
    build_malformed_upgrade_heads,
    build_upgrade_head,
    check_caller_latency,
    flood_chunks,
    flood_frames,
    flood_without_reading,
    wait_until_closed,
)
from images.strangers import open_idle_connections as unfinished
from voice_agent.server import MAX_UNAUTHENTICATED_SOCKETS
from voice_runtime.http import MAX_IDLE_CONNECTIONS, REQUEST_HEAD_TIMEOUT_S
from voice_sandbox.loopback import find_free_port

STRANGERS = 12
"""More than any agent here has slots."""
TWILIO = "/v1/twilio"


async def _reconnect(url: str) -> None:
    """Open a telephone network's socket and send nothing; reopen it when it is closed."""
    while True:
        with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
            async with websockets.connect(url) as socket:
                await socket.wait_closed()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def strangers(url: str) -> AsyncIterator[None]:
    """Keep silent sockets open at an agent."""
    tasks = [asyncio.create_task(_reconnect(url)) for _ in range(STRANGERS)]
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_silent_sockets_use_no_slot(place: Place) -> None:
    async with strangers(f"ws{place.url[4:]}{TWILIO}"):
        for _ in range(3):
            async with place.call():
                assert place.agent.conversation_count == 1
            await until(lambda: place.agent.conversation_count == 0)


async def test_silent_sockets_at_a_full_agent_use_no_sibling_slots(engines: Engines, store: Redis) -> None:
    port = find_free_port()
    async with (
        running_agent(engines, store, port=port) as full,
        running_agent(engines, store, SECOND, port, conversations=2) as other,
        full.call(),
    ):
        await known(store, {"127.0.0.1": 0, SECOND: 2})
        async with strangers(f"ws{full.url[4:]}{TWILIO}"):
            assert other.agent.conversation_count == 0
            async with full.call(holder=other):
                assert other.agent.conversation_count == 1


@contextlib.asynccontextmanager
async def crowd(port: int, part: bytes, room: int) -> AsyncIterator[None]:
    """Open a hundred connections more than have room, and wait until the server has closed as many.

    Opening them is a burst of work for one core, which delays a caller of the same second by as much on a busy machine.
    """
    beyond = 100
    async with unfinished(port, part, count=room + beyond) as opened:
        endings = [asyncio.create_task(wait_until_closed(each)) for each in opened]
        try:
            async with asyncio.timeout(BUSY_TIMEOUT_S):
                while sum(each.done() for each in endings) < beyond:
                    await asyncio.sleep(0.02)
            yield
        finally:
            for each in endings:
                each.cancel()


ATTACKS: dict[str, Callable[[int], AbstractAsyncContextManager[object]]] = {
    "silent sockets": lambda port: strangers(f"ws://127.0.0.1:{port}{TWILIO}"),
    "first heads": lambda port: unfinished(port, PARTIAL_HEAD),
    "second heads": lambda port: unfinished(port, COMPLETE_HEAD, PARTIAL_HEAD),
    "more heads than have room": lambda port: crowd(port, PARTIAL_HEAD, MAX_IDLE_CONNECTIONS),
    "more sockets than have room": lambda port: crowd(port, build_upgrade_head(TWILIO), MAX_UNAUTHENTICATED_SOCKETS),
    "unread answers": lambda port: flood_without_reading(port, COMPLETE_HEAD * 100),
    "unread pongs": lambda port: flood_without_reading(port, LONG_PING * 100, build_upgrade_head(TWILIO)),
    "chunks": lambda port: flood_chunks(port, "POST /nowhere"),
    **{kind: partial(flood_frames, path=TWILIO, frame=frame) for kind, frame in SMALLEST_FRAMES_BY_NAME.items()},
}


async def test_a_caller_is_served_despite_unauthenticated_connections(
    engines: Engines, store_server: StoreServer
) -> None:
    port = find_free_port()
    async with running(engines, store_server, port, conversations=20) as (url, _):
        for name, attack in ATTACKS.items():
            await check_caller_latency(name, partial(_time_to_open, url), partial(attack, port))


async def test_invalid_upgrades_are_rejected_and_closed(place: Place) -> None:
    port = int(place.url.rpartition(":")[2])
    for name, head in build_malformed_upgrade_heads(TWILIO).items():
        async with unfinished(port, head, count=1) as [(reader, writer)], asyncio.timeout(BUSY_TIMEOUT_S):
            assert (await reader.readline())[:10] == b"HTTP/1.1 4", name
            assert await wait_until_closed((reader, writer)), name


async def test_incomplete_heads_time_out_and_idle_connections_are_limited(
    engines: Engines, store_server: StoreServer
) -> None:
    port, beyond = find_free_port(), 100
    async with (
        running(engines, store_server, port) as (url, _),
        unfinished(port, PARTIAL_HEAD, count=MAX_IDLE_CONNECTIONS + beyond) as opened,
    ):
        endings = [asyncio.create_task(wait_until_closed(each)) for each in opened]
        async with asyncio.timeout(REQUEST_HEAD_TIMEOUT_S):  # the timeout that applies to all of them
            while sum(each.done() for each in endings) < beyond:
                await asyncio.sleep(0.02)
        await _time_to_open(url)
        async with asyncio.timeout(REQUEST_HEAD_TIMEOUT_S + BUSY_TIMEOUT_S):
            assert all(await asyncio.gather(*endings))


async def test_unauthenticated_sockets_beyond_the_limit_close_the_oldest(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.server.MAX_UNAUTHENTICATED_SOCKETS", 4)
    async with running_agent(engines, store, forwarded=True) as place, strangers(f"ws{place.url[4:]}{TWILIO}"):
        assert len(place.agent.unauthenticated) <= 4
        start = json.dumps({"event": "start", "start": {"streamSid": "s", "callSid": "c"}})
        headers = {"X-Forwarded-For": "127.0.0.1, 203.0.113.7:4711"}
        async with websockets.connect(f"ws{place.url[4:]}{TWILIO}", additional_headers=headers) as caller:
            await caller.send(start)
            await until(lambda: place.agent.conversation_count == 1)


async def _time_to_open(url: str) -> float:
    loop = asyncio.get_running_loop()
    since = loop.time()
    async with asyncio.timeout(BUSY_TIMEOUT_S), websockets.connect(url) as socket:
        await socket.recv()
        return loop.time() - since
