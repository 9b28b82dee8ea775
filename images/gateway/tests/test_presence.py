"""Sessions that somebody else hears: counted for as long as their socket is open, and held by one socket."""

import asyncio
import contextlib
import time

import websockets
from redis.asyncio import Redis

from images.conftest import PATIENCE_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Opened
from images.gateway.tests.test_client_sockets import connect, refused
from voice_runtime import state

PRESENCE = "/v1/presence"


async def ended(socket: websockets.ClientConnection) -> int | None:
    await socket.wait_closed()
    return socket.close_code


async def left(store: Redis) -> None:
    while await store.zcard(state.caller_sessions("127.0.0.1")):
        pass


async def test_a_caller_has_so_many_and_no_host_is_asked(start: Start, store: Redis) -> None:
    gateway = await start(CALLER_SESSIONS=1).ready()
    async with connect(gateway, PRESENCE):
        assert (await refused(gateway, PRESENCE))[0] == 429
        assert not await store.exists(state.PLACES)
    await left(store)
    async with connect(gateway, PRESENCE):
        pass


async def test_a_gateway_that_stops_says_that_another_session_may_follow(start: Start, store: Redis) -> None:
    gateway = await start(DRAIN_TIMEOUT_S=0).ready()
    async with connect(gateway, PRESENCE) as socket:
        gateway.terminate()
        assert await ended(socket) == 1012
    assert gateway.wait() == 0
    await left(store)


async def test_a_session_ends_after_its_longest_time_and_another_may_follow(start: Start) -> None:
    gateway = await start(SESSION_MAX_S=1).ready()
    async with connect(gateway, PRESENCE) as socket:
        assert await ended(socket) == 1012


async def test_one_socket_at_a_time_has_the_session_of_a_token(gateway: GatewayProcess) -> None:
    opened: Opened = await gateway.open()
    async with connect(gateway, PRESENCE, opened.token) as older, connect(gateway, PRESENCE, opened.token) as newer:
        assert await ended(older) == 1008
        assert await opened.close() == 204
        assert await ended(newer) == 1000
    assert (await refused(gateway, PRESENCE, opened.token))[0] == 404


async def test_a_session_of_a_token_waits_for_who_comes_back(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    async with connect(gateway, PRESENCE, opened.token):
        pass
    key = state.session(opened.ssrc)
    async with connect(gateway, PRESENCE, opened.token):
        lapses_at = await store.hget(key, "lapses_at")
        assert lapses_at
        async with asyncio.timeout(PATIENCE_S):
            while await store.hget(key, "lapses_at") == lapses_at:
                await asyncio.sleep(0.1)
    await opened.close()


async def test_a_killed_gateways_session_counts_for_the_grace_period_and_no_longer(start: Start, store: Redis) -> None:
    grace_s = 5
    killed = await start(CALLER_SESSIONS=1, RECONNECT_GRACE_S=grace_s).ready()
    other = await start(CALLER_SESSIONS=1, RECONNECT_GRACE_S=grace_s).ready()
    key = state.caller_sessions("127.0.0.1")
    async with connect(killed, PRESENCE):
        ends_by = time.time() + grace_s
        assert not await store.zcount(key, ends_by, "+inf")
        async with asyncio.timeout(PATIENCE_S):
            while not await store.zcount(key, ends_by, "+inf"):  # who stays is counted on
                await asyncio.sleep(0.1)
        killed.kill()
        assert (await refused(other, PRESENCE))[0] == 429
    async with asyncio.timeout(PATIENCE_S):
        while not await opens(other):
            await asyncio.sleep(0.5)


async def opens(gateway: GatewayProcess) -> bool:
    with contextlib.suppress(websockets.InvalidStatus):
        async with connect(gateway, PRESENCE):
            return True
    return False
