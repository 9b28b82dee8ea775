"""Admission of sessions that exist in Valkey, up to the host's number of slots.

The number of unknown sessions that wait for their lookup is limited, and addresses are served in turn. Above the limit,
the address with the most waiting sessions loses its oldest session, so a flood delays only sessions from its own
address.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum

from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.fair_admission import SourceLimitedSet
from voice_runtime.sessions import Session, SessionStore
from voice_whisper.live_session import LiveSession, SessionContext
from voice_whisper.retries import STORE_ERRORS, retry_until_done
from voice_whisper.window import FRAME_MS

UNKNOWN_SESSION_TTL_S = 5.0
"""Time for which an unknown session is not looked up again."""
FULL_REPORT_INTERVAL_S = 2.0
"""Interval at which a full host reports to a session's gateway that the host is full."""
MAX_REFUSED_SESSIONS = 65_536
MAX_LOOKUPS = 256
"""Maximum number of sessions that wait for their lookup, and of concurrent lookups."""
MAX_LOOKUPS_PER_S = 250
"""Maximum rate of lookups. A lookup takes about 0.2 ms, so a flood of unknown sessions leaves 95 % of the event loop's
time for other work."""
MAX_BUFFERED_CHUNKS = 100
"""Maximum number of a session's chunks that wait for Valkey: 10 s of speech."""


class RefusalReason(StrEnum):
    """Reason for refusing a datagram's session, which is also the name of a counter."""

    UNKNOWN = "unknown-session"
    FULL = "full"
    DRAINING = "draining"
    TOO_MANY_LOOKUPS = "too-many-lookups"
    TOO_MANY_BUFFERED = "too-many-held"
    WRONG_KIND = "wrong-kind"
    """Features that the model does not support, or that cannot be sent to vLLM."""


@dataclass(frozen=True, eq=False)
class _ReceivedChunk:
    """A received chunk.

    Attributes:
        source: Source address.
    """

    chunk: AudioChunk
    datagram: bytes
    source: str


