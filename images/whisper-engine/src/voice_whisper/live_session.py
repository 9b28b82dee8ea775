"""A session that this host transcribes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass

from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.journal import Journal
from voice_runtime.transcripts import EventKind, Transcript, Transcripts
from voice_whisper.counters import Counters
from voice_whisper.job import GivenUpError, Heard
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.patience import STORE_ERRORS, until_done
from voice_whisper.session_audio import Dropped, SessionAudio
from voice_whisper.transcriber import Transcriber
from voice_whisper.utterance import Utterance
from voice_whisper.window import FRAME_MS

PARTIAL_EVERY_FRAMES = 1000 // FRAME_MS
"""A partial transcript for every second that is spoken."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Services:
    """What the sessions of a host share."""

    transcriber: Transcriber
    transcripts: Transcripts
    journal: Journal
    batch: JournalBatch
    counters: Counters


@dataclass(eq=False)
class _Final:
    """An utterance that is over, and its transcript once there is one."""

    utterance: Utterance
    transcript: Transcript | None = None


class LiveSession:
    """Hears a session's chunks, and publishes its transcripts in the order of its audio.

    Attributes:
        is_sent_here: Whether chunks have come here, rather than from the journal only.
        touched_at: When the last one came.
    """

    def __init__(self, ssrc: int, language: str | None, done_until: int, services: Services) -> None:
        self.is_sent_here = False
        self.touched_at = time.monotonic()
        self._ssrc = ssrc
        self._language = language
        self._audio = SessionAudio(done_until)
        self._services = services
        self._outbox: deque[_Final] = deque()
        self._publishing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._partial: asyncio.Task[None] | None = None
        self._partial_of: Utterance | None = None
        self._partial_frames = 0

    @property
    def is_busy(self) -> bool:
        """Whether something that was said has no final transcript yet."""
        return bool(self._audio.current or self._outbox)

    def hear(self, chunk: AudioChunk, datagram: bytes) -> None:
        """Take in a chunk that was sent here."""
        self.is_sent_here = True
        self.touched_at = time.monotonic()
        utterance = self._add(chunk)
        if utterance is not None:
            self._services.batch.add(self._ssrc, utterance, datagram)
            self.advance()

    async def restore(self) -> None:
        """Take in what the journal has of the session."""
        entries = await until_done("a journal", lambda: self._services.journal.entries(self._ssrc))
        stale: list[str] = []
        for entry_id, datagram in entries:
            try:
                utterance = self._add(AudioChunk.parse(datagram))
            except MalformedChunkError:
                utterance = None
            (utterance.entries if utterance else stale).append(entry_id)
        await until_done("a journal", lambda: self._services.journal.forget(self._ssrc, stale))
        self.advance()

    def advance(self) -> None:
        """Begin whatever is due: finals of utterances that are over, a partial of the one that is spoken."""
        for utterance in self._audio.finished(time.monotonic()):
            self._services.counters.events["lost_chunks"] += utterance.lost
            if self._partial and self._partial_of is utterance:
                self._partial.cancel()
            final = _Final(utterance)
            self._outbox.append(final)
            self._begin(self._transcribe(final))
        self._consider_partial()

    def drop(self) -> None:
        """Stop: another host has the session."""
        for task in self._tasks:
            task.cancel()

    def _add(self, chunk: AudioChunk) -> Utterance | None:
        added = self._audio.add(chunk, time.monotonic())
        if isinstance(added, Dropped):
            self._services.counters.dropped[added] += 1
            return None
        return added

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _transcribe(self, final: _Final) -> None:
        utterance, counters = final.utterance, self._services.counters
        ingest_ms = 1000 * (time.monotonic() - utterance.touched_at)
        try:
            heard = await self._services.transcriber.transcribe(utterance, self._language, final=True)
        except GivenUpError as error:
            log.error("session %s: utterance %s has no transcript: %s", self._ssrc, utterance.start, error)  # noqa: TRY400  an answer
            counters.events["given_up"] += 1
            heard = Heard("", self._language, {}, 0.0)
        counters.worked(time.monotonic(), heard.processing_s, utterance.frames * FRAME_MS / 1000)
        final.transcript = _transcript(EventKind.FINAL, utterance, utterance.frames, heard, ingest_ms)
        await self._publish_finals()

    async def _publish_finals(self) -> None:
        """Publish what is ready; an utterance waits for those before it."""
        async with self._publishing:
            while self._outbox and (transcript := self._outbox[0].transcript):
                await self._publish_final(self._outbox[0].utterance, transcript)
                self._outbox.popleft()

    async def _publish_final(self, utterance: Utterance, transcript: Transcript) -> None:
        services, ssrc = self._services, self._ssrc
        is_news = await until_done("a final", lambda: services.transcripts.publish(ssrc, transcript, 1))
        services.counters.events["finals" if is_news else "finals_of_others"] += 1
        await until_done("a final", lambda: services.transcripts.covered(ssrc, utterance.last))
        await until_done("the journal", services.batch.flush)
        await until_done("the journal", lambda: services.journal.forget(ssrc, utterance.entries))

    def _consider_partial(self) -> None:
        utterance = self._audio.current
        if (
            utterance is None
            or utterance.end is not None
            or self._outbox
            or (self._partial and not self._partial.done())
        ):
            return
        if utterance is not self._partial_of:
            self._partial_of, self._partial_frames = utterance, 0
        if utterance.frames - self._partial_frames < PARTIAL_EVERY_FRAMES:
            return
        self._partial_frames = utterance.frames
        if self._services.transcriber.has_room:
            self._partial = self._begin(self._transcribe_partial(utterance, utterance.frames))
        else:
            self._services.counters.events["partials_shed"] += 1

    async def _transcribe_partial(self, utterance: Utterance, frames: int) -> None:
        try:
            heard = await self._services.transcriber.transcribe(utterance, self._language, final=False)
        except GivenUpError:
            return
        self._services.counters.worked(time.monotonic(), heard.processing_s)
        partial = _transcript(EventKind.PARTIAL, utterance, frames, heard)
        async with self._publishing:
            # Behind a partial of a later utterance Valkey would refuse the final of an earlier one.
            if self._outbox or not partial.text:
                return
            try:
                # The number tells how much was heard: another host's partials of less never stand behind it.
                await self._services.transcripts.publish(self._ssrc, partial, frames)
            except STORE_ERRORS:
                return
            self._services.counters.events["partials"] += 1


def _transcript(
    kind: EventKind, utterance: Utterance, frames: int, heard: Heard, ingest_ms: float | None = None
) -> Transcript:
    stages_ms = heard.stages_ms if ingest_ms is None else {"ingest": ingest_ms, **heard.stages_ms}
    return Transcript(
        kind=kind,
        utterance=utterance.start,
        # Models answer noise with a full stop.
        text=heard.text if any(map(str.isalnum, heard.text)) else "",
        start_ms=utterance.start * FRAME_MS,
        end_ms=(utterance.start + frames) * FRAME_MS,
        language=heard.language,
        stages_ms={stage: round(took, 1) for stage, took in stages_ms.items()},
    )
