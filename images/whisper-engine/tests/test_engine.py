"""Speech in, transcripts out: the engine as a process, with a real model and store."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from engine_host import (
    SENTENCES,
    EngineHost,
    chunks_of,
    cut,
    finals,
    first_sentence,
    open_session,
    sound,
    speak,
    words_wrong,
)
from redis.asyncio import Redis

from bench.voice.processes import measure_process_cpu_s
from images.conftest import BUSY_TIMEOUT_S
from voice_blueprint.contract.chunk import ChunkFlag, ChunkKind
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import TranscribedAudioField
from voice_runtime import state
from voice_runtime.chunk import AudioChunk
from voice_runtime.hosts import HostKind, HostRegistry
from voice_runtime.sessions import SessionStore
from voice_runtime.transcripts import STREAM_START, EventKind, Transcript, TranscriptStore
from voice_whisper.utterance import calculate_end_position

TWO_HOURS = 2 * 3600 * 50
"""Frames; RTP's sequence numbers have wrapped five times by then."""
LAST_WORD_ENDS = 205
"""Frame of the sample."""


@pytest.mark.parametrize("kind", list(ChunkKind))
async def test_sentences_are_transcribed(engine: EngineHost, store: Redis, ssrc: int, kind: ChunkKind) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, sound(), first=150, kind=kind))
    (final,) = await finals(store, ssrc, 1)
    assert words_wrong(final.text) <= 0.15
    assert (final.utterance, final.start_ms) == (150, 3000)
    assert abs(final.end_ms - 3000 - len(sound()) / 16) <= 20
    assert final.language == "en"
    assert final.stages_ms.keys() == {"ingest", "queue", "encode", "decode", "turn"}
    assert min(final.stages_ms["encode"], final.stages_ms["decode"]) > 0


async def test_times_are_correct_after_two_hours_on_one_socket(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence(), first=150))
    await finals(store, ssrc, 1)
    await engine.say(chunks_of(ssrc, first_sentence(), first=TWO_HOURS))
    first, last = await finals(store, ssrc, 2)
    assert (last.start_ms, last.words[0].start_ms - first.words[0].start_ms) == (7_200_000, 7_200_000 - 3000)
    assert last.text == first.text


@pytest.mark.parametrize("frames", [(58,), (83, 137), (101, 115, 128)], ids=str)
async def test_commits_inside_words_lose_no_words(
    engine: EngineHost, store: Redis, ssrc: int, frames: tuple[int, ...]
) -> None:
    """Each commit is answered at once; a word cut by one appears in one of the two finals.

    The word may be another one there: without AVX, "your" is recognized as "York".
    """
    await open_session(store, ssrc)
    await engine.say(cut(ssrc, first_sentence(), *frames), pause_s=0.1)
    said = await finals(store, ssrc, 1 + len(frames))
    assert [final.commit for final in said] == [True] * len(frames) + [False]
    text = " ".join(final.text for final in said)
    sentence = SENTENCES.partition(". ")[0]
    assert words_wrong(text, sentence) <= len(frames) / len(sentence.split()), [final.text for final in said]
    words = [word for final in said for word in final.words]
    assert all(word.end_ms > word.start_ms for word in words)
    assert [word.start_ms for word in words] == sorted(word.start_ms for word in words)


async def test_a_commit_after_the_last_word_includes_it(engine: EngineHost, store: Redis, ssrc: int) -> None:
    """Push to talk: nothing follows the commit, so the word that ends there is not deferred."""
    await open_session(store, ssrc)
    await engine.say(cut(ssrc, first_sentence()[: LAST_WORD_ENDS * 320], LAST_WORD_ENDS))
    (final,) = await finals(store, ssrc, 1)
    assert final.commit
    assert words_wrong(final.text, SENTENCES.partition(". ")[0]) <= 0.15


async def test_keywords_are_spelled_as_specified(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc, prompt="please hold the lyne, hold the lyne")
    await engine.say(chunks_of(ssrc, sound()))
    (final,) = await finals(store, ssrc, 1)
    assert "hold the lyne" in final.text
    assert words_wrong(final.text) <= 0.2


