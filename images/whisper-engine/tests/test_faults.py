"""Faults: no final is lost or duplicated, and no session hangs, whichever process dies."""

import asyncio
import os
import signal

import pytest
from conftest import Start
from engine_host import (
    EngineHost,
    chunks_of,
    finals,
    first_sentence,
    one_final,
    open_session,
    sound,
    wait_for,
    words_wrong,
)
from redis.asyncio import Redis

from images.conftest import StoreServer
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import HOST_TTL_S
from voice_runtime import state


@pytest.mark.parametrize("role", ["encoder", "decoder"])
async def test_killed_worker_loses_nothing(engine: EngineHost, store: Redis, ssrc: int, role: str) -> None:
    sessions = [ssrc + number for number in range(4)]
    for each in sessions:
        await open_session(store, each)
    utterances = [chunks_of(each, first_sentence()) for each in sessions]
    victim = engine.workers()[role]
    for chunks in utterances:
        await engine.say(chunks)
    await asyncio.sleep({"encoder": 0.2, "decoder": 0.5}[role])
    os.kill(victim, signal.SIGKILL)
    for each in sessions:
        (final,) = await finals(store, each, 1)
        assert "connect your call" in final.text
    wait_for("another worker", lambda: engine.workers().get(role, victim) != victim)
    assert engine.counted("worker_restarts")[role] == 1


async def test_killed_idle_worker_is_replaced(engine: EngineHost, store: Redis, ssrc: int) -> None:
    victims = engine.workers()
    for victim in victims.values():
        os.kill(victim, signal.SIGKILL)
    wait_for("other workers", lambda: len(engine.workers().items() - victims.items()) == len(victims))
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence()))
    assert len(await finals(store, ssrc, 1)) == 1


async def test_killed_host_loses_nothing(start: Start, engine: EngineHost, store: Redis, ssrc: int) -> None:
    other = start("h2", "127.0.0.2")
    other.wait_until_ready()
    torn, finished = ssrc, ssrc + 1_000_000
    await open_session(store, torn)
    await open_session(store, finished)
    chunks = chunks_of(torn, sound())
    await engine.say(chunks[:40])
    await engine.say(chunks_of(finished, sound()))
    await asyncio.sleep(0.15)
    engine.kill()
    assert 0 < await store.ttl(state.build_host_key(Tier.ASR, engine.host)) <= HOST_TTL_S
    await other.say(chunks[38:])
    assert words_wrong((await one_final(store, torn)).text) <= 0.15
    # No host sends the other session's audio again: the surviving host finds it when the dead host's record expires.
    await store.delete(state.build_host_key(Tier.ASR, engine.host))
    assert words_wrong((await one_final(store, finished)).text) <= 0.15
    assert other.counted("adopted") == 1
    engine.start()
    engine.wait_until_ready()


async def test_restarted_host_continues(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    chunks = chunks_of(ssrc, sound())
    await engine.say(chunks)
    await asyncio.sleep(0.15)
    engine.kill()
    engine.start()
    engine.wait_until_ready()
    assert words_wrong((await one_final(store, ssrc)).text) <= 0.15


async def test_restarted_store_receives_every_final(
    engine: EngineHost, store: Redis, store_server: StoreServer, ssrc: int
) -> None:
    await open_session(store, ssrc)
    first, second = chunks_of(ssrc, first_sentence()), chunks_of(ssrc, sound(), first=500)
    await engine.say(first[:20])
    store_server.stop()
    await engine.say([*first[20:], *second])
    await asyncio.sleep(2)
    store_server.start()
    said = await finals(store, ssrc, 2)
    assert "connect your call" in said[0].text
    assert words_wrong(said[1].text) <= 0.15


async def test_session_adopted_by_another_host_is_dropped(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, sound())[:20])
    wait_for("the session", lambda: bool(engine.counted("chunks")))
    lost = engine.counted("lost_leases")
    await store.set(state.build_host_lease_key(ssrc), "another", ex=60)
    wait_for("a lost lease", lambda: engine.counted("lost_leases") == lost + 1)
