"""Refused sessions and the end of a host: both are counted, and other sessions are unaffected."""

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import Start
from engine_host import (
    SENTENCES,
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

from images.conftest import BUSY_TIMEOUT_S
from voice_blueprint.contract.chunk import CHUNK_HEADER, CHUNK_PAYLOAD_BYTES
from voice_blueprint.contract.metrics import ENGINE_METRICS_PATH
from voice_blueprint.contract.network import Tier
from voice_runtime import state
from voice_runtime.hosts import HostRegistry
from voice_runtime.sessions import SessionStore
from voice_sandbox.loopback import find_free_port
from voice_whisper.admission import MAX_LOOKUPS, MAX_LOOKUPS_PER_S, UNKNOWN_SESSION_TTL_S

SLOTS = 2
FIRST_SENTENCE = SENTENCES.partition(".")[0]
UNKNOWN = itertools.count(2**31 + 2**30 + 2**29)
"""SSRCs without a session."""


@pytest.fixture(scope="module")
def engine(start: Start) -> EngineHost:
    found = start(VOICE_SESSIONS=str(SLOTS))
    found.wait_until_ready()
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


async def test_unknown_session_is_refused_and_looked_up_once(engine: EngineHost, store: Redis, ssrc: int) -> None:
    chunks = chunks_of(ssrc, sound())
    begin, asked = time.monotonic(), 0
    async with store.monitor() as monitor:
        await engine.say(chunks)
        wait_for("refusals", lambda: engine.counted("refused").get("unknown-session") == len(chunks))
        await store.echo("over")
        while (command := (await monitor.next_command())["command"]) != "ECHO over":
            asked += command == f"HGETALL {state.build_session_key(ssrc)}"
    assert 1 <= asked <= 1 + (time.monotonic() - begin) // UNKNOWN_SESSION_TTL_S
    assert not await store.exists(
        state.build_audio_key(ssrc), state.build_transcript_key(ssrc), state.build_host_lease_key(ssrc)
    )
    assert engine.metrics()["FreeSlots"] == SLOTS


async def test_flood_of_unknown_sessions_uses_limited_memory(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    (chunk, *_) = chunks_of(ssrc, first_sentence())
    numbers, limit = itertools.count(2**31 + 2**30), time.monotonic() + BUSY_TIMEOUT_S
    while engine.counted("refused").get("unknown-session", 0) <= 256:  # more than it looks up at once
        assert time.monotonic() < limit
        for _ in range(2000):  # more than its receive buffer holds
            engine.send(CHUNK_HEADER.pack(next(numbers), 0, 0, 1, 0, 10) + chunk.to_datagram()[CHUNK_HEADER.size :])
        await asyncio.sleep(0.1)
    refused = {"unknown-session": 0}
    while refused != (refused := engine.counted("refused")):
        await asyncio.sleep(0.5)
    await engine.say(chunks_of(ssrc, first_sentence()))
    assert len(await finals(store, ssrc, 1)) == 1
    await release(store, ssrc)


def _unknown_chunk(ssrc: int) -> bytes:
    return CHUNK_HEADER.pack(ssrc, 0, 0, 1, 0, 10) + bytes(CHUNK_PAYLOAD_BYTES)


class Strangers(threading.Thread):
    """Sends chunks of unknown sessions from its own address until it is stopped."""

    def __init__(self, engine: EngineHost, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._to, self._pause_s = engine.address, pause_s
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.66", 0))
        self._stopping = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            self._socket.sendto(_unknown_chunk(next(UNKNOWN)), self._to)
            self.sent += 1

    async def have_sent(self, count: int) -> None:
        """Wait until this many chunks have been sent."""
        while self.sent < count:
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._socket.close()


async def test_pending_look_ups_do_not_delay_callers(engine: EngineHost, store: Redis, ssrc: int) -> None:
    """The store pauses for a moment while the maximum number of unknown sessions waits for it."""
    await open_session(store, ssrc)
    await store.execute_command("CLIENT", "PAUSE", "1500", "ALL")  # type: ignore[no-untyped-call]
    strangers = Strangers(engine, 0.001)
    strangers.start()
    await strangers.have_sent(2 * MAX_LOOKUPS)
    await engine.say(chunks_of(ssrc, first_sentence()))
    await strangers.have_sent(strangers.sent + 2 * MAX_LOOKUPS)
    strangers.stop()
    (final,) = await finals(store, ssrc, 1)
    assert words_wrong(final.text, FIRST_SENTENCE) <= 0.15
    await release(store, ssrc)


async def _reads(store: Redis) -> int:
    """Return how many records have been read from the store."""
    calls: dict[str, dict[str, int]] = await store.info("commandstats")
    return calls["cmdstat_hgetall"]["calls"]


async def test_unknown_sessions_at_most_double_a_callers_latency(engine: EngineHost, store: Redis, ssrc: int) -> None:
    async def served_within_s(number: int) -> float:
        since = time.monotonic()
        await open_session(store, number)
        await engine.say(chunks_of(number, first_sentence()), pause_s=0.02)
        (final,) = await finals(store, number, 1)
        took_s = time.monotonic() - since
        assert words_wrong(final.text, FIRST_SENTENCE) <= 0.15
        await release(store, number)
        return took_s

    # Another process may occupy the machine in one of three pairs, but hardly in all.
    for pair in range(0, 6, 2):
        usual_s = await served_within_s(ssrc + pair)
        before = engine.counted("refused").get("unknown-session", 0)
        strangers = Strangers(engine, 0.0005)
        since, reads = time.monotonic(), await _reads(store)
        strangers.start()
        among_strangers_s = await served_within_s(ssrc + pair + 1)
        strangers.stop()
        reads = await _reads(store) - reads
        # A look-up reads two records, and hosts also read the registry.
        assert reads <= 3 * MAX_LOOKUPS_PER_S * (time.monotonic() - since + 1), "look-ups have a rate"
        assert engine.counted("refused")["unknown-session"] > before, "nothing was looked up"
        if among_strangers_s <= 2 * usual_s:
            return
    raise AssertionError(f"{among_strangers_s:.1f} s among strangers, {usual_s:.1f} s alone")


async def test_unknown_sessions_do_not_delay_rejections_at_a_full_host(
    engine: EngineHost, store: Redis, ssrc: int
) -> None:
    sessions = [ssrc + number for number in range(SLOTS + 1)]
    for each in sessions:
        await open_session(store, each)
    for each in sessions[:SLOTS]:
        await engine.say(chunks_of(each, first_sentence())[:3])
    wait_for("a full host", lambda: engine.metrics()["FreeSlots"] == 0)
    await store.execute_command("CLIENT", "PAUSE", "1500", "ALL")  # type: ignore[no-untyped-call]
    strangers = Strangers(engine, 0.001)
    strangers.start()
    await strangers.have_sent(2 * MAX_LOOKUPS)
    await engine.say(chunks_of(sessions[SLOTS], first_sentence())[:1])
    await strangers.have_sent(strangers.sent + 2 * MAX_LOOKUPS)
    strangers.stop()
    await told(store, sessions[SLOTS], refused=True)
    for each in sessions:
        await release(store, each)


async def test_full_host_rejects_new_sessions_and_keeps_existing_ones(
    engine: EngineHost, store: Redis, ssrc: int
) -> None:
    sessions = [ssrc + number for number in range(SLOTS + 1)]
    for each in sessions:
        await open_session(store, each)
    spoken = [chunks_of(each, first_sentence()) for each in sessions]
    for chunks in spoken[:SLOTS]:
        await engine.say(chunks[:10])
    wait_for("a full host", lambda: engine.metrics()["FreeSlots"] == 0)
    before = engine.counted("refused")["full"]
    for chunks in (spoken[SLOTS], *(chunks[10:] for chunks in spoken[:SLOTS])):
        await engine.say(chunks)
    for each in sessions[:SLOTS]:
        assert len(await finals(store, each, 1)) == 1
    assert engine.counted("refused")["full"] - before == len(spoken[SLOTS])
    await registered(store, free_slots=0, slots=SLOTS, languages=("en",))
    left_out = await told(store, sessions[SLOTS], refused=True)
    for each in sessions[:SLOTS]:
        await release(store, each)
    await engine.say(chunks_of(left_out, first_sentence()))
    assert len(await finals(store, left_out, 1)) == 1
    await told(store, left_out, refused=False)
    await release(store, left_out)


async def told(store: Redis, ssrc: int, *, refused: bool) -> int:
    """Wait until the record shows that a host refuses the session, which the gateway reports to the caller."""
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while await store.hexists(state.build_transcription_progress_key(ssrc), "refused_at") != refused:
            await asyncio.sleep(0.05)
    return ssrc


async def test_closed_session_releases_its_slot(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence()))
    await finals(store, ssrc, 1)
    assert engine.metrics()["FreeSlots"] == SLOTS - 1
    await release(store, ssrc)
    assert not await store.exists(state.build_host_lease_key(ssrc))


async def test_drain_finishes_current_utterances(engine: EngineHost, store: Redis, ssrc: int) -> None:
    sessions = [ssrc + number for number in range(SLOTS)]
    spoken = [chunks_of(each, sound()) for each in sessions]
    for each, chunks in zip(sessions, spoken, strict=True):
        await open_session(store, each)
        await engine.say(chunks[:30])
    engine.process.send_signal(signal.SIGTERM)
    wait_for("a draining host", lambda: engine.get("/healthz") is None)
    await registered(store, draining=True)
    assert engine.get(ENGINE_METRICS_PATH) is not None, "the cluster would restart it"
    for place in range(30, len(spoken[0])):  # about real time
        for chunks in spoken:
            engine.send(chunks[place].to_datagram())
        await asyncio.sleep(0.09)
    assert await asyncio.to_thread(engine.process.wait, BUSY_TIMEOUT_S) == 0
    for each in sessions:
        assert words_wrong((await one_final(store, each)).text) <= 0.15
        assert not await store.exists(state.build_host_lease_key(each))
        assert not await store.xlen(state.build_audio_key(each))
    assert await HostRegistry(store, Tier.ASR).read_live_hosts() == []


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
def test_engine_reports_the_reason_of_a_failed_start(
    engine: EngineHost, change: dict[str, str], code: int, answer: str
) -> None:
    ports = {"VOICE_CHUNK_PORT": str(find_free_port()), "VOICE_HEALTH_PORT": str(find_free_port())}
    done = subprocess.run(
        [sys.executable, "-m", "voice_whisper"],
        env=engine.environment | ports | {"HF_HUB_OFFLINE": "1"} | change,
        stderr=subprocess.PIPE,
        text=True,
        timeout=BUSY_TIMEOUT_S,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert done.returncode == code, done.stderr
    assert len(said) == 1, said
    assert answer in said[0]


async def release(store: Redis, ssrc: int) -> None:
    """Close a session, and wait until its host has released it."""
    session = await SessionStore(store).read(ssrc)
    assert session
    await SessionStore(store).close(session)
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while await store.exists(state.build_host_lease_key(ssrc)):
        assert time.monotonic() < limit
        await asyncio.sleep(0.1)


async def registered(store: Redis, **wanted: object) -> None:
    """Wait for a heartbeat with this state."""
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while not any(
        wanted.items() <= vars(host).items() for host in await HostRegistry(store, Tier.ASR).read_live_hosts()
    ):
        assert time.monotonic() < limit, f"no host is {wanted}"
        await asyncio.sleep(0.05)