class Admission:
    """Routes datagrams to their sessions.

    Attributes:
        live_sessions: The admitted sessions.
        is_closed: Whether new sessions are refused.
    """

    def __init__(self, slots: int, sessions: SessionStore, services: SessionContext) -> None:
        self.live_sessions: dict[int, LiveSession] = {}
        self.is_closed = False
        self._slots = slots
        self._sessions = sessions
        self._services = services
        self._held: dict[int, list[_ReceivedChunk]] = {}
        self._unknown: SourceLimitedSet[int] = SourceLimitedSet(MAX_LOOKUPS)
        self._has_unknown = asyncio.Event()
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self._opening: set[int] = set()
        self._releasing = 0
        self._refused_until: dict[int, float] = {}
        self._full_report_due: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def languages(self) -> tuple[str, ...]:
        """Supported languages; empty if the engine does not report them."""
        return self._services.transcriber.languages

    @property
    def free_slots(self) -> int:
        """Number of further sessions that can be admitted."""
        return self._slots - len(self.live_sessions.keys() | self._opening)

    @property
    def is_empty(self) -> bool:
        """Whether the host has no sessions left, and has released all of their leases."""
        return not (self.live_sessions or self._held or self._releasing)

    async def run(self) -> None:
        """Look up unknown sessions until cancelled."""
        while True:
            await self._has_unknown.wait()
            ssrc = self._unknown.pop()
            if ssrc is None:
                self._has_unknown.clear()
                continue
            await self._lookups.acquire()
            self._start_task(self._admit(ssrc) if ssrc in self._held else self._report_refusal(ssrc)).add_done_callback(
                lambda _: self._lookups.release()
            )
            await asyncio.sleep(1 / MAX_LOOKUPS_PER_S)

    def receive(self, datagram: bytes, source: str) -> None:
        """Process a datagram from the VAD tier, or count the reason for rejecting it.

        Args:
            source: Source address.
        """
        counters = self._services.counters
        try:
            chunk = AudioChunk.parse(datagram)
        except MalformedChunkError as error:
            counters.malformed[error.reason] += 1
            return
        counters.events["chunks"] += 1
        if chunk.kind not in self._services.transcriber.supported_kinds:
            counters.refused[RefusalReason.WRONG_KIND] += 1
        else:
            self._deliver(_ReceivedChunk(chunk, datagram, source))

    async def adopt(self, ssrc: int, *, is_own: bool = False) -> None:
        """Finish a failed host's work on a session, unless another host does so.

        Args:
            ssrc: The session.
            is_own: Whether this host has owned the lease since before a restart.

        Raises:
            redis.exceptions.RedisError: The store is unavailable.
        """
        if ssrc in self.live_sessions or ssrc in self._held or not self.free_slots or self.is_closed:
            return
        self._unknown.discard(ssrc)
        self._held[ssrc] = []
        self._opening.add(ssrc)
        try:
            if is_own or await self._services.journal.claim_session(ssrc):
                await self._adopt_session(ssrc)
        finally:
            self._opening.discard(ssrc)
            self._deliver_buffered(ssrc)

    def drop(self, ssrc: int) -> None:
        """Drop a session that another host has taken over."""
        session = self.live_sessions.pop(ssrc, None)
        if session:
            session.drop()
            self._services.counters.events["lost_leases"] += 1

    async def release(self, ssrc: int) -> None:
        """Release a session without unfinished work for the next host.

        Raises:
            redis.exceptions.RedisError: The store is unavailable; the lease expires by itself.
        """
        session = self.live_sessions.pop(ssrc)
        session.drop()
        self._releasing += 1
        try:
            await self._services.journal.release(ssrc)
        finally:
            self._releasing -= 1

    def _deliver(self, arrival: _ReceivedChunk) -> None:
        if session := self.live_sessions.get(arrival.chunk.session):
            session.add_chunk(arrival.chunk, arrival.datagram)
        elif reason := self._buffer_chunk(arrival):
            self._services.counters.refused[reason] += 1

    def _buffer_chunk(self, arrival: _ReceivedChunk) -> RefusalReason | None:
        """Store a datagram until its session has been looked up, or return the reason for rejecting it."""
        ssrc, now = arrival.chunk.session, time.monotonic()
        buffered = self._held.get(ssrc)
        if buffered is not None:
            if len(buffered) >= MAX_BUFFERED_CHUNKS:
                return RefusalReason.TOO_MANY_BUFFERED
            buffered.append(arrival)
            return None
        if self._refused_until.get(ssrc, 0.0) > now:
            return RefusalReason.UNKNOWN
        if self.is_closed:
            return RefusalReason.DRAINING
        if self.free_slots:
            self._held[ssrc] = [arrival]
            self._look_up(ssrc, arrival.source)
            return None
        if self._full_report_due.get(ssrc, 0.0) <= now:
            _record_deadline(self._full_report_due, ssrc, now + FULL_REPORT_INTERVAL_S)
            self._look_up(ssrc, arrival.source)
        return RefusalReason.FULL

    def _look_up(self, ssrc: int, source: str) -> None:
        """Start the lookup of a session.

        Above the limit, the address with the most waiting sessions loses its oldest session.
        """
        if ssrc not in self._unknown:
            removed = self._unknown.add(ssrc, source)
            if removed is not None:
                self._services.counters.refused[RefusalReason.TOO_MANY_LOOKUPS] += len(self._held.pop(removed, ()))
        self._has_unknown.set()

    def _start_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _report_refusal(self, ssrc: int) -> None:
        """Report to the gateway that this host is full, and therefore does not transcribe the session's speech."""
        with contextlib.suppress(*STORE_ERRORS):
            await self._sessions.mark_refused(ssrc)

    async def _admit(self, ssrc: int) -> None:
        try:
            record = await retry_until_done("admission", lambda: self._sessions.read(ssrc))
            if record is None:
                _record_deadline(self._refused_until, ssrc, time.monotonic() + UNKNOWN_SESSION_TTL_S)
            elif self.free_slots:
                self._opening.add(ssrc)
                await retry_until_done("admission", lambda: self._services.journal.acquire(ssrc))
                await self._start_session(ssrc, record)
        finally:
            self._opening.discard(ssrc)
            self._deliver_buffered(ssrc)

    async def _adopt_session(self, ssrc: int) -> None:
        record = await self._sessions.read(ssrc)
        if record is None:
            await self._services.journal.release(ssrc)
            return
        await self._start_session(ssrc, record)
        self._services.counters.events["adopted"] += 1

    def _deliver_buffered(self, ssrc: int) -> None:
        for arrival in self._held.pop(ssrc):
            self._deliver(arrival)

    async def _start_session(self, ssrc: int, record: Session) -> None:
        last_final = await retry_until_done("admission", lambda: self._services.transcripts.read_last_final(ssrc))
        # If the previous host failed right after it published a final transcript, the record does not include that
        # transcript yet.
        transcribed_until = max(
            record.last_transcribed_sequence + 1, last_final.end_ms // FRAME_MS if last_final else 0
        )
        session = LiveSession(record, self._services, transcribed_until=transcribed_until)
        await session.restore()
        self.live_sessions[ssrc] = session
        if record.refused_at:
            self._start_task(retry_until_done("admission", lambda: self._sessions.clear_refusal(ssrc)))


def _record_deadline(until: dict[int, float], ssrc: int, at: float) -> None:
    """Store a time for a session, and remove the oldest time if the limit is exceeded."""
    if len(until) >= MAX_REFUSED_SESSIONS:
        until.pop(next(iter(until)))
    until.pop(ssrc, None)
    until[ssrc] = at
