"""Who is let in: sessions that Valkey knows, as many as the host has slots."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from enum import StrEnum

from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.sessions import Session, Sessions
from voice_whisper.live_session import LiveSession, Services
from voice_whisper.patience import STORE_ERRORS, until_done
from voice_whisper.window import FRAME_MS

REFUSED_FOR_S = 5.0
"""A session that Valkey does not know is not asked for again for that long."""
FULL_FOR_S = 2.0
"""A session that finds this host full is told so again after that long."""
MOST_REFUSED = 65_536
MOST_LOOKUPS = 256
MOST_HELD_CHUNKS = 100
"""Chunks of one session that wait for Valkey: 10 s of speech."""


class Refused(StrEnum):
    """Why a datagram's session is not let in; names a counter."""

    UNKNOWN = "unknown-session"
    FULL = "full"
    DRAINING = "draining"
    LOOKUPS = "too-many-lookups"
    HELD = "too-many-held"
    WRONG_KIND = "wrong-kind"
    """Features that the model does not take, or that vLLM cannot be sent."""


Held = list[tuple[AudioChunk, bytes]]


class Admission:
    """Leads datagrams to their sessions.

    Attributes:
        live: The sessions that are let in.
        is_closed: Whether new ones are refused.
    """

    def __init__(self, slots: int, sessions: Sessions, services: Services) -> None:
        self.live: dict[int, LiveSession] = {}
        self.is_closed = False
        self._slots = slots
        self._sessions = sessions
        self._services = services
        self._held: dict[int, Held] = {}
        self._opening: set[int] = set()
        self._releasing = 0
        self._refused_until: dict[int, float] = {}
        self._full_until: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that are understood here; none: the engine does not tell."""
        return self._services.transcriber.languages

    @property
    def free_slots(self) -> int:
        """Sessions that can still be let in."""
        return max(0, self._slots - len(self.live.keys() | self._opening))

    @property
    def is_empty(self) -> bool:
        """Whether the host has no session any more, and has told so."""
        return not (self.live or self._held or self._releasing)

    def receive(self, datagram: bytes) -> None:
        """Take a datagram of the VAD tier, or count why it is not taken."""
        counters = self._services.counters
        try:
            chunk = AudioChunk.parse(datagram)
        except MalformedChunkError as error:
            counters.malformed[error.why] += 1
            return
        counters.events["chunks"] += 1
        if chunk.kind not in self._services.transcriber.kinds:
            counters.refused[Refused.WRONG_KIND] += 1
        else:
            self._lead(chunk, datagram)

    async def adopt(self, ssrc: int, *, is_ours: bool = False) -> None:
        """Finish what a dead host left of a session, if no other host does.

        Args:
            ssrc: The session.
            is_ours: This host has its lease, from before it was started again.

        Raises:
            redis.exceptions.RedisError: The store is away.
        """
        if ssrc in self.live or ssrc in self._held or not self.free_slots or self.is_closed:
            return
        self._held[ssrc] = []
        try:
            if is_ours or await self._services.journal.take_over(ssrc):
                await self._open_adopted(ssrc)
        finally:
            self._lead_held(ssrc)

    def drop(self, ssrc: int) -> None:
        """Let go of a session that another host has taken."""
        session = self.live.pop(ssrc, None)
        if session:
            session.drop()
            self._services.counters.events["lost_leases"] += 1

    async def release(self, ssrc: int) -> None:
        """Leave a session that has nothing unfinished to whoever is next.

        Raises:
            redis.exceptions.RedisError: The store is away; the lease runs out by itself.
        """
        session = self.live.pop(ssrc)
        session.drop()
        self._releasing += 1
        try:
            await self._services.journal.release(ssrc)
        finally:
            self._releasing -= 1

    def _lead(self, chunk: AudioChunk, datagram: bytes) -> None:
        if session := self.live.get(chunk.session):
            session.hear(chunk, datagram)
        elif why := self._hold(chunk, datagram):
            self._services.counters.refused[why] += 1

    def _hold(self, chunk: AudioChunk, datagram: bytes) -> Refused | None:
        """Keep a datagram until Valkey has said whether its session exists; return why not."""
        ssrc, now = chunk.session, time.monotonic()
        held = self._held.get(ssrc)
        if held is not None:
            if len(held) >= MOST_HELD_CHUNKS:
                return Refused.HELD
            held.append((chunk, datagram))
            return None
        if self._refused_until.get(ssrc, 0.0) > now:
            return Refused.UNKNOWN
        if self.is_closed:
            return Refused.DRAINING
        if not self.free_slots:
            self._tell_full(ssrc, now)
            return Refused.FULL
        if len(self._held) >= MOST_LOOKUPS:
            return Refused.LOOKUPS
        self._held[ssrc] = [(chunk, datagram)]
        self._begin(self._admit(ssrc))
        return None

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell_full(self, ssrc: int, now: float) -> None:
        """Let the gateway know, once in a while: its caller speaks, and nobody listens."""
        if self._full_until.get(ssrc, 0.0) <= now and len(self._tasks) < MOST_LOOKUPS:
            _remember(self._full_until, ssrc, now + FULL_FOR_S)
            self._begin(self._refuse(ssrc))

    async def _refuse(self, ssrc: int) -> None:
        with contextlib.suppress(*STORE_ERRORS):
            await self._sessions.refuse(ssrc)

    async def _admit(self, ssrc: int) -> None:
        try:
            record = await until_done("admission", lambda: self._sessions.read(ssrc))
            if record is None:
                _remember(self._refused_until, ssrc, time.monotonic() + REFUSED_FOR_S)
            elif self.free_slots:
                self._opening.add(ssrc)
                await until_done("admission", lambda: self._services.journal.take(ssrc))
                await self._open(ssrc, record)
        finally:
            self._opening.discard(ssrc)
            self._lead_held(ssrc)

    async def _open_adopted(self, ssrc: int) -> None:
        record = await self._sessions.read(ssrc)
        if record is None:
            await self._services.journal.release(ssrc)
            return
        await self._open(ssrc, record)
        self._services.counters.events["adopted"] += 1

    def _lead_held(self, ssrc: int) -> None:
        for chunk, datagram in self._held.pop(ssrc):
            self._lead(chunk, datagram)

    async def _open(self, ssrc: int, record: Session) -> None:
        told = await until_done("admission", lambda: self._services.transcripts.last_final(ssrc))
        # A final may be told, and what it covers not be noted: its host died in between.
        done_until = max(record.transcribed_to + 1, told.end_ms // FRAME_MS if told else 0)
        session = LiveSession(record, self._services, done_until=done_until)
        await session.restore()
        self.live[ssrc] = session
        if record.refused_at:
            self._begin(until_done("admission", lambda: self._sessions.accept(ssrc)))


def _remember(until: dict[int, float], ssrc: int, at: float) -> None:
    """Note a time for a session, and forget the oldest where there are too many."""
    if len(until) >= MOST_REFUSED:
        until.pop(next(iter(until)))
    until.pop(ssrc, None)
    until[ssrc] = at
