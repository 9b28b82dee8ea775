"""Sessions without audio: how their sockets end, and what each end does to the session."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as StoreConnectionError

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.local_gateway import LocalGateway, LocalSocket
from voice_gateway import presence
from voice_gateway.presence import serve_presence
from voice_gateway.refusals import build_busy_refusal
from voice_gateway.socket_lease import SocketLease
from voice_runtime import state
from voice_runtime.sessions import Session, SessionState


@contextlib.asynccontextmanager
async def served(gateway: LocalGateway, token: str = "") -> AsyncIterator[tuple[LocalSocket, "asyncio.Task[None]"]]:
    """Open a socket, and wait until it is accepted or denied."""
    socket = LocalSocket(gateway, token)
    task = asyncio.create_task(serve_presence(socket))
    try:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while not socket.sent:
                await asyncio.sleep(0.001)
        yield socket, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def end_of(task: "asyncio.Task[None]") -> None:
    await asyncio.wait_for(task, BUSY_TIMEOUT_S)


async def sessions_of(store: Redis, caller: str = "127.0.0.1") -> list[int]:
    found: Any = await store.zrange(state.build_caller_sessions_key(caller), 0, -1)
    return [int(each) for each in found]


@pytest.fixture(autouse=True)
def _short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "SESSION_CHECK_INTERVAL_S", 0.01)


async def resumable(gateway: LocalGateway) -> tuple[Session, str]:
    session = await gateway.open_session()
    return session, gateway.tokens.create(session.id)[0]


async def test_a_session_lasts_as_long_as_its_socket_and_needs_no_host(store: Redis) -> None:
    gateway = LocalGateway(store)
    gateway.set_hosts(asr_slots=0, vad_slots=0)
    async with served(gateway) as (socket, task):
        [ssrc] = await sessions_of(store)
        assert (gateway.connections, socket.closed) == (1, None)
        socket.put("ignored")
        socket.put(b"ignored, too")
        await end_of(task)
        assert (await gateway.read_session(ssrc)).state is SessionState.CLOSED
    assert (gateway.connections, await sessions_of(store)) == (0, [])


async def test_messages_do_not_end_a_session(store: Redis) -> None:
    async with served(LocalGateway(store)) as (socket, task):
        for _ in range(3):
            socket.put("ignored")
        while not socket.messages.empty():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert not task.done()
        socket.disconnect()
        await end_of(task)


async def test_a_session_of_a_token_outlives_its_socket_for_the_grace_period(store: Redis) -> None:
    gateway = LocalGateway(store)
    session, token = await resumable(gateway)
    async with served(gateway, token) as (socket, task):
        socket.disconnect()
        await end_of(task)
    left = await gateway.read_session()
    assert left.state is SessionState.OPEN
    assert time.time() < left.reconnect_by <= time.time() + 20
    assert await sessions_of(store, "tenant") == [session.ssrc]


async def test_a_stopping_gateway_closes_the_socket_for_another_one(store: Redis) -> None:
    gateway = LocalGateway(store)
    async with served(gateway) as (socket, task):
        gateway.shutting_down.set()
        await end_of(task)
    assert socket.closed == (1012, "this gateway is stopping; connect again with the newest token")
    assert await sessions_of(store) == []


async def test_a_socket_ends_when_its_session_expires(store: Redis) -> None:
    async with served(LocalGateway(store, session_max_s=1)) as (socket, task):
        await end_of(task)
    assert socket.closed
    assert socket.closed[0] == 1012


async def test_a_closed_session_ends_its_socket(store: Redis) -> None:
    gateway = LocalGateway(store)
    session, token = await resumable(gateway)
    async with served(gateway, token) as (socket, task):
        await asyncio.sleep(0.05)
        assert not task.done()
        await gateway.sessions.close(session)
        await end_of(task)
    assert socket.closed == (1000, "the session was closed")


async def test_a_newer_socket_replaces_an_older_one_and_keeps_the_session(store: Redis) -> None:
    gateway = LocalGateway(store)
    _, token = await resumable(gateway)
    async with served(gateway, token) as (older, older_task), served(gateway, token) as (newer, newer_task):
        await end_of(older_task)
        assert older.closed == (1008, "another socket has this session")
        assert (newer.closed, newer_task.done()) == (None, False)
    assert (await gateway.read_session()).state is SessionState.OPEN


async def test_the_expiry_is_extended_while_the_socket_is_open(store: Redis) -> None:
    gateway = LocalGateway(store)
    session, token = await resumable(gateway)
    async with served(gateway, token):
        assert (await gateway.read_session()).reconnect_by, "from the start, since a gateway may be killed"
        await gateway.sessions.start_grace_period(session, 1)
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while (await gateway.read_session()).reconnect_by < time.time() + 10:
                await asyncio.sleep(0.01)


async def test_a_session_without_a_connection_is_closed_at_once(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last connection may be taken while the caller is authenticated; a session of a token then remains."""
    gateway = LocalGateway(store, max_connections=1)
    session, token = await resumable(gateway)

    @contextlib.contextmanager
    def count_connection() -> Iterator[None]:
        raise build_busy_refusal()
        yield

    monkeypatch.setattr(gateway, "count_connection", count_connection)
    for key in ("", token):
        async with served(gateway, key) as (socket, task):
            await end_of(task)
        assert socket.denied_with == 503
    assert await sessions_of(store) == []
    assert await sessions_of(store, "tenant") == [session.ssrc]


async def test_a_socket_is_denied_while_the_store_is_unavailable(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = LocalGateway(store)

    async def fail(*_: object, **__: object) -> None:
        raise StoreConnectionError

    monkeypatch.setattr(gateway.sessions, "create", fail)
    async with served(gateway) as (socket, task):
        await end_of(task)
    assert socket.denied_with == 503


async def test_an_open_socket_survives_a_failure_of_the_store(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = LocalGateway(store)
    failures = 0

    async def fail(*_: object, **__: object) -> bool:
        nonlocal failures
        failures += 1
        raise StoreConnectionError

    async with served(gateway) as (socket, task):
        monkeypatch.setattr(gateway.sessions, "extend_grace_period", fail)
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while failures < 3:
                await asyncio.sleep(0.01)
        assert not task.done()
        monkeypatch.setattr(gateway.sessions, "close", fail)
        socket.disconnect()
        await end_of(task)


async def test_nothing_extends_a_session_after_its_socket_even_if_a_cancellation_is_lost(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the store may lose one before Python 3.12."""
    gateway = LocalGateway(store)
    is_renewing = asyncio.Event()

    async def renew(_: SocketLease) -> bool:
        if not is_renewing.is_set():
            is_renewing.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(BUSY_TIMEOUT_S)
        return True

    monkeypatch.setattr(SocketLease, "renew", renew)
    before = asyncio.all_tasks()
    async with served(gateway) as (socket, task):
        await is_renewing.wait()
        socket.disconnect()
        await end_of(task)
    assert asyncio.all_tasks() <= before
