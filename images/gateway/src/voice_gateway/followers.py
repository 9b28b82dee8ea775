"""Reads transcripts for all readers in a single request over one connection."""

import asyncio
from dataclasses import dataclass

from redis.exceptions import RedisError

from voice_runtime.transcripts import EventId, Transcript, Transcripts

LOOK_EVERY_S = 0.025
"""Maximum delay until an event is read. A blocking read per reader would need a connection each, and one for all would
have to be restarted after every event."""
STORE_PAUSE_S = 0.5

EVENTS_AT_ONCE = 32
"""Maximum number of events that are read ahead for a reader; the rest waits in the store."""

Events = list[tuple[EventId, Transcript]]


@dataclass(eq=False)
class _Waiting:
    ssrc: int
    after: EventId
    events: asyncio.Future[Events]


class Followers:
    """The waiting readers. Nothing is read for a reader that is still processing events."""

    def __init__(self, transcripts: Transcripts) -> None:
        self._transcripts = transcripts
        self._waiting: set[_Waiting] = set()
        self._somebody = asyncio.Event()

    async def news(self, ssrc: int, after: EventId, wait_s: float) -> Events:
        """Return the events after a position; empty if there were none within the time."""
        waiting = _Waiting(ssrc, after, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        self._somebody.set()
        try:
            async with asyncio.timeout(wait_s):
                return await waiting.events
        except TimeoutError:
            return []
        finally:
            self._waiting.discard(waiting)

    async def run(self) -> None:
        """Read until cancelled; while the store is unavailable, there are no events."""
        while True:
            if not self._waiting:
                self._somebody.clear()
                await self._somebody.wait()
            try:
                await self._look()
            except (RedisError, OSError):
                await asyncio.sleep(STORE_PAUSE_S)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        # A reader that starts to wait during the query may be behind the queried position.
        asked = list(self._waiting)
        after: dict[int, EventId] = {}
        for waiting in asked:
            after[waiting.ssrc] = min(waiting.after, after.get(waiting.ssrc, waiting.after))
        found = await self._transcripts.read_many(after, count=EVENTS_AT_ONCE)
        for waiting in asked:
            # Of two readers of a session, the one that is ahead waits until the other has caught up.
            events = [(place, said) for place, said in found.get(waiting.ssrc, ()) if place > waiting.after]
            if events and not waiting.events.done():
                waiting.events.set_result(events)
