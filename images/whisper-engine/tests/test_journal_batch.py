"""Chunks on their way to the journal, while the store is away."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import numpy as np
import pytest
from redis.asyncio import Redis

from voice_blueprint.contract.chunk import CHUNK_SAMPLES, ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.journal import AudioJournal
from voice_whisper import journal_batch
from voice_whisper.counters import Counters
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.utterance import Utterance


async def test_chunks_that_wait_for_the_store_are_limited(
    store: Redis, ssrc: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_batch, "MAX_WAITING_CHUNKS", 3)
    counters, journal = Counters(), AudioJournal(store, "a host")
    batch = JournalBatch(journal, counters)
    utterance = Utterance(ssrc, ChunkKind.PCM16, opened=True)
    for number in range(5):
        samples = np.zeros(CHUNK_SAMPLES, "<i2")
        chunk = AudioChunk(ssrc, 10 * number, ChunkFlag(0), samples, number)
        batch.add(ssrc, utterance, chunk, str(number).encode())
    await batch.flush()
    await batch.flush()
    kept = [datagram for _, datagram in await journal.read_entries(ssrc)]
    assert kept == [b"2", b"3", b"4"], "the oldest are left out"
    assert counters.events["not_journalled"] == 2


async def test_8192_chunks_wait_for_the_store(ssrc: int) -> None:
    """``docs/security.md`` has this limit."""
    counters = Counters()
    batch = JournalBatch(AsyncMock(), counters)
    chunk: Any = object()
    for number in range(8192):
        batch.add(ssrc, chunk, chunk, str(number).encode())
    assert counters.events == {}
    batch.add(ssrc, chunk, chunk, b"last")
    assert counters.events == {"not_journalled": 1}


async def test_each_chunk_is_written_once_and_knows_its_entry(ssrc: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks may arrive, or be left out, while a batch is written."""
    monkeypatch.setattr(journal_batch, "MAX_WAITING_CHUNKS", 3)
    written: list[bytes] = []

    async def append(datagrams: list[tuple[int, bytes]]) -> list[str]:
        assert all(owner == ssrc for owner, _ in datagrams)
        if not written:
            for number in (3, 4):
                add(number)
        written.extend(datagram for _, datagram in datagrams)
        return [f"entry {datagram.decode()}" for _, datagram in datagrams]

    journal = Mock(append=AsyncMock(side_effect=append))
    batch, utterance = JournalBatch(journal, Counters()), Mock()

    def add(number: int) -> None:
        batch.add(ssrc, utterance, SimpleNamespace(sequence=10 * number), str(number).encode())  # type: ignore[arg-type]

    await batch.flush()
    journal.append.assert_not_awaited()
    for number in range(3):
        add(number)
    for _ in range(3):
        await batch.flush()
    assert written == [b"0", b"1", b"2", b"3", b"4"]
    assert journal.append.await_count == 2
    assert utterance.add_journal_entry.call_args_list == [call(f"entry {each}", 10 * each) for each in range(5)]


async def test_chunks_remain_until_the_store_has_them(ssrc: int) -> None:
    journal = AsyncMock(**{"append.side_effect": [OSError, ["1-0"]]})
    batch, utterance = JournalBatch(journal, Counters()), Mock()
    batch.add(ssrc, utterance, Mock(sequence=5), b"chunk")
    with pytest.raises(OSError):  # noqa: PT011  the stand-in's
        await batch.flush()
    await batch.flush()
    assert journal.append.await_args_list == [call([(ssrc, b"chunk")])] * 2
    utterance.add_journal_entry.assert_called_once_with("1-0", 5)
