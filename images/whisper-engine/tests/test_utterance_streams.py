"""Utterances in an engine with streaming input: a local one, whose words follow from the audio that it received."""

import asyncio
import gc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock
from weakref import finalize

import numpy as np
import pytest
from engine_host import chunks_of
from numpy.typing import NDArray
from test_streaming import heard, said, speech, text

from voice_blueprint.contract.chunk import ChunkFlag, ChunkKind
from voice_whisper import streaming
from voice_whisper.job import JobFailedError, Priority
from voice_whisper.session_audio import SessionAudio
from voice_whisper.streaming import Stream, StreamError, StreamingTranscriber, join_texts
from voice_whisper.utterance import Utterance


class LocalStream:
    """A stream that recognizes the words of its audio, up to the last one before its end."""

    def __init__(self, fails: bool) -> None:
        self.text = ""
        self.audio = np.empty(0, np.int16)
        self.is_closed = False
        self._fails = fails

    async def send(self, samples: NDArray[np.int16]) -> None:
        if self._fails:
            raise StreamError("the engine died")
        self.audio = np.concatenate([self.audio, samples])
        self.text = " ".join(list(heard(self.audio))[:-1])

    async def finish(self) -> str:
        return " ".join(heard(self.audio))

    async def close(self) -> None:
        self.is_closed = True


class LocalRecognizer:
    """An engine without a server.

    Attributes:
        failures: Number of further streams that fail.
    """

    def __init__(self, max_stream_s: float = 4.0) -> None:
        self.max_stream_s = max_stream_s
        self.is_stuck = False
        self.failures = 0
        self.streams: list[LocalStream] = []

    async def run(self) -> None:
        pass

    async def wait_until_ready(self) -> None:
        pass

    async def open_stream(self) -> Stream:
        self.streams.append(LocalStream(self.failures > 0))
        self.failures -= 1
        return self.streams[-1]

    @property
    def lengths(self) -> list[int]:
        return [stream.audio.size for stream in self.streams]


def utterance_of(words: int, skipped_chunks: int = 0) -> Utterance:
    """Return an utterance whose first chunks are missing."""
    utterance = Utterance(5 * skipped_chunks, ChunkKind.PCM16, opened=not skipped_chunks)
    for chunk in chunks_of(1, speech(words), kind=ChunkKind.PCM16)[skipped_chunks:]:
        utterance.add(chunk, 0.0)
    return utterance


@pytest.mark.parametrize(
    ("words", "lengths"), [(7, [56_000]), (8, [64_000]), (9, [64_000, 40_000]), (20, [64_000, 64_000, 64_000, 64_000])]
)
async def test_each_stream_repeats_the_last_2_s_of_the_one_before(words: int, lengths: list[int]) -> None:
    recognizer = LocalRecognizer()
    assert await said(StreamingTranscriber(recognizer), utterance_of(words)) == text(words)
    assert recognizer.lengths == lengths
    assert all(stream.is_closed for stream in recognizer.streams)


async def test_a_partial_has_the_words_of_the_open_stream_and_of_those_before() -> None:
    recognizer = LocalRecognizer()
    transcriber, utterance, partials = StreamingTranscriber(recognizer), utterance_of(4), []
    chunks = chunks_of(1, speech(14), kind=ChunkKind.PCM16)
    for until in (20, 35, 55, 70):
        for chunk in chunks[:until]:
            if chunk.sequence not in utterance:
                utterance.add(chunk, 0.0)
        partials.append(await said(transcriber, utterance, Priority.PARTIAL))
    assert partials == [text(3), text(6), text(10), text(13)]
    assert recognizer.lengths == [64_000, 64_000, 48_000]
    assert [stream.is_closed for stream in recognizer.streams] == [True, True, False]
    assert await said(transcriber, utterance) == text(14)


class FixedStream(LocalStream):
    """A stream with the same words at any time."""

    def __init__(self, words: str) -> None:
        super().__init__(fails=False)
        self._words = words

    async def send(self, samples: NDArray[np.int16]) -> None:
        await super().send(samples)
        self.text = self._words

    async def finish(self) -> str:
        return self._words


async def test_words_of_a_stream_that_repeats_none_are_added_once_it_is_complete() -> None:
    recognizer = LocalRecognizer()
    recognizer.open_stream = AsyncMock(side_effect=map(FixedStream, ("one two", "six seven")))  # type: ignore[method-assign]
    transcriber, utterance = StreamingTranscriber(recognizer), utterance_of(9)
    assert await said(transcriber, utterance, Priority.PARTIAL) == "one two"
    assert await said(transcriber, utterance) == "one two six seven"


