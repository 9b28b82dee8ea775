"""Speech in, transcripts out: the engine as a process, the real model, a real store."""

import asyncio
import time

import numpy as np
import pytest
from engine_host import (
    SENTENCES,
    EngineHost,
    chunks_of,
    finals,
    first_sentence,
    open_session,
    sound,
    speak,
    words_wrong,
)
from redis.asyncio import Redis

from blueprint.contract.chunk import ChunkKind
from blueprint.contract.network import Tier
from blueprint.contract.state import SessionField
from images.conftest import PATIENCE_S
from voice_runtime import state
from voice_runtime.hosts import HostKind, HostRegistry
from voice_runtime.transcripts import BEFORE_ALL, EventKind, Transcripts


@pytest.mark.parametrize("kind", list(ChunkKind))
async def test_sentences_are_understood(engine: EngineHost, store: Redis, ssrc: int, kind: ChunkKind) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, sound(), first=150, kind=kind))
    (final,) = await finals(store, ssrc, 1)
    assert words_wrong(final.text) <= 0.15
    assert (final.utterance, final.start_ms) == (150, 3000)
    assert abs(final.end_ms - 3000 - len(sound()) / 16) <= 20
    assert final.language == "en"
    assert final.stages_ms.keys() == {"ingest", "queue", "encode", "decode"}
    assert min(final.stages_ms["encode"], final.stages_ms["decode"]) > 0


async def test_partials_come_while_speech_goes_on(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await speak(engine, store, chunks_of(ssrc, sound()))
    (final,) = await finals(store, ssrc, 1)
    events = [event for _, event in await Transcripts(store).read(ssrc, BEFORE_ALL)]
    partials = [event for event in events if event.kind is EventKind.PARTIAL]
    assert len(partials) >= 3
    assert [event.end_ms for event in events] == sorted(event.end_ms for event in events)
    assert words_wrong(partials[-1].text, SENTENCES) < words_wrong(partials[0].text, SENTENCES)
    assert events[-1] == final


async def test_utterances_come_in_order_and_leave_nothing_behind(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    chunks = [chunk for place in range(4) for chunk in chunks_of(ssrc, first_sentence(), first=place * 400)]
    await engine.say(chunks)
    said = await finals(store, ssrc, 4)
    assert [final.utterance for final in said] == [0, 400, 800, 1200]
    await asyncio.sleep(0.3)
    covered = await store.hget(state.session(ssrc), SessionField.TRANSCRIBED_TO)
    assert int(covered or -1) == chunks[-1].sequence
    assert await store.xlen(state.audio(ssrc)) == 0


async def test_chunks_may_come_late_twice_or_never(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    chunks = chunks_of(ssrc, sound())
    for place in range(2, len(chunks) - 3, 7):
        chunks[place], chunks[place + 1] = chunks[place + 1], chunks[place]
    before = engine.counted("lost_chunks")
    await engine.say([*chunks[:20], *chunks[18:30], *chunks[31:]])
    (final,) = await finals(store, ssrc, 1)
    assert words_wrong(final.text) <= 0.15
    assert engine.counted("lost_chunks") == before + 1
    assert engine.counted("dropped")["duplicate"] >= 2


async def test_utterance_without_end_is_finished(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence())[:-1])
    (final,) = await finals(store, ssrc, 1)
    assert "connect your call" in final.text


async def test_long_utterance_is_cut_at_28_s(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, np.tile(sound(), 4)))
    said = await finals(store, ssrc, 2)
    assert [final.utterance for final in said] == [0, 1400]
    assert said[0].end_ms == said[1].start_ms == 28_000
    assert words_wrong(f"{said[0].text} {said[1].text}", " ".join([SENTENCES] * 4)) <= 0.25


async def test_sound_without_words_has_an_empty_final(engine: EngineHost, store: Redis, ssrc: int) -> None:
    seconds = np.arange(2 * 16000) / 16000
    # tiny.en hears full stops in it.
    buzz = (300 * np.sign(np.sin(2 * np.pi * 100 * seconds))).astype(np.int16)
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, buzz), pause_s=0.05)
    (final,) = await finals(store, ssrc, 1)
    assert not final.text
    assert [event for _, event in await Transcripts(store).read(ssrc, BEFORE_ALL)] == [final]


async def test_host_is_in_the_registry(engine: EngineHost, store: Redis) -> None:
    registry = HostRegistry(store, Tier.ASR)
    limit = time.monotonic() + PATIENCE_S
    while not (hosts := await registry.alive()):
        assert time.monotonic() < limit
        await asyncio.sleep(0.1)
    (host,) = hosts
    assert (host.id, host.kind, host.address, host.draining) == ("h1", HostKind.GPU, "127.0.0.1", False)
    assert host.free_slots == engine.metrics()["FreeSlots"]
