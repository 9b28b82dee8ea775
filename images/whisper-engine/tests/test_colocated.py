"""The colocated layout: the same transcripts and guarantees, with both stages in every worker."""

import asyncio
import os
import signal

import pytest
from conftest import Start
from engine_host import EngineHost, chunks_of, finals, first_sentence, open_session, sound, speak, wait_for
from redis.asyncio import Redis

from voice_runtime.transcripts import STREAM_START, EventKind, TranscriptStore

WORKERS = 2


@pytest.fixture(scope="module")
def engine(start: Start) -> EngineHost:
    found = start(VOICE_LAYOUT="colocated")
    found.wait_until_ready()
    return found


async def test_sentences_are_transcribed_with_partials(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    # the beginning of a longer one would get an earlier final
    await speak(engine, store, chunks_of(ssrc, sound()[: 7 * 16000]))
    (final,) = await finals(store, ssrc, 1)
    assert "connect your call" in final.text
    assert final.stages_ms.keys() == {"ingest", "queue", "encode", "decode", "turn"}
    assert min(final.stages_ms["encode"], final.stages_ms["decode"]) > 0
    events = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
    assert sum(event.kind is EventKind.PARTIAL for event in events) >= 3


async def test_killed_worker_loses_nothing(engine: EngineHost, store: Redis, ssrc: int) -> None:
    workers = engine.workers_of("colocated")
    assert len(workers) == WORKERS
    sessions = [ssrc + number for number in range(4)]
    for each in sessions:
        await open_session(store, each)
    for each in sessions:
        await engine.say(chunks_of(each, first_sentence()))
    await asyncio.sleep(0.2)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    for each in sessions:
        (final,) = await finals(store, each, 1)
        assert "connect your call" in final.text
    wait_for("other workers", lambda: len(engine.workers_of("colocated") - workers) == WORKERS)
    assert engine.metrics()["counters"]["worker_restarts"] == {"colocated": WORKERS}
    # On a busy machine, a batch may be counted for a moment after its result is published.
    wait_for(
        "empty queues", lambda: not any(engine.metrics()[f"{stage}QueueDepth"] for stage in ("Encoder", "Decoder"))
    )