async def test_audio_after_a_final_is_sent_in_a_stream_of_its_own() -> None:
    recognizer = LocalRecognizer()
    transcriber, utterance = StreamingTranscriber(recognizer), Utterance(0, ChunkKind.PCM16, opened=True)
    chunks, texts = chunks_of(1, speech(6), kind=ChunkKind.PCM16), []
    for part in (chunks[:15], chunks[15:]):
        for chunk in part:
            utterance.add(chunk, 0.0)
        texts += [await said(transcriber, utterance, wanted) for wanted in (Priority.FINAL, Priority.PARTIAL)]
    assert texts == [text(3)] * 2 + [text(6)] * 2
    assert recognizer.lengths == [24_000, 24_000]


async def test_audio_before_the_first_sent_chunk_is_sent_with_all_that_follows() -> None:
    recognizer = LocalRecognizer()
    transcriber, utterance = StreamingTranscriber(recognizer), utterance_of(6, skipped_chunks=5)
    assert await said(transcriber, utterance, Priority.PARTIAL) == "word2 word3 word4 word5"
    for chunk in chunks_of(1, speech(6), kind=ChunkKind.PCM16)[:5]:
        utterance.add(chunk, 0.0)
    assert await said(transcriber, utterance) == text(6)
    assert recognizer.lengths == [40_000, 48_000]
    assert all(stream.is_closed for stream in recognizer.streams)


@pytest.mark.parametrize(
    ("missing", "wanted", "sent"),
    [
        (28, Priority.PARTIAL, 28 * 1600), (28, Priority.FINAL, 30 * 1600), (27, Priority.PARTIAL, 30 * 1600),
        (0, Priority.PARTIAL, 30 * 1600),
    ],
)  # fmt: skip
async def test_a_partial_ends_before_a_chunk_that_is_missing_for_up_to_200_ms(
    missing: int, wanted: Priority, sent: int
) -> None:
    recognizer, utterance = LocalRecognizer(), Utterance(0, ChunkKind.PCM16, opened=True)
    for index, chunk in enumerate(chunks_of(1, speech(6), kind=ChunkKind.PCM16)):
        if index != missing:
            utterance.add(chunk, 0.0)
    await said(StreamingTranscriber(recognizer), utterance, wanted)
    assert recognizer.lengths == [sent]


async def test_a_partial_is_tried_once_and_the_next_one_sends_all_audio() -> None:
    recognizer = LocalRecognizer()
    recognizer.failures = 1
    transcriber, utterance = StreamingTranscriber(recognizer), utterance_of(6)
    with pytest.raises(JobFailedError, match="the engine died"):
        await said(transcriber, utterance, Priority.PARTIAL)
    assert recognizer.streams[0].is_closed
    assert await said(transcriber, utterance, Priority.PARTIAL) == text(5)
    assert recognizer.lengths == [0, 48_000]
    assert await said(transcriber, utterance) == text(6)