async def test_partials_arrive_during_speech(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    # the beginning of a longer one would get an earlier final
    await speak(engine, store, chunks_of(ssrc, sound()[: 7 * 16000]))
    (final,) = await finals(store, ssrc, 1)
    events = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
    partials = [event for event in events if event.kind is EventKind.PARTIAL]
    assert len(partials) >= 3
    assert [event.end_ms for event in events] == sorted(event.end_ms for event in events)
    assert words_wrong(partials[-1].text, SENTENCES) < words_wrong(partials[0].text, SENTENCES)
    assert events[-1] == final


async def test_a_host_with_partials_is_busy(start: Callable[..., EngineHost], store: Redis, ssrc: int) -> None:
    alone = start("h7")
    alone.wait_until_ready()
    await open_session(store, ssrc)
    await speak(alone, store, chunks_of(ssrc, sound()[: 7 * 16000]))
    await finals(store, ssrc, 1)
    events = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
    work_s = sum(event.stages_ms.get(stage, 0) for event in events for stage in ("encode", "decode")) / 1000
    # Partials that became obsolete are not published, but took work.
    assert alone.metrics()["RealTimeFactor"] >= 0.99 * work_s / 7


async def test_utterances_are_published_in_order_and_leave_no_data(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    chunks = [chunk for place in range(4) for chunk in chunks_of(ssrc, first_sentence(), first=place * 400)]
    await engine.say(chunks)
    said = await finals(store, ssrc, 4)
    assert [final.utterance for final in said] == [0, 400, 800, 1200]
    await asyncio.sleep(0.3)
    covered = await store.hget(state.build_transcription_progress_key(ssrc), TranscribedAudioField.TRANSCRIBED_TO)
    assert int(covered or -1) == chunks[-1].sequence
    assert await store.xlen(state.build_audio_key(ssrc)) == 0


async def test_late_duplicate_and_lost_chunks_are_tolerated(engine: EngineHost, store: Redis, ssrc: int) -> None:
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


async def test_unended_utterance_is_finished(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, first_sentence())[:-1])
    (final,) = await finals(store, ssrc, 1)
    assert "connect your call" in final.text


async def test_long_utterance_has_finals_for_stable_words(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    await speak(engine, store, chunks_of(ssrc, np.tile(sound(), 3)))
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        events = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
        said = [event for event in events if event.kind is EventKind.FINAL]
        if said and said[-1].speech_final:
            break
        assert time.monotonic() < limit, events
        await asyncio.sleep(0.05)
    assert len(said) >= 2
    assert [final.speech_final for final in said] == [False] * (len(said) - 1) + [True]
    for before, after in pairwise(said):
        assert before.end_ms == after.start_ms
    assert words_wrong(" ".join(final.text for final in said), " ".join([SENTENCES] * 3)) <= 0.25
    for final in said:
        of_it = [event for event in events if event.utterance == final.utterance]
        committed = [event.committed for event in of_it if event.kind in {EventKind.PARTIAL, EventKind.FINAL}]
        assert all(after.startswith(before) for before, after in pairwise(committed)), committed
        assert " ".join(word.text for word in final.words) == final.text
        assert all(0 < word.confidence <= 1 for word in final.words)
    words = [word for final in said for word in final.words]
    assert [word.start_ms for word in words] == sorted(word.start_ms for word in words)


async def test_steady_noise_uses_no_worker(engine: EngineHost, store: Redis, ssrc: int) -> None:
    """A VAD classifies white noise as speech for as long as it lasts."""
    await open_session(store, ssrc)
    workers = engine.workers_of("encoder") | engine.workers_of("decoder")

    def taken_s() -> float:
        return sum(map(measure_process_cpu_s, workers))

    before = taken_s()
    noise = np.random.default_rng(7).normal(0, 2000, 40 * 16000).astype(np.int16)
    await engine.say(chunks_of(ssrc, noise), pause_s=0.01)
    assert not any(final.text for final in await finals(store, ssrc, 2))
    of_noise_s, before = taken_s() - before, taken_s()
    await speak(engine, store, chunks_of(ssrc, first_sentence(), first=3000))
    await finals(store, ssrc, 3)
    assert of_noise_s < taken_s() - before, "40 s of noise take less than a sentence of 4 s"


async def test_sound_without_words_has_an_empty_final(engine: EngineHost, store: Redis, ssrc: int) -> None:
    seconds = np.arange(2 * 16000) / 16000
    # tiny.en transcribes it as full stops.
    buzz = (300 * np.sign(np.sin(2 * np.pi * 100 * seconds))).astype(np.int16)
    await open_session(store, ssrc)
    await engine.say(chunks_of(ssrc, buzz), pause_s=0.05)
    (final,) = await finals(store, ssrc, 1)
    assert not final.text
    events = [event.kind for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
    assert events == [EventKind.SPEECH_STARTED, EventKind.SPEECH_STOPPED, EventKind.FINAL]


@pytest.mark.parametrize("kind", list(ChunkKind))
async def test_losses_are_reported_at_their_position(
    engine: EngineHost, store: Redis, ssrc: int, kind: ChunkKind
) -> None:
    """Chunks inside an utterance, a whole utterance, and the rest of an interrupted one."""
    await open_session(store, ssrc)
    utterances = [chunks_of(ssrc, first_sentence(), first=place, kind=kind) for place in (0, 400, 800, 1200)]
    numbered = [replace(chunk, number=number) for number, chunk in enumerate(chain.from_iterable(utterances))]
    each = len(utterances[0])
    lost = {*range(10, 13), *range(each, 2 * each), *range(3 * each - 5, 3 * each)}
    await engine.say([chunk for number, chunk in enumerate(numbered) if number not in lost])
    await finals(store, ssrc, 3)
    events = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
    end = 800 + 5 * (each - 5)
    assert [(event.start_ms // 20, event.end_ms // 20) for event in events if event.kind is EventKind.GAP] == [
        (50, 65), (220, 800), (end, 1200),
    ]  # fmt: skip
    session = await SessionStore(store).read(ssrc)
    assert session
    assert session.lost_ms == 20 * (15 + 580 + 1200 - end)


async def test_lost_start_is_reported_before_the_rest(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    whole, broken = (chunks_of(ssrc, first_sentence(), first=place) for place in (0, 400))
    numbered = [replace(chunk, number=number) for number, chunk in enumerate((*whole, *broken))]
    await engine.say(numbered[: len(whole)])
    await finals(store, ssrc, 1)
    for chunk in numbered[len(whole) + 3 :]:  # in real time, so that partials are made
        await engine.say([chunk])
        await asyncio.sleep(0.1)
    await finals(store, ssrc, 2)
    said = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START) if event.utterance == 415]
    assert [event.kind for event in said][:3] == [EventKind.GAP, EventKind.SPEECH_STARTED, EventKind.PARTIAL]
    assert (said[0].start_ms // 20, said[0].end_ms // 20) == (220, 415)


async def test_marks_are_acknowledged_in_order(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    first, second = chunks_of(ssrc, first_sentence()), chunks_of(ssrc, first_sentence(), first=400)
    first[-1] = replace(first[-1], flags=first[-1].flags | ChunkFlag.COMMIT)
    alone = ChunkFlag.START_OF_SPEECH | ChunkFlag.END_OF_SPEECH
    nothing = np.empty((0, 80), np.float32)
    # A mark has the position of the last frame, as has the end of an utterance.
    place = calculate_end_position(first[-1]) - 1
    commit = AudioChunk(ssrc, place, alone | ChunkFlag.COMMIT, nothing)
    goodbye = AudioChunk(ssrc, 700, alone | ChunkFlag.LAST, nothing)
    await engine.say([*first, commit, commit, *second, goodbye])
    said = await finals(store, ssrc, 3)
    assert [(event.commit, bool(event.text)) for event in said] == [(True, True), (True, False), (False, True)]
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while (await TranscriptStore(store).read(ssrc, STREAM_START))[-1][1].kind is not EventKind.END:
        assert time.monotonic() < limit
        await asyncio.sleep(0.05)
    session = await SessionStore(store).read(ssrc)
    assert session
    assert session.last_transcribed_sequence == 700


async def test_pause_inside_a_sentence_does_not_end_it(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc)
    speech, cut, pause = first_sentence(), 75, 20  # the VAD tier cuts at pauses
    first, second = np.split(speech, [cut * 320])
    chunks = [*chunks_of(ssrc, first), *chunks_of(ssrc, second, first=cut + pause)]
    await engine.say([replace(chunk, number=number) for number, chunk in enumerate(chunks)])
    (final,) = await finals(store, ssrc, 1)
    assert "connect your call" in final.text
    assert final.end_ms == 20 * (len(speech) // 320 + pause)
    events = [event for _, event in await TranscriptStore(store).read(ssrc, STREAM_START)]
    assert [event.kind for event in events if event.kind is not EventKind.PARTIAL] == [
        EventKind.SPEECH_STARTED, EventKind.SPEECH_STOPPED, EventKind.FINAL,
    ]  # fmt: skip


async def test_every_pause_ends_an_utterance_if_requested(engine: EngineHost, store: Redis, ssrc: int) -> None:
    await open_session(store, ssrc, end_of_turn_ms=0)
    first, second = np.split(first_sentence(), [75 * 320])
    await engine.say([*chunks_of(ssrc, first), *chunks_of(ssrc, second, first=95)])
    said = await finals(store, ssrc, 2)
    assert [final.utterance for final in said] == [0, 95]


async def test_final_published_before_its_host_died_covers_its_audio(
    engine: EngineHost, store: Redis, ssrc: int
) -> None:
    """Another host has no context for what followed: its final would be refused as a duplicate."""
    await open_session(store, ssrc)
    first, second = np.split(first_sentence(), [75 * 320])
    told = Transcript(kind=EventKind.FINAL, utterance=0, text="please hold", start_ms=0, end_ms=75 * 20)
    assert await TranscriptStore(store).publish(ssrc, told)
    await engine.say([*chunks_of(ssrc, first), *chunks_of(ssrc, second, first=95)])
    said = await finals(store, ssrc, 2)
    assert [final.utterance for final in said] == [0, 95]
    assert "connect your call" in said[1].text


async def test_host_is_in_the_registry(engine: EngineHost, store: Redis) -> None:
    registry = HostRegistry(store, Tier.ASR)
    limit = time.monotonic() + BUSY_TIMEOUT_S
    # Streams of earlier tests end meanwhile, and the registry reports it with the next heartbeat.
    while not (
        hosts := [host for host in await registry.read_live_hosts() if host.free_slots == engine.metrics()["FreeSlots"]]
    ):
        assert time.monotonic() < limit
        await asyncio.sleep(0.1)
    (host,) = hosts
    assert (host.id, host.kind, host.address, host.draining) == ("h1", HostKind.GPU, "127.0.0.1", False)
