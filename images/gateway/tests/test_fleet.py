"""The hosts that a gateway has seen: capacity, languages, and the VAD host of a session."""

import asyncio
import contextlib
from dataclasses import replace
from unittest.mock import AsyncMock, patch

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as StoreConnectionError

from images.conftest import StoreServer
from images.gateway.tests.clocks import VirtualTime
from images.gateway.tests.running import holds
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_HEARTBEAT_TIMEOUT_S
from voice_gateway.fleet import MAX_STORE_OUTAGE_S, Fleet
from voice_runtime.hosts import Host, HostKind, HostRegistry

ASR = Host("asr", HostKind.GPU, "10.0.0.1", 3, draining=False, slots=8, languages=("de", "en"))
VAD = Host("vad", HostKind.VAD, "10.0.1.1", 3, draining=False)


async def fleet(store: Redis, *hosts: Host) -> Fleet:
    for host in hosts:
        tier = Tier.VAD if host.kind is HostKind.VAD else Tier.ASR
        await HostRegistry(store, tier).send_heartbeat(host)
    found = Fleet(store)
    await found.refresh()
    return found


async def test_capacity_is_that_of_hosts_that_take_sessions(store: Redis) -> None:
    found = await fleet(
        store,
        ASR,
        replace(ASR, id="leaves", draining=True, free_slots=5),
        replace(ASR, id="full", free_slots=0, slots=4),
        replace(ASR, id="says nothing of its slots", free_slots=2, slots=0),
    )
    assert (found.free_slot_count, found.slot_count) == (5, 14)


async def test_a_gateway_has_hosts_only_after_it_has_seen_them(store: Redis) -> None:
    unseen = Fleet(store)
    assert (unseen.is_store_available, unseen.free_slot_count, unseen.slot_count, unseen.languages) == (
        False,
        0,
        0,
        None,
    )
    assert unseen.select_vad_host() is None
    assert unseen.store_failure_reason == "the state store has never responded"
    seen = await fleet(store)
    assert (seen.is_store_available, seen.store_failure_reason) == (True, None)


async def test_a_gateway_is_replaced_after_an_outage_of_its_store_that_is_no_failover(
    store: Redis, store_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_STORE_OUTAGE_S == 600
    limit_s = HOST_HEARTBEAT_TIMEOUT_S + 2
    monkeypatch.setattr("voice_gateway.fleet.MAX_STORE_OUTAGE_S", limit_s)
    found = await fleet(store)
    watching = asyncio.create_task(found.refresh_periodically())
    store_server.stop()
    try:
        await holds("it accepts no callers", lambda: not found.is_store_available)
        assert found.store_failure_reason is None
        await holds(
            "it is to be replaced",
            lambda: found.store_failure_reason == f"the state store has not responded for {limit_s} s",
        )
    finally:
        store_server.start()
    await holds("the store has returned", lambda: found.store_failure_reason is None)
    watching.cancel()


async def test_hosts_are_read_every_half_second(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    found, clock = Fleet(store), VirtualTime(monkeypatch, "voice_gateway.fleet")
    read_at: list[float] = []

    async def refresh() -> None:
        read_at.append(clock.now)
        if len(read_at) == 2:
            raise StoreConnectionError

    monkeypatch.setattr(found, "refresh", refresh)
    reading = asyncio.create_task(found.refresh_periodically())
    await clock.run_for(1.9)
    reading.cancel()
    assert read_at == pytest.approx([0, 0.5, 1.0, 1.5]), "also after the store was unavailable"


async def test_the_time_without_the_store_is_known_to_a_quarter_of_a_second(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await fleet(store)
    clock = VirtualTime(monkeypatch, "voice_gateway.fleet")
    monkeypatch.setattr(found, "refresh", AsyncMock(side_effect=OSError))
    reading = asyncio.create_task(found.refresh_periodically())
    await clock.run_for(HOST_HEARTBEAT_TIMEOUT_S - 0.25)
    assert found.is_store_available
    await clock.run_for(0.25)
    assert not found.is_store_available
    await clock.run_for(600 - HOST_HEARTBEAT_TIMEOUT_S - 0.25)
    assert found.store_failure_reason is None
    await clock.run_for(0.25)
    assert found.store_failure_reason == "the state store has not responded for 600 s"
    reading.cancel()


async def test_rejected_credentials_are_remembered_until_the_store_accepts_them(store: Redis) -> None:
    found = await fleet(store)
    answers: list[RedisError | None] = [AuthenticationError(), StoreConnectionError(), None]
    failures = []
    for answer in answers:
        with patch.object(store, "smembers", AsyncMock(side_effect=answer, return_value=set())):
            with contextlib.suppress(RedisError):
                await found.refresh()
            failures.append(found.store_failure_reason)
    assert failures == ["the state store rejects the credentials"] * 2 + [None]


@pytest.mark.parametrize(
    ("others", "known"),
    [((), {"de", "en"}), ((("en", "fr"),), {"en"}), (((),), None)],
    ids=["one", "another", "unknown"],
)
async def test_languages_are_those_of_every_host(
    store: Redis, others: tuple[tuple[str, ...], ...], known: set[str] | None
) -> None:
    hosts = [replace(ASR, id=str(number), languages=languages) for number, languages in enumerate(others)]
    assert (await fleet(store, ASR, *hosts)).languages == known


async def test_a_session_stays_at_its_vad_host_until_that_leaves(store: Redis) -> None:
    full, leaves, free = replace(VAD, id="full", free_slots=0), replace(VAD, id="leaves", draining=True), VAD
    found = await fleet(store, full, leaves, free)
    for current, following in ((None, "vad"), (full, "full"), (leaves, "vad"), (replace(VAD, id="dead"), "vad")):
        host = found.select_vad_host(current)
        assert host
        assert host.id == following
    assert (await fleet(store, replace(VAD, draining=True))).select_vad_host() is None


async def test_a_vad_host_that_leaves_is_used_while_there_is_no_other(store: Redis) -> None:
    leaves = replace(VAD, draining=True)
    found = await fleet(store, leaves, replace(VAD, id="full", free_slots=0))
    host = found.select_vad_host(leaves)
    assert host
    assert host.id == "vad"
    assert found.select_vad_host() is None


async def test_new_sessions_go_to_the_vad_hosts_with_the_most_free_slots(store: Redis) -> None:
    found = await fleet(store, replace(VAD, id="few", free_slots=1), VAD, replace(VAD, id="as many"))
    picked = [found.select_vad_host() for _ in range(64)]
    assert {host.id for host in picked if host} == {"vad", "as many"}
