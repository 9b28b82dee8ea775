"""Sessions without audio: counted while their socket is open, with one socket each."""

import asyncio
import contextlib
import itertools
import time

import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Opened
from images.gateway.tests.test_client_sockets import connect, refused
from voice_blueprint.contract.session_api import CALLER_HEADER
from voice_runtime import state

PRESENCE = "/v1/presence"


async def ended(socket: websockets.ClientConnection) -> int | None:
    await socket.wait_closed()
    return socket.close_code


async def left(store: Redis) -> None:
    while await store.zcard(state.build_caller_sessions_key("127.0.0.1")):
        pass


async def test_a_callers_limit_is_checked_before_any_host(start: Start, store: Redis) -> None:
    gateway = await start(CALLER_SESSIONS=1).ready()
    async with connect(gateway, PRESENCE):
        assert (await refused(gateway, PRESENCE))[0] == 429
        assert not await store.exists(state.SLOT_RESERVATIONS_KEY)
    await left(store)
    async with connect(gateway, PRESENCE):
        pass


async def test_a_stopping_gateway_publishes_when_the_session_may_be_reopened(start: Start, store: Redis) -> None:
    gateway = await start(DRAIN_TIMEOUT_S=0).ready()
    async with connect(gateway, PRESENCE) as socket:
        gateway.terminate()
        assert await ended(socket) == 1012
    assert gateway.wait() == 0
    await left(store)


async def test_a_session_ends_at_its_maximum_duration_and_another_may_open(start: Start) -> None:
    gateway = await start(SESSION_MAX_S=1).ready()
    async with connect(gateway, PRESENCE) as socket:
        assert await ended(socket) == 1012


async def test_a_token_has_one_socket_at_a_time(gateway: GatewayProcess) -> None:
    opened: Opened = await gateway.open()
    async with connect(gateway, PRESENCE, opened.token) as older, connect(gateway, PRESENCE, opened.token) as newer:
        assert await ended(older) == 1008
        assert await opened.close() == 204
        assert await ended(newer) == 1000
    assert (await refused(gateway, PRESENCE, opened.token))[0] == 404


async def test_a_session_of_a_token_waits_for_its_caller_to_reconnect(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    async with connect(gateway, PRESENCE, opened.token):
        pass
    key = state.build_session_key(opened.ssrc)
    async with connect(gateway, PRESENCE, opened.token):
        lapses_at = await store.hget(key, "lapses_at")
        assert lapses_at
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while await store.hget(key, "lapses_at") == lapses_at:
                await asyncio.sleep(0.1)
    await opened.close()


async def test_a_session_of_a_killed_gateway_counts_only_for_the_grace_period(start: Start, store: Redis) -> None:
    grace_s = 5
    killed = await start(CALLER_SESSIONS=1, RECONNECT_GRACE_S=grace_s).ready()
    other = await start(CALLER_SESSIONS=1, RECONNECT_GRACE_S=grace_s).ready()
    key = state.build_caller_sessions_key("127.0.0.1")
    async with connect(killed, PRESENCE):
        ends_by = time.time() + grace_s
        assert not await store.zcount(key, ends_by, "+inf")
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not await store.zcount(key, ends_by, "+inf"):  # an open session is still counted
                await asyncio.sleep(0.1)
        killed.kill()
        assert (await refused(other, PRESENCE))[0] == 429
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not await opens(other):
            await asyncio.sleep(0.5)


async def test_an_open_session_is_counted_again_after_its_entry_lapsed(start: Start, store: Redis) -> None:
    """Another session of the caller removes lapsed entries, for example after a stall of the store."""
    gateway = await start(CALLER_SESSIONS=1).ready()
    key = state.build_caller_sessions_key("127.0.0.1")
    async with connect(gateway, PRESENCE):
        assert await store.zremrangebyrank(key, 0, -1) == 1
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not await store.zcard(key):
                await asyncio.sleep(0.1)
        assert (await refused(gateway, PRESENCE))[0] == 429
    await left(store)


async def opens(gateway: GatewayProcess) -> bool:
    with contextlib.suppress(websockets.InvalidStatus):
        async with connect(gateway, PRESENCE):
            return True
    return False


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize(("authorizer", "known"), [("iam", True), ("none", False)])
async def test_an_agent_gets_the_caller_if_callers_are_authenticated(
    start: Start, authorizer: str, known: bool
) -> None:
    gateway = await (await start(AUTHORIZER=authorizer).ready()).accepts_callers()
    name = "arn:aws:iam::1:user/anna"
    paths = (PRESENCE, "/v1/realtime?intent=transcription", "/v1/listen?encoding=linear16&sample_rate=16000")
    for (headers, caller), path in itertools.product((({CALLER_HEADER: name}, name), ({}, None)), paths):
        async with gateway.client() as client:
            opened = (await client.post("/v1/sessions", json={"transport": "websocket"}, headers=headers)).json()
        async with connect(gateway, path, opened["token"]) as socket:
            assert socket.response
            assert socket.response.headers.get(CALLER_HEADER) == (caller if known else None)
