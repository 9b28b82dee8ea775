"""A session that this host transcribes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.journal import Journal
from voice_runtime.sessions import Session, primary_language
from voice_runtime.transcripts import GAP_NUMBER, EventKind, TimedWord, Transcript, Transcripts
from voice_whisper.agreement import LEAST_AUDIO_S, shifted, sounds_over, text_of
from voice_whisper.backends.base import Word
from voice_whisper.counters import Counters
from voice_whisper.job import GivenUpError, Heard, StaleError, Wanted
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.patience import STORE_ERRORS, until_done
from voice_whisper.session_audio import Dropped, SessionAudio
from voice_whisper.transcriber import Transcriber
from voice_whisper.utterance import KEPT_FRAMES, STEADY_FRAMES, Utterance
from voice_whisper.window import FRAME_MS

PARTIAL_EVERY_FRAMES = 1000 // FRAME_MS
"""A partial transcript for every second that is spoken."""

MANY = 8
"""Windows that wait, for partials to come twice as seldom."""
MOST_STRETCHED = 2
LONG_FRAMES = 8000 // FRAME_MS
"""Of more, what is certain is cut off."""
FRAME_S = FRAME_MS / 1000
NOTHING = Heard("", None, {}, 0.0)

Result = TypeVar("Result")

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
class _Due:
    """What readers are to be told next: a final waits for its transcript, and all that is behind it waits for that.

    Attributes:
        number: Of the event, where its kind does not say it.
        over: The utterance that is over with it.
    """

    transcript: Transcript | None = None
    number: int = 1
    over: Utterance | None = None


@dataclass(eq=False)
class _Ahead:
    """What is heard of an utterance whose speaker is silent: its final, unless speech goes on.

    Attributes:
        end: Place behind the last frame that is heard.
        hearing: Gives nothing where it failed.
    """

    utterance: Utterance
    end: int
    hearing: asyncio.Task[Heard | None] = field(init=False)
    begun_at: float = field(default_factory=time.monotonic)
    done_at: float = 0.0


class LiveSession:
    """Hears a session's chunks, and publishes its transcripts in the order of its audio.

    Attributes:
        is_sent_here: Whether chunks have come here, rather than from the journal only.
        touched_at: When the last one came.
    """

    def __init__(self, record: Session, services: Services, *, done_until: int) -> None:
        self.is_sent_here = False
        self.touched_at = time.monotonic()
        self._ssrc = record.ssrc
        self._language = primary_language(record.language) if record.language else None
        self._audio = SessionAudio(
            done_until, record.transcribed_chunks, record.end_of_turn_ms / 1000, services.transcriber.longest_frames
        )
        self._services = services
        self._outbox: deque[_Due] = deque()
        self._publishing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._partial: asyncio.Task[None] | None = None
        self._partial_of: Utterance | None = None
        self._partial_frames = 0
        self._ahead: _Ahead | None = None

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
            self._services.batch.add(self._ssrc, utterance, chunk, datagram)
            self.advance()

    async def restore(self) -> None:
        """Take in what the journal has of the session."""
        entries = await until_done("a journal", lambda: self._services.journal.entries(self._ssrc))
        stale: list[str] = []
        for entry_id, datagram in entries:
            try:
                chunk = AudioChunk.parse(datagram)
            except MalformedChunkError:
                stale.append(entry_id)
                continue
            if utterance := self._add(chunk):
                utterance.keep(entry_id, chunk.sequence)
            else:
                stale.append(entry_id)
        await until_done("a journal", lambda: self._services.journal.forget(self._ssrc, stale))
        self.advance()

    def advance(self) -> None:
        """Begin whatever is due: finals of utterances that are over, a partial of the one that is spoken."""
        now = time.monotonic()
        for utterance in self._audio.finished(now):
            self._stop_partial(utterance)
            self._end(utterance)
        if silent := self._audio.to_be_heard(now):
            self._hear_ahead(silent)
        if begun := self._audio.begun():
            self._announce(begun)
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

    def _begin(self, work: Coroutine[None, None, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tell(self, kind: EventKind, utterance: Utterance, begins: int, ends: int, number: int = 1) -> None:
        """Put an event without text behind what waits."""
        event = Transcript(
            kind=kind, utterance=utterance.start, start_ms=begins * FRAME_MS, end_ms=ends * FRAME_MS
        )  # fmt: skip
        self._outbox.append(_Due(event, number))
        self._begin(self._publish())

    def _announce(self, utterance: Utterance) -> None:
        utterance.announced = True
        if utterance.gap_before:
            self._tell(EventKind.GAP, utterance, *utterance.gap_before, number=0)
        self._tell(EventKind.SPEECH_STARTED, utterance, utterance.start, utterance.start)

    def _end(self, utterance: Utterance) -> None:
        """Have an utterance transcribed that is over, and put all that is to be told of it in its order."""
        end = utterance.start + utterance.frames
        self._services.counters.events["lost_chunks"] += utterance.lost
        if utterance.is_mark and utterance.gap_before:
            self._tell(EventKind.GAP, utterance, *utterance.gap_before, number=0)
        if not utterance.is_mark:
            if not utterance.announced:
                self._announce(utterance)
            for begins, ends in utterance.gaps:
                self._tell(EventKind.GAP, utterance, begins, ends, GAP_NUMBER + begins - utterance.start)
            self._tell(EventKind.SPEECH_STOPPED, utterance, end, end)
        final = _Due(over=utterance)
        self._outbox.append(final)
        if utterance.marks & ChunkFlag.LAST:
            self._tell(EventKind.END, utterance, end, end)
        self._begin(self._transcribe(final, utterance))

    async def _transcribe(self, final: _Due, utterance: Utterance) -> None:
        counters = self._services.counters
        over_at = begun_at = time.monotonic()
        heard, ahead = None, self._ahead
        if ahead and (ahead.utterance, ahead.end) == (utterance, utterance.end) and (heard := await ahead.hearing):
            begun_at = ahead.begun_at
            heard = replace(heard, stages_ms=heard.stages_ms | {"turn": max(0.0, 1000 * (over_at - ahead.done_at))})
        heard = heard or await self._hear(utterance)
        if heard is None:
            counters.events["given_up"] += 1
            heard = NOTHING
        ingest_ms = 1000 * (begun_at - utterance.touched_at)
        utterance.agreement.end(shifted(heard.words, utterance.begin * FRAME_S))
        counters.worked(time.monotonic(), 0.0, utterance.frames * FRAME_MS / 1000)
        final.transcript = _transcript(EventKind.FINAL, utterance, utterance.frames, heard, ingest_ms)
        await self._publish()

    def _stop_partial(self, utterance: Utterance) -> None:
        if self._partial and self._partial_of is utterance:
            self._partial.cancel()

    async def _hear(self, utterance: Utterance) -> Heard | None:
        if utterance.is_mark or utterance.is_steady(utterance.frames):
            return NOTHING
        try:
            heard = await self._services.transcriber.transcribe(utterance, self._language, Wanted.FINAL)
        except GivenUpError as error:
            log.error("session %s: utterance %s has no transcript: %s", self._ssrc, utterance.start, error)  # noqa: TRY400  an answer
            return None
        self._services.counters.worked(time.monotonic(), heard.processing_s)
        return heard

    def _hear_ahead(self, utterance: Utterance) -> None:
        """Transcribe what may be all that is said, once for each silence."""
        end = utterance.start + utterance.frames
        if self._outbox or (self._ahead and (self._ahead.utterance, self._ahead.end) == (utterance, end)):
            return
        self._stop_partial(utterance)
        ahead = self._ahead = _Ahead(utterance, end)
        ahead.hearing = self._begin(self._hear_in_silence(ahead, utterance.frames))

    async def _hear_in_silence(self, ahead: _Ahead, frames: int) -> Heard | None:
        utterance = ahead.utterance
        begin_s, heard_s = utterance.begin * FRAME_S, utterance.heard_frames * FRAME_S
        heard = await self._hear(utterance)
        ahead.done_at = time.monotonic()
        if heard is None:
            return None
        if frames == utterance.frames:
            utterance.says_all = sounds_over(heard.text) or heard is NOTHING
        if not utterance.marks:
            utterance.agreement.hear(shifted(heard.words, begin_s), votes=heard_s >= LEAST_AUDIO_S)
            await self._publish_partial(utterance, frames, replace(heard, stages_ms={}))  # the final tells them
        return heard

    async def _publish(self) -> None:
        """Publish what is ready, in its order."""
        async with self._publishing:
            while self._outbox and (transcript := self._outbox[0].transcript):
                await self._publish_one(self._outbox[0], transcript)
                self._outbox.popleft()

    async def _publish_one(self, due: _Due, transcript: Transcript) -> None:
        services, ssrc, utterance = self._services, self._ssrc, due.over
        # A goodbye in silence, which nobody asked about, has no final.
        if utterance is None or not utterance.is_mark or transcript.commit:
            publishing = partial(services.transcripts.publish, ssrc, transcript, due.number)
            is_news = await until_done("an event", publishing)
            if transcript.kind is EventKind.GAP and is_news:
                lost_ms = transcript.end_ms - transcript.start_ms
                await until_done("a gap", lambda: services.transcripts.lose(ssrc, lost_ms))
        if utterance is None:
            return
        if not utterance.is_mark:
            services.counters.events["finals" if is_news else "finals_of_others"] += 1
        await until_done("a final", lambda: services.transcripts.covered(ssrc, utterance.last, utterance.next_number))
        await until_done("the journal", services.batch.flush)
        await until_done("the journal", lambda: services.journal.forget(ssrc, list(utterance.entries)))

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
        # Rather all a little later than some not at all.
        waiting = sum(self._services.transcriber.depths)
        due = PARTIAL_EVERY_FRAMES * min(MOST_STRETCHED, 1 + waiting / MANY)
        if utterance.frames - self._partial_frames < due:
            return
        self._partial_frames = utterance.frames
        if not utterance.is_steady(STEADY_FRAMES):
            self._partial = self._begin(self._transcribe_partial(utterance, utterance.frames))

    async def _transcribe_partial(self, utterance: Utterance, frames: int) -> None:
        begin_s, heard_s = utterance.begin * FRAME_S, utterance.heard_frames * FRAME_S
        try:
            heard = await self._services.transcriber.transcribe(utterance, self._language, Wanted.PARTIAL)
        except StaleError:
            self._services.counters.events["partials_shed"] += 1
            return
        except GivenUpError:
            return
        self._services.counters.worked(time.monotonic(), heard.processing_s)
        utterance.agreement.hear(shifted(heard.words, begin_s), votes=heard_s >= LEAST_AUDIO_S)
        await self._publish_partial(utterance, frames, heard)
        self._trim(utterance)

    async def _publish_partial(self, utterance: Utterance, frames: int, heard: Heard) -> None:
        said = _transcript(EventKind.PARTIAL, utterance, frames, heard)
        async with self._publishing:
            # Behind a partial of a later utterance Valkey would refuse the final of an earlier one.
            if self._outbox or not said.text:
                return
            try:
                # The number tells how much was heard: another host's partials of less never stand behind it.
                await self._services.transcripts.publish(self._ssrc, said, frames)
            except STORE_ERRORS:
                return
            self._services.counters.events["partials"] += 1

    def _trim(self, utterance: Utterance) -> None:
        """Give the certain part of a long utterance its final, so that what is heard anew stays short."""
        certain = utterance.agreement.committed
        if not certain or utterance.end is not None or utterance is not self._audio.current:
            return
        at = round(certain[-1].end / FRAME_S)
        if (
            utterance.heard_frames <= LONG_FRAMES
            or not 2 * KEPT_FRAMES <= at - utterance.begin <= utterance.heard_frames
        ):
            return
        self._audio.split(utterance, at)
        self._partial_of = self._audio.current
        self._partial_frames = self._partial_of.frames if self._partial_of else 0
        utterance.agreement.tentative = []
        final = _transcript(EventKind.FINAL, utterance, utterance.frames, NOTHING)
        self._outbox.append(_Due(final.model_copy(update={"speech_final": False}), over=utterance))
        self._begin(self._publish())


def _transcript(
    kind: EventKind, utterance: Utterance, frames: int, heard: Heard, ingest_ms: float | None = None
) -> Transcript:
    stages_ms = heard.stages_ms if ingest_ms is None else {"ingest": ingest_ms, **heard.stages_ms}
    agreement = utterance.agreement
    text = text_of(agreement.words) or heard.text
    # Models answer noise with a full stop.
    is_speech = any(map(str.isalnum, text))
    return Transcript(
        kind=kind,
        utterance=utterance.start,
        text=text if is_speech else "",
        committed=text_of(agreement.committed) if is_speech else "",
        words=[timed(word) for word in agreement.words] if is_speech else [],
        start_ms=utterance.start * FRAME_MS,
        end_ms=(utterance.start + frames) * FRAME_MS,
        commit=kind is EventKind.FINAL and bool(utterance.marks & ChunkFlag.COMMIT),
        language=heard.language,
        stages_ms={stage: round(took, 1) for stage, took in stages_ms.items()},
    )


def timed(word: Word) -> TimedWord:
    return TimedWord(
        text=word.text.strip(),
        start_ms=round(1000 * word.start),
        end_ms=round(1000 * word.end),
        confidence=word.confidence,
    )
