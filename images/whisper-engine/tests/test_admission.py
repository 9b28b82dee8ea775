"""What is not let in, and the end of a host: each is counted, and nobody else notices."""

import asyncio
import itertools
import signal
import subprocess
import sys
import time

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

from blueprint.contract.chunk import CHUNK_HEADER, CHUNK_PAYLOAD_BYTES
from blueprint.contract.network import Tier
from images.conftest import PATIENCE_S, free_port
from voice_runtime import state
from voice_runtime.hosts import HostRegistry
from voice_runtime.sessions import Sessions
from voice_whisper.admission import REFUSED_FOR_S

SLOTS = 2


@pytest.fixture(scope="module")
def engine(start: Start) -> EngineHost:
    found = start(VOICE_SESSIONS=str(SLOTS))
    found.wait_ready()
    return found


async def test_malformed_datagrams_are_counted_by_reason(engine: EngineHost, store: Redis, ssrc: int) -> None:
    payload, not_finite = bytes(CHUNK_PAYLOAD_BYTES), b"\xff" * CHUNK_PAYLOAD_BYTES
    datagrams = {
        "wrong-length": b"short",
        "unknown-kind": CHUNK_HEADER.pack(ssrc, 0, 0, 9, 0, 10) + payload,
        "unknown-flags": CHUNK_HEADER.pack(ssrc, 0, 0, 1, 0x80, 10) + payload,
        "wrong-count": CHUNK_HEADER.pack(ssrc, 0, 0, 1, 0, 11) + payload,
        "not-finite": CHUNK_HEADER.pack(ssrc, 0, 0, 1, 0, 10) + not_finite,
    }
    for datagram in [*datagrams.values(), b""]:
        engine.send(datagram)
    wait_for("counters", lambda: engine.counted("malformed") == dict.fromkeys(datagrams, 1) | {"wrong-length": 2})
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence()))
    assert len(await finals(store, ssrc, 1)) == 1
    await release(store, ssrc)


async def test_unknown_session_is_refused_and_asked_for_once(engine: EngineHost, store: Redis, ssrc: int) -> None:
    chunks = chunks_of(ssrc, sound())
    begin, asked = time.monotonic(), 0
    async with store.monitor() as monitor:
        await engine.say(chunks)
        wait_for("refusals", lambda: engine.counted("refused").get("unknown-session") == len(chunks))
        await store.echo("over")
        while (command := (await monitor.next_command())["command"]) != "ECHO over":
            asked += command == f"HGETALL {state.session(ssrc)}"
    assert 1 <= asked <= 1 + (time.monotonic() - begin) // REFUSED_FOR_S
    assert not await store.exists(state.audio(ssrc), state.transcript(ssrc), state.lease(ssrc))
    assert engine.metrics()["FreeSlots"] == SLOTS


async def test_flood_of_unknown_sessions_is_bounded_and_passes(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    (chunk, *_) = chunks_of(ssrc, first_sentence())
    numbers, limit = itertools.count(2**31 + 2**30), time.monotonic() + PATIENCE_S
    while engine.counted("refused").get("unknown-session", 0) <= 256:  # more than it asks about at once
        assert time.monotonic() < limit
        for _ in range(2000):  # of which its receive buffer may hold few
            engine.send(CHUNK_HEADER.pack(next(numbers), 0, 0, 1, 0, 10) + chunk.datagram()[CHUNK_HEADER.size :])
        await asyncio.sleep(0.1)
    refused = {"unknown-session": 0}
    while refused != (refused := engine.counted("refused")):
        await asyncio.sleep(0.5)
    await engine.say(chunks_of(ssrc, first_sentence()))
    assert len(await finals(store, ssrc, 1)) == 1
    await release(store, ssrc)


async def test_full_host_refuses_and_keeps_those_that_it_has(engine: EngineHost, store: Redis, ssrc: int) -> None:
    sessions = [ssrc + number for number in range(SLOTS + 1)]
    for each in sessions:
        await open_session(store, each)
    spoken = [chunks_of(each, first_sentence()) for each in sessions]
    for chunks in spoken[:SLOTS]:
        await engine.say(chunks[:10])
    wait_for("a full host", lambda: engine.metrics()["FreeSlots"] == 0)
    for chunks in (spoken[SLOTS], *(chunks[10:] for chunks in spoken[:SLOTS])):
        await engine.say(chunks)
    for each in sessions[:SLOTS]:
        assert len(await finals(store, each, 1)) == 1
    assert engine.counted("refused")["full"] == len(spoken[SLOTS])
    await registered(store, free_slots=0, slots=SLOTS, languages=("en",))
    left_out = await told(store, sessions[SLOTS], refused=True)
    for each in sessions[:SLOTS]:
        await release(store, each)
    await engine.say(chunks_of(left_out, first_sentence()))
    assert len(await finals(store, left_out, 1)) == 1
    await told(store, left_out, refused=False)
    await release(store, left_out)


async def told(store: Redis, ssrc: int, *, refused: bool) -> int:
    """Wait until the record says whether a host refuses the session, for the gateway to tell its caller."""
    async with asyncio.timeout(PATIENCE_S):
        while await store.hexists(state.session(ssrc), "refused_at") != refused:
            await asyncio.sleep(0.05)
    return ssrc


async def test_closed_session_gives_its_slot_back(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence()))
    await finals(store, ssrc, 1)
    assert engine.metrics()["FreeSlots"] == SLOTS - 1
    await release(store, ssrc)
    assert not await store.exists(state.lease(ssrc))


