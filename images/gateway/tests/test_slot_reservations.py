"""Reservations of slots on ASR hosts, and the lease of the newest socket of a session."""

import contextlib
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from redis.asyncio import Redis

from images.gateway.tests.local_gateway import LocalGateway
from voice_gateway import socket_lease
from voice_gateway.socket_lease import SocketLease
from voice_runtime import state

LATER_S = 60


async def reserved(store: Redis) -> dict[bytes, float]:
    found: Any = await store.zrange(state.SLOT_RESERVATIONS_KEY, 0, -1, withscores=True)
    return dict(found)


async def test_there_are_as_many_reservations_as_slots(store: Redis) -> None:
    gateway = LocalGateway(store)
    gateway.set_hosts(asr_slots=2)
    until = time.time() + LATER_S
    assert await gateway.reservations.acquire(1, until)
    assert await gateway.reservations.acquire(2, until)
    assert not await gateway.reservations.acquire(3, until)
    assert await reserved(store) == {b"1": until, b"2": until}, "a refused request reserves nothing"
    assert await gateway.reservations.acquire(2, until + 1), "a session keeps the slot that it has"
    assert await reserved(store) == {b"1": until, b"2": until + 1}
    gateway.set_hosts(asr_slots=1)
    assert await gateway.reservations.acquire(2, until + 2), "even if an engine has gone"
    assert 0 < await store.ttl(state.SLOT_RESERVATIONS_KEY) <= state.SESSION_RETENTION_S


async def test_an_expired_reservation_is_replaced(store: Redis) -> None:
    gateway = LocalGateway(store)
    gateway.set_hosts(asr_slots=1)
    await gateway.reservations.extend(1, time.time() - 1)
    until = time.time() + LATER_S
    assert await gateway.reservations.acquire(2, until)
    assert await reserved(store) == {b"2": until}


async def test_a_slot_is_released_when_its_engine_has_had_time_to_reuse_it(store: Redis) -> None:
    gateway = LocalGateway(store)
    for ssrc in (1, 2):
        await gateway.reservations.extend(ssrc, time.time() + LATER_S)
    earliest = time.time()
    await gateway.reservations.release(1)
    await gateway.reservations.release(2, 20.0)
    latest, found = time.time(), await reserved(store)
    assert earliest + 5 <= found[b"1"] <= latest + 5
    assert earliest + 20 <= found[b"2"] <= latest + 20
    await gateway.reservations.release(3)
    assert b"3" not in await reserved(store), "a session without a slot gets none"


@pytest.mark.parametrize("names", ["ab", "ba"])
async def test_a_lease_belongs_to_the_newest_socket(store: Redis, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """The sockets have random names, so that one of the two is greater."""
    left = iter(names)
    monkeypatch.setattr(socket_lease, "secrets", SimpleNamespace(token_hex=lambda size: next(left) * size))
    older, newer, key = SocketLease(store, 7), SocketLease(store, 7), state.build_socket_lease_key(7)
    await older.acquire()
    assert await older.is_held()
    assert await older.renew()
    await newer.acquire()
    assert (await older.is_held(), await newer.is_held()) == (False, True)
    await store.expire(key, 1)
    assert await newer.renew()
    assert await store.ttl(key) > 1
    assert not await older.renew()
    assert await newer.is_held()


async def test_a_socket_that_opens_while_an_older_one_renews_keeps_the_lease(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = SocketLease(store, 7), SocketLease(store, 7)

    class Commands(MagicMock):
        async def execute(self) -> tuple[None, bool]:
            await newer.acquire()
            return None, False

    @contextlib.asynccontextmanager
    async def pipeline(**_: object) -> AsyncIterator[Commands]:
        yield Commands()

    monkeypatch.setattr(store, "pipeline", pipeline)
    assert not await older.renew()
    assert await newer.is_held()


async def test_an_expired_lease_is_renewed_by_the_socket_that_is_left(store: Redis) -> None:
    """The state store may have been unavailable for longer than the lease."""
    older, newer, key = SocketLease(store, 7), SocketLease(store, 7), state.build_socket_lease_key(7)
    await newer.acquire()
    await store.delete(key)
    assert not await newer.is_held()
    assert await newer.renew()
    assert not await older.renew()
    assert 0 < await store.ttl(key) <= state.SESSION_LEASE_TTL_S


async def test_an_expired_lease_is_renewed_although_a_reply_was_lost(lossy_store: Redis) -> None:
    """Regression: the client repeats the command, and the socket was closed as if another one had taken over."""
    assert await SocketLease(lossy_store, 7).renew()
