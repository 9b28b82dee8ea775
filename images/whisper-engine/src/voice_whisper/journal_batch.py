"""Chunks for the journal, which are written in batches of one round trip each."""

import asyncio
from collections import deque

from voice_runtime.chunk import AudioChunk
from voice_runtime.journal import AudioJournal
from voice_whisper.counters import Counters
from voice_whisper.utterance import Utterance

FLUSH_INTERVAL_S = 0.05
"""Interval between two batches, which is the maximum duration of the chunks that a failing host loses."""

MAX_WAITING_CHUNKS = 8192
"""Maximum number of chunks that wait for an unavailable store, 3.2 kB each. Above this number, the oldest chunks are
not written to the journal, but their session's host still keeps them."""


class JournalBatch:
    """Buffers chunks, and appends them to the journal in batches."""

    def __init__(self, journal: AudioJournal, counters: Counters) -> None:
        self._journal = journal
        self._counters = counters
        self._waiting: deque[tuple[int, Utterance, AudioChunk, bytes]] = deque()
        self._lock = asyncio.Lock()

    def add(self, ssrc: int, utterance: Utterance, chunk: AudioChunk, datagram: bytes) -> None:
        """Add a chunk of an utterance, to which the id of the journal entry is added later."""
        if len(self._waiting) >= MAX_WAITING_CHUNKS:
            self._waiting.popleft()
            self._counters.events["not_journalled"] += 1
        self._waiting.append((ssrc, utterance, chunk, datagram))

    async def flush(self) -> None:
        """Append the collected chunks.

        Raises:
            redis.exceptions.RedisError: The store is unavailable; nothing is lost.
        """
        async with self._lock:
            batch = list(self._waiting)
            if not batch:
                return
            ids = await self._journal.append([(ssrc, datagram) for ssrc, _, _, datagram in batch])
            for (_, utterance, chunk, _), entry_id in zip(batch, ids, strict=True):
                utterance.add_journal_entry(entry_id, chunk.sequence)
            for entry in batch:
                if self._waiting and self._waiting[0] is entry:
                    self._waiting.popleft()