async def test_drain_finishes_what_is_spoken(engine: EngineHost, store: Redis, ssrc: int) -> None:
    sessions = [ssrc + number for number in range(SLOTS)]
    spoken = [chunks_of(each, sound()) for each in sessions]
    for each, chunks in zip(sessions, spoken, strict=True):
        await open_session(store, each)
        await engine.say(chunks[:30])
    engine.process.send_signal(signal.SIGTERM)
    wait_for("a draining host", lambda: engine.get("/healthz") is None)
    await registered(store, draining=True)
    for place in range(30, len(spoken[0])):  # about as fast as it is spoken
        for chunks in spoken:
            engine.send(chunks[place].datagram())
        await asyncio.sleep(0.09)
    assert await asyncio.to_thread(engine.process.wait, PATIENCE_S) == 0
    for each in sessions:
        assert words_wrong((await one_final(store, each)).text) <= 0.15
        assert not await store.exists(state.lease(each))
        assert not await store.xlen(state.audio(each))
    assert await HostRegistry(store, Tier.ASR).alive() == []


@pytest.mark.parametrize(
    ("change", "code", "answer"),
    [
        ({"VOICE_CHUNK_PORT": "70000"}, 2, "VOICE_CHUNK_PORT='70000': Input should be less than or equal to 65535"),
        ({"VOICE_HOST_ADDRESS": "here"}, 2, "VOICE_HOST_ADDRESS='here': "),
        ({"VOICE_ENCODERS": "0"}, 2, "VOICE_ENCODERS='0': Input should be greater than or equal to 1"),
        ({"VOICE_LAYOUT": "split"}, 2, "VOICE_LAYOUT='split': Input should be 'disaggregated' or 'colocated'"),
        ({"VOICE_MODEL": "/nonexistent/model"}, 1, "VOICE_MODEL=/nonexistent/model: no such folder"),
        ({"VOICE_MODEL": "/usr"}, 1, "the engine cannot start: /usr cannot be loaded: "),
        ({"VOICE_VALKEY_PASSWORD_FILE": "/nonexistent/file"}, 1, "the engine cannot start: [Errno 2]"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_engine_says_why_it_cannot_start(engine: EngineHost, change: dict[str, str], code: int, answer: str) -> None:
    ports = {"VOICE_CHUNK_PORT": str(free_port()), "VOICE_HEALTH_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-m", "voice_whisper"],
        env=engine.environment | ports | {"HF_HUB_OFFLINE": "1"} | change,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert done.returncode == code, done.stderr
    assert len(said) == 1, said
    assert answer in said[0]


async def release(store: Redis, ssrc: int) -> None:
    """Close a session, and wait until its host has let go of it."""
    session = await Sessions(store).read(ssrc)
    assert session
    await Sessions(store).close(session)
    limit = time.monotonic() + PATIENCE_S
    while await store.exists(state.lease(ssrc)):
        assert time.monotonic() < limit
        await asyncio.sleep(0.1)


async def registered(store: Redis, **wanted: object) -> None:
    """Wait for a heartbeat that says so."""
    limit = time.monotonic() + PATIENCE_S
    while not any(wanted.items() <= vars(host).items() for host in await HostRegistry(store, Tier.ASR).alive()):
        assert time.monotonic() < limit, f"no host is {wanted}"
        await asyncio.sleep(0.05)
