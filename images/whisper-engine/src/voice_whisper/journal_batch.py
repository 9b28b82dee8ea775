"""Chunks on their way to the journal, many in one round trip."""

import asyncio
from collections import deque

from voice_runtime.chunk import AudioChunk
from voice_runtime.journal import Journal
from voice_whisper.counters import Counters
from voice_whisper.utterance import Utterance

EVERY_S = 0.05
"""What a host loses that dies: the VAD tier's chunks of that time."""

MOST_WAITING = 8192
"""Chunks that wait for a store that is away, 3.2 kB each; then the oldest go: their session's host still has them."""


class JournalBatch:
    """Collects chunks and appends them."""

    def __init__(self, journal: Journal, counters: Counters) -> None:
        self._journal = journal
        self._counters = counters
        self._waiting: deque[tuple[int, Utterance, AudioChunk, bytes]] = deque()
        self._one_at_a_time = asyncio.Lock()

    def add(self, ssrc: int, utterance: Utterance, chunk: AudioChunk, datagram: bytes) -> None:
        """Add a chunk of an utterance, which learns the entry's id."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._counters.events["not_journalled"] += 1
        self._waiting.append((ssrc, utterance, chunk, datagram))

    async def flush(self) -> None:
        """Append what waits.

        Raises:
            redis.exceptions.RedisError: The store is away; nothing is lost.
        """
        async with self._one_at_a_time:
            batch = list(self._waiting)
            if not batch:
                return
            ids = await self._journal.append([(ssrc, datagram) for ssrc, _, _, datagram in batch])
            for (_, utterance, chunk, _), entry_id in zip(batch, ids, strict=True):
                utterance.keep(entry_id, chunk.sequence)
            for entry in batch:
                if self._waiting and self._waiting[0] is entry:
                    self._waiting.popleft()
