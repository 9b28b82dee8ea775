"""Chunks on their way to the journal, while the store is away."""

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