@pytest.mark.parametrize("failures", [1, 59, 60])
async def test_a_final_is_tried_60_times_in_a_minute(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """A restart of the engine takes less."""
    pauses = AsyncMock()
    monkeypatch.setattr(asyncio, "sleep", pauses)
    recognizer = LocalRecognizer()
    recognizer.failures = failures
    transcriber = StreamingTranscriber(recognizer)
    if failures < 60:
        assert await said(transcriber, utterance_of(6)) == text(6)
        assert len(recognizer.streams) == failures + 1
    else:
        with pytest.raises(JobFailedError):
            await said(transcriber, utterance_of(6))
        assert len(recognizer.streams) == 60
    assert [pause.args for pause in pauses.await_args_list] == [(1.0,)] * min(failures, 59)


@pytest.mark.parametrize(("wanted", "depths"), [(Priority.FINAL, (0, 1)), (Priority.PARTIAL, (0, 0))])
async def test_utterances_whose_end_is_awaited_are_the_queue_of_an_engine(
    wanted: Priority, depths: tuple[int, int]
) -> None:
    transcriber, utterance = StreamingTranscriber(LocalRecognizer()), utterance_of(6)
    assert transcriber.queue_depths == (0, 0)
    transcribing = asyncio.create_task(said(transcriber, utterance, wanted))
    await asyncio.sleep(0)
    assert transcriber.queue_depths == depths
    await transcribing
    assert transcriber.queue_depths == (0, 0)
    await said(transcriber, utterance)


async def test_the_time_of_a_streaming_engine_is_that_of_its_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 102.5])
    monkeypatch.setattr(streaming, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    done = await StreamingTranscriber(LocalRecognizer()).transcribe(utterance_of(6), "en", Priority.FINAL)
    assert (done.language, done.stages_ms, done.processing_s, done.words) == ("en", {"decode": 2500.0}, 2.5, ())


def test_speech_for_a_streaming_engine_is_cut_after_5_minutes_without_an_overlap() -> None:
    transcriber = StreamingTranscriber(LocalRecognizer())
    audio = SessionAudio(
        max_utterance_frames=transcriber.max_utterance_frames, overlap_frames=transcriber.overlap_frames
    )
    (chunk, *_) = chunks_of(1, speech(1), kind=ChunkKind.PCM16)
    for sequence in (*range(0, 15_000, 95), 14_995, 15_000):
        audio.add(replace(chunk, sequence=sequence, flags=chunk.flags if sequence == 0 else ChunkFlag(0)), 0.0)
    (first,) = audio.pop_finished(1.0)
    rest = audio.current_utterance
    assert rest
    assert (first.start, first.end, rest.start, rest.begin) == (0, 15_000, 15_000, 15_000)


async def test_streams_are_left_to_the_engine_when_the_interpreter_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop that would close them is gone."""
    created: list[finalize[..., Utterance]] = []

    def create(utterance: Utterance, *close: Any) -> "finalize[..., Utterance]":
        created.append(finalize(utterance, *close))
        return created[0]

    monkeypatch.setattr(streaming, "finalize", create)
    utterance = utterance_of(6)
    await said(StreamingTranscriber(LocalRecognizer()), utterance)
    assert [(closing.alive, closing.atexit) for closing in created] == [(True, False)]


async def test_the_stream_of_an_utterance_that_is_no_longer_needed_is_closed() -> None:
    recognizer, utterance = LocalRecognizer(), utterance_of(6)
    transcriber = StreamingTranscriber(recognizer)
    await said(transcriber, utterance, Priority.PARTIAL)
    assert not recognizer.streams[0].is_closed
    del utterance
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert recognizer.streams[0].is_closed


def test_speech_after_a_pause_repeats_no_audio_to_a_streaming_engine() -> None:
    audio = SessionAudio(overlap_frames=StreamingTranscriber(LocalRecognizer()).overlap_frames)
    samples = speech(1)[: 16 * 320]
    for first in (0, 16):
        for chunk in chunks_of(1, samples, first=first, kind=ChunkKind.PCM16):
            audio.add(chunk, 0.0)
    assert [(each.start, each.begin) for each in audio.pop_finished(0.0)] == [(0, 0), (16, 16)]


@pytest.mark.parametrize(
    ("before", "behind", "whole"),
    [
        ("zero a b c d e f g h", "a b p q", "zero a b p q"),
        ("a b c d e f g h i", "a b p q", "a b c d e f g h i a b p q"),
        ("a b", "p q r s t u a b c", "a b c"),
        ("a b", "p q r s t u v a b", "a b p q r s t u v a b"),
        ("one", "one two", "one two"),
        ("a b c d", "b y z", "a b y z"),
        ("b c d e", "b y z", "b c d e b y z"),
        ("a b", "y z b w", "a b w"),
        ("a b", "x y z b", "a b x y z b"),
        ("a b", "a b x a b", "a b x a b"),
        ("a b x b d y z", "a b d w", "a b x b d w"),
    ],
)
def test_streams_share_up_to_eight_words_of_which_two_are_cut(before: str, behind: str, whole: str) -> None:
    """Two seconds have up to eight words. A single shared word counts only beside the boundary."""
    assert join_texts(before, behind, overlaps=True, is_complete=True) == whole


def test_a_stream_that_has_not_reached_the_overlap_adds_no_words() -> None:
    assert join_texts("one two three", "two", overlaps=True, is_complete=False) == "one two"
    assert join_texts("one two three", "mumble", overlaps=True, is_complete=False) == "one two three"
    assert join_texts("one two three", "mumble", overlaps=True, is_complete=True) == "one two three mumble"


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_stream_without_an_overlap_adds_all_of_its_words(is_complete: bool) -> None:
    for before, behind, whole in (("one two", "two", "one two two"), ("", "one", "one"), ("one", "", "one")):
        assert join_texts(before, behind, overlaps=False, is_complete=is_complete) == whole
