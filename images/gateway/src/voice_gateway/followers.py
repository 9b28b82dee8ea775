"""Reads transcripts for all readers in a single request over one connection."""

import asyncio
import logging
from dataclasses import dataclass

from redis.exceptions import RedisError

from voice_runtime.transcripts import EventId, Transcript, TranscriptStore

POLL_INTERVAL_S = 0.025
"""Maximum delay until an event is read. Blocking reads would need a connection per reader, and a single blocking read
for all readers would have to be restarted after every event."""
STORE_RETRY_DELAY_S = 0.5

MAX_EVENTS_PER_READER = 32
"""Maximum number of events that are read ahead for a reader. Further events wait in the store."""

Events = list[tuple[EventId, Transcript]]

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Reader:
    ssrc: int
    after: EventId
    events: asyncio.Future[Events]


class EventPoller:
    """Readers that wait for events. Nothing is read for a reader that is still processing events."""

    def __init__(self, transcripts: TranscriptStore) -> None:
        self._transcripts = transcripts
        self._readers: set[_Reader] = set()
        self._has_readers = asyncio.Event()

    async def wait_for_next_events(self, ssrc: int, after: EventId, timeout_s: float) -> Events:
        """Wait for events after a position, and return them. The list is empty after the timeout."""
        reader = _Reader(ssrc, after, asyncio.get_running_loop().create_future())
        self._readers.add(reader)
        self._has_readers.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await reader.events
        except TimeoutError:
            return []
        finally:
            self._readers.discard(reader)

    async def run(self) -> None:
        """Read events until cancelled. While the store is unavailable, no events are read.

        An unexpected error is only logged, since no caller of the gateway would receive a transcript without this task.
        """
        while True:
            if not self._readers:
                self._has_readers.clear()
                await self._has_readers.wait()
            try:
                await self._poll()
            except (RedisError, OSError):
                await asyncio.sleep(STORE_RETRY_DELAY_S)
            except Exception:
                log.exception("transcripts could not be read")
                await asyncio.sleep(STORE_RETRY_DELAY_S)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll(self) -> None:
        # A reader that starts to wait during the query may be behind the queried position.
        readers = list(self._readers)
        after: dict[int, EventId] = {}
        for reader in readers:
            after[reader.ssrc] = min(reader.after, after.get(reader.ssrc, reader.after))
        by_session = await self._transcripts.read_many(after, count=MAX_EVENTS_PER_READER)
        for reader in readers:
            # Of two readers of a session, the one that is ahead waits until the other has caught up.
            entries = [entry for entry in by_session.get(reader.ssrc, ()) if entry[0] > reader.after]
            events = [(position, transcript) for position, transcript in entries if transcript]
            if events:
                if not reader.events.done():
                    reader.events.set_result(events)
            elif entries:
                reader.after, _ = entries[-1]  # all entries are invalid
