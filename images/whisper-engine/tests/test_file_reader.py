"""Pieces of files on a real store, with an engine whose output the test determines."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, call

import numpy as np
import pytest
from engine_host import sound
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from voice_blueprint.contract.chunk import CHUNK_SAMPLES, ChunkFlag
from voice_runtime import state, tasks
from voice_runtime.file_pieces import FilePiece, FilePieceQueue, PieceTranscript
from voice_runtime.transcripts import TimedWord
from voice_whisper import file_reader
from voice_whisper.backends.base import Word
from voice_whisper.counters import Counters
from voice_whisper.file_reader import FileTranscriber, create_utterance
from voice_whisper.job import JobFailedError, Priority, WindowTranscript
from voice_whisper.utterance import Utterance

SPEECH = sound()[:40_000].tobytes()
NOISE = np.random.default_rng(1).normal(0, 2000, 80_000).astype("<i2").tobytes()


@dataclass
class Scripted:
    """An engine with one response; without any, it is never ready."""

    heard: WindowTranscript | None = None
    asked: list[tuple[str | None, Priority, str]] = field(default_factory=list)

    async def transcribe(
        self, _: Utterance, language: str | None, wanted: Priority, prompt: str = ""
    ) -> WindowTranscript:
        self.asked.append((language, wanted, prompt))
        if self.heard is None:
            await asyncio.Event().wait()
        assert self.heard
        if self.heard.text == "given up":
            raise JobFailedError
        return self.heard


def heard(text: str, *words: Word) -> WindowTranscript:
    return WindowTranscript(text, "en", {}, 0.0, words)


@contextlib.asynccontextmanager
async def reader(
    store: Redis, engine: Scripted, has_time: Callable[[], bool] = lambda: True
) -> AsyncIterator[Counters]:
    counters = Counters()
    host = FileTranscriber("h1", FilePieceQueue(store), engine, counters)  # type: ignore[arg-type]  # what it asks of one
    running = asyncio.create_task(host.run(has_time))
    yield counters
    await tasks.cancel_tasks([running])


async def answer(store: Redis, piece: FilePiece) -> PieceTranscript:
    pieces = FilePieceQueue(store)
    await pieces.put(piece)
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while (found := await pieces.read_result(piece.name)) is None:
            await asyncio.sleep(0.02)
    await pieces.delete(piece.name)
    return found


async def test_a_piece_is_transcribed_with_its_callers_hints(store: Redis) -> None:
    engine = Scripted(heard("Hello there.", Word(" Hello", 0.1, 0.4567, 0.9), Word(" there.", 0.5, 0.9, 0.5)))
    async with reader(store, engine) as counters:
        found = await answer(store, FilePiece("p", SPEECH, "de", "Valkey"))
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while await store.exists(state.build_file_piece_lease_key("p")):  # removed after the transcript is stored
                await asyncio.sleep(0.02)
    assert found == PieceTranscript(
        text="Hello there.",
        language="en",
        words=[
            TimedWord(text="Hello", start_ms=100, end_ms=457, confidence=0.9),
            TimedWord(text="there.", start_ms=500, end_ms=900, confidence=0.5),
        ],
    )
    assert engine.asked == [("de", Priority.FILE, "Valkey")]
    assert counters.events == {"file_pieces": 1}


async def test_noise_is_not_transcribed_and_has_no_words(store: Redis) -> None:
    engine = Scripted(heard("."))
    async with reader(store, engine):
        assert await answer(store, FilePiece("noise", NOISE, None)) == PieceTranscript()
        assert engine.asked == []
        assert await answer(store, FilePiece("a full stop", SPEECH, None)) == PieceTranscript(language="en")


async def test_a_piece_that_the_engine_gives_up_has_failed(store: Redis) -> None:
    async with reader(store, Scripted(heard("given up"))) as counters:
        for number in range(2):
            assert await answer(store, FilePiece(str(number), SPEECH, None)) == PieceTranscript(failed=True)
    assert counters.events == {"file_pieces": 2, "given_up": 2}


async def test_files_wait_for_live_calls(store: Redis) -> None:
    live = [True]
    async with reader(store, Scripted(heard("Hello.")), lambda: not live):
        answering = asyncio.create_task(answer(store, FilePiece("p", SPEECH, None)))
        await asyncio.sleep(0.3)
        assert await FilePieceQueue(store).count_queued() == 1
        live.clear()
        assert (await answering).text == "Hello."


async def test_a_lease_is_renewed_while_its_piece_is_needed(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "FILE_PIECE_LEASE_TTL_S", 0.2)
    engine, pieces, lease = Scripted(), FilePieceQueue(store), state.build_file_piece_lease_key("long")
    async with reader(store, engine) as counters, asyncio.timeout(BUSY_TIMEOUT_S):
        await pieces.put(FilePiece("long", SPEECH, None))
        while not engine.asked:
            await asyncio.sleep(0.02)
        await store.persist(lease)
        while await store.ttl(lease) < 0:
            await asyncio.sleep(0.02)
        await pieces.delete("long")
        engine.heard = heard("Next.")
        assert (await answer(store, FilePiece("next", SPEECH, None))).text == "Next."
    assert counters.events["file_pieces"] == 2


async def test_an_idle_host_looks_for_pieces_ten_times_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, pauses = AsyncMock(**{"claim.return_value": None}), list[float]()

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(file_reader, "asyncio", SimpleNamespace(sleep=sleep))
    engine: Any = Scripted()
    with pytest.raises(KeyboardInterrupt):
        await FileTranscriber("h1", queue, engine, Counters()).run(lambda: True)
    assert sum(pauses) == pytest.approx(1)
    assert queue.claim.await_args_list == [call("h1")] * 10


async def test_a_lease_is_renewed_in_the_middle_of_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def wait(works: set[asyncio.Task[PieceTranscript]], timeout: float) -> None:
        waits.append(timeout)
        if len(waits) == 3:
            await asyncio.wait(works)

    queue, engine = AsyncMock(), Scripted(heard("Hello."))
    patched: Any = SimpleNamespace(**vars(asyncio) | {"wait": wait})
    monkeypatch.setattr(file_reader, "asyncio", patched)
    host = FileTranscriber("h1", queue, engine, Counters())  # type: ignore[arg-type]  # what it asks of one
    await host._transcribe_piece(FilePiece("p", SPEECH, None))
    assert waits == [state.FILE_PIECE_LEASE_TTL_S * 0.5] * 3
    assert queue.renew.await_args_list == [call("p")] * 2
    queue.complete.assert_awaited_once_with("p", PieceTranscript(text="Hello.", language="en"))


@pytest.mark.parametrize("samples", [1, CHUNK_SAMPLES, CHUNK_SAMPLES + 1, 3 * CHUNK_SAMPLES])
def test_a_piece_is_a_complete_utterance_with_its_samples(samples: int) -> None:
    audio = np.arange(1, samples + 1, dtype="<i2")
    utterance = create_utterance(audio.tobytes())
    assert utterance.is_complete
    assert utterance.has_start
    *others, last = (chunk.flags for chunk in utterance._chunks.values())
    assert (set(others) <= {ChunkFlag(0)}, last) == (True, ChunkFlag.END_OF_SPEECH)
    assert (utterance.start, utterance.frame_count) == (0, -(-samples // 320))
    assert utterance.next_chunk_number == -(-samples // CHUNK_SAMPLES)
    found = utterance.decode_samples()
    assert np.array_equal(found[:samples], audio)
    assert not found[samples:].any()
