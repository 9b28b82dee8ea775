"""A session that this host transcribes."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from voice_blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk, MalformedChunkError
from voice_runtime.journal import AudioJournal
from voice_runtime.redaction import count_trailing_digits, redact_transcript
from voice_runtime.sessions import Session, SessionStore, get_primary_language
from voice_runtime.transcripts import GAP_NUMBER_BASE, EventKind, TimedWord, Transcript, TranscriptStore
from voice_whisper.agreement import MIN_AUDIO_S, ends_sentence, join_words, shift_words
from voice_whisper.backends.base import Word
from voice_whisper.counters import Counters
from voice_whisper.job import JobFailedError, Priority, StaleJobError, WindowTranscript
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.retries import STORE_ERRORS, retry_until_done
from voice_whisper.session_audio import DropReason, SessionAudio
from voice_whisper.transcriber import Transcriber
from voice_whisper.utterance import MIN_STEADY_FRAMES, OVERLAP_FRAMES, SPLIT_THRESHOLD_FRAMES, Utterance
from voice_whisper.window import FRAME_MS

FIRST_PARTIAL_FRAMES = 700 // FRAME_MS
"""Duration of speech before the first partial transcript of an utterance."""
PARTIAL_INTERVAL_FRAMES = 1000 // FRAME_MS
"""Duration of additional speech before each further partial transcript."""

QUEUE_THRESHOLD_WINDOWS = 8
"""Number of waiting windows above which partials are half as frequent."""
MAX_PARTIAL_INTERVAL_FACTOR = 2
FRAME_S = FRAME_MS / 1000
CUT_WORD_MARGIN_S = 0.12
"""Margin before a commit during speech, or before the end of a partial's audio. A word that ends within this margin may
continue after it, since word ends are accurate to a tenth of a second."""
CONTINUATION_GAP_S = 0.25
"""Time within which continuing speech arrives after a commit, since chunks arrive every 100 ms."""
EMPTY_TRANSCRIPT = WindowTranscript("", None, {}, 0.0)

Result = TypeVar("Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SessionContext:
    """Objects that the sessions on a host share."""

    transcriber: Transcriber
    transcripts: TranscriptStore
    journal: AudioJournal
    batch: JournalBatch
    counters: Counters
    sessions: SessionStore


@dataclass
class _PendingEvent:
    """An event to publish. A final event waits for its transcript, and all following events wait for the final event.

    Attributes:
        number: Number of the event, if its kind does not determine it.
        ended_utterance: The utterance that ends with the event.
    """

    transcript: Transcript | None = None
    number: int = 1
    ended_utterance: Utterance | None = None


@dataclass
class _EarlyTranscript:
    """Early transcript of an utterance whose speaker is silent.

    The early transcript becomes the final transcript unless speech continues.

    Attributes:
        end_frame: Position after the last transcribed frame.
        task: Task of the transcript; its result is None on failure.
        completed_at: End of the task, available once it has ended.
    """

    utterance: Utterance
    end_frame: int
    started_at: float
    task: asyncio.Task[WindowTranscript | None] = field(init=False)
    completed_at: float = field(init=False)


class LiveSession:
    """Transcribes a session's chunks, and publishes its transcripts in the order of its audio.

    Attributes:
        is_assigned_to_host: Whether chunks have been received here, rather than only from the journal.
        last_audio_at: Time of the last chunk.
    """

    def __init__(self, record: Session, services: SessionContext, *, transcribed_until: int) -> None:
        self.is_assigned_to_host = False
        self.last_audio_at = time.monotonic()
        self._ssrc = record.ssrc
        self._audio = SessionAudio(
            transcribed_until,
            record.next_chunk_number,
            max_utterance_frames=services.transcriber.max_utterance_frames,
            overlap_frames=services.transcriber.overlap_frames,
        )
        self._apply_settings(record)
        self._previous_digits = 0
        """Number of digits at the end of the last final transcript, for redacting card numbers."""
        self._services = services
        self._outbox: deque[_PendingEvent] = deque()
        self._publishing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._partial: asyncio.Task[None] | None = None
        self._partial_utterance: Utterance | None = None
        self._partial_frames = 0
        self._ahead: _EarlyTranscript | None = None
        self._last: asyncio.Task[None] | None = None
        """Task that transcribes the newest completed utterance."""

    @property
    def is_busy(self) -> bool:
        """Whether some speech has no final transcript yet."""
        return bool(self._audio.current_utterance or self._outbox)

    def add_chunk(self, chunk: AudioChunk, datagram: bytes) -> None:
        """Process a chunk that was sent here."""
        self.is_assigned_to_host = True
        self.last_audio_at = time.monotonic()
        utterance = self._assign_chunk(chunk)
        if utterance is not None:
            self._services.batch.add(self._ssrc, utterance, chunk, datagram)
            self.start_due_transcripts()

    async def restore(self) -> None:
        """Process the session's chunks in the journal."""
        entries = await retry_until_done("a journal", lambda: self._services.journal.read_entries(self._ssrc))
        expired: list[str] = []
        for entry_id, datagram in entries:
            try:
                chunk = AudioChunk.parse(datagram)
            except MalformedChunkError:
                expired.append(entry_id)
                continue
            if utterance := self._assign_chunk(chunk):
                utterance.add_journal_entry(entry_id, chunk.sequence)
            else:
                expired.append(entry_id)
        await retry_until_done("a journal", lambda: self._services.journal.delete(self._ssrc, expired))
        self.start_due_transcripts()

    def start_due_transcripts(self) -> None:
        """Start the final transcripts of completed utterances and, if it is due, a partial of the current utterance."""
        now = time.monotonic()
        for utterance in self._audio.pop_finished(now):
            self._stop_partial(utterance)
            self._complete_utterance(utterance)
        if silent := self._audio.find_silent_utterance(now):
            self._transcribe_early(silent)
        if started := self._audio.find_utterance_to_announce():
            self._announce_utterance(started)
        self._start_partial_if_due()

    def _apply_settings(self, record: Session) -> None:
        """Apply settings that the caller may change during the session."""
        self._language = get_primary_language(record.language) if record.language else None
        self._prompt, self._redact = record.prompt, record.redact
        self._audio.end_of_turn_s = record.end_of_turn_ms / 1000

    async def _refresh_settings(self) -> None:
        with contextlib.suppress(*STORE_ERRORS):  # the previous settings remain
            if record := await self._services.sessions.read(self._ssrc):
                self._apply_settings(record)

    def drop(self) -> None:
        """Stop all tasks, since another host has taken over the session."""
        for task in self._tasks:
            task.cancel()

    def _assign_chunk(self, chunk: AudioChunk) -> Utterance | None:
        added = self._audio.add(chunk, time.monotonic())
        if isinstance(added, DropReason):
            self._services.counters.dropped[added] += 1
            return None
        return added

    def _start_task(self, work: Coroutine[None, None, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _queue_event(self, kind: EventKind, utterance: Utterance, begins: int, ends: int, number: int = 1) -> None:
        """Queue an event without text."""
        event = Transcript(
            kind=kind, utterance=utterance.start, start_ms=begins * FRAME_MS, end_ms=ends * FRAME_MS
        )  # fmt: skip
        self._outbox.append(_PendingEvent(event, number))
        self._start_task(self._publish())

    def _announce_utterance(self, utterance: Utterance) -> None:
        utterance.is_announced = True
        self._start_task(self._refresh_settings())
        if utterance.gap_before:
            self._queue_event(EventKind.GAP, utterance, *utterance.gap_before, number=0)
        self._queue_event(EventKind.SPEECH_STARTED, utterance, utterance.start, utterance.start)

    def _queue_gaps(self, utterance: Utterance) -> None:
        for begins, ends in utterance.gaps:
            self._queue_event(EventKind.GAP, utterance, begins, ends, GAP_NUMBER_BASE + begins - utterance.start)

    def _complete_utterance(self, utterance: Utterance) -> None:
        """Start the transcript of a completed utterance, and queue its events in order."""
        end = utterance.start + utterance.frame_count
        self._services.counters.events["lost_chunks"] += utterance.lost_chunk_count
        if utterance.is_mark and utterance.gap_before:
            self._queue_event(EventKind.GAP, utterance, *utterance.gap_before, number=0)
        if not utterance.is_mark:
            if not utterance.is_announced:
                self._announce_utterance(utterance)
            self._queue_gaps(utterance)
            self._queue_event(EventKind.SPEECH_STOPPED, utterance, end, end)
        final = _PendingEvent(ended_utterance=utterance)
        self._outbox.append(final)
        if utterance.marks & ChunkFlag.LAST:
            self._queue_event(EventKind.END, utterance, end, end)
        self._last = self._start_task(self._transcribe(final, utterance, self._last if utterance.split_from else None))

    async def _transcribe(self, final: _PendingEvent, utterance: Utterance, before: asyncio.Task[None] | None) -> None:
        counters = self._services.counters
        ends_at = started_at = time.monotonic()
        result, ahead = None, self._ahead
        if ahead and (ahead.utterance, ahead.end_frame) == (utterance, utterance.end) and (result := await ahead.task):
            started_at = ahead.started_at
            result = replace(
                result, stages_ms=result.stages_ms | {"turn": max(0.0, 1000 * (ends_at - ahead.completed_at))}
            )
        result = result or await self._transcribe_utterance(utterance)
        if result is None:
            counters.events["given_up"] += 1
            result = EMPTY_TRANSCRIPT
        ingest_ms = 1000 * (started_at - utterance.last_audio_at)
        if before:  # its transcript depends on that of the previous utterance
            await asyncio.wait({before})
        self._continue_agreement(utterance)
        result = await self._remove_cut_word(utterance, result)
        utterance.agreement.finish(shift_words(result.words, utterance.begin * FRAME_S))
        counters.record_work(time.monotonic(), 0.0, utterance.frame_count * FRAME_MS / 1000)
        final.transcript = self._apply_redaction(
            _create_transcript(EventKind.FINAL, utterance, utterance.frame_count, result, ingest_ms)
        )
        await self._publish()

    def _continue_agreement(self, utterance: Utterance) -> None:
        """Continue the words of the utterance from which the given utterance was split."""
        if utterance.split_from:
            utterance.agreement.continue_from(utterance.split_from.agreement)
            utterance.split_from = None

    async def _remove_cut_word(self, utterance: Utterance, result: WindowTranscript) -> WindowTranscript:
        """Return the result without its last word, if a commit has cut the word and speech continues.

        In this case, the next utterance contains the word.
        """
        if not (
            utterance.is_cut_by_commit
            and result.words
            and result.words[-1].end >= utterance.transcribed_frame_count * FRAME_S - CUT_WORD_MARGIN_S
        ):
            return result
        limit = utterance.last_audio_at + CONTINUATION_GAP_S
        while not self._has_continuation(utterance) and time.monotonic() < limit:
            await asyncio.sleep(FRAME_S)
        if not self._has_continuation(utterance):
            return result
        words = result.words[:-1]
        return replace(result, words=words, text=join_words(words))

    def _has_continuation(self, utterance: Utterance) -> bool:
        current = self._audio.current_utterance
        return bool(current and current.split_from is utterance)

    def _stop_partial(self, utterance: Utterance) -> None:
        if self._partial and self._partial_utterance is utterance:
            self._partial.cancel()

    async def _transcribe_utterance(self, utterance: Utterance) -> WindowTranscript | None:
        if utterance.is_mark or utterance.is_stationary_noise(utterance.frame_count):
            return EMPTY_TRANSCRIPT
        try:
            result = await self._services.transcriber.transcribe(
                utterance, self._language, Priority.FINAL, self._prompt
            )
        except JobFailedError as error:
            log.error("session %s: utterance %s has no transcript: %s", self._ssrc, utterance.start, error)  # noqa: TRY400  a response
            return None
        self._services.counters.record_work(time.monotonic(), result.processing_s)
        return result

    def _transcribe_early(self, utterance: Utterance) -> None:
        """Start the transcript of an utterance that may be complete, once per silence."""
        end = utterance.start + utterance.frame_count
        if self._outbox or (self._ahead and (self._ahead.utterance, self._ahead.end_frame) == (utterance, end)):
            return
        self._stop_partial(utterance)
        ahead = self._ahead = _EarlyTranscript(utterance, end, time.monotonic())
        ahead.task = self._start_task(self._transcribe_during_silence(ahead, utterance.frame_count))

    async def _transcribe_during_silence(self, ahead: _EarlyTranscript, frames: int) -> WindowTranscript | None:
        utterance = ahead.utterance
        begin_s, received_s = utterance.begin * FRAME_S, utterance.transcribed_frame_count * FRAME_S
        result = await self._transcribe_utterance(utterance)
        ahead.completed_at = time.monotonic()
        if result is None:
            return None
        if frames == utterance.frame_count:
            utterance.is_transcript_complete = ends_sentence(result.text) or result is EMPTY_TRANSCRIPT
        if not utterance.marks:
            self._continue_agreement(utterance)
            utterance.agreement.add_hypothesis(shift_words(result.words, begin_s), counts=received_s >= MIN_AUDIO_S)
            await self._publish_partial(utterance, frames, replace(result, stages_ms={}))  # the final one has them
        return result

    async def _publish(self) -> None:
        """Publish available events in order."""
        async with self._publishing:
            while self._outbox and (transcript := self._outbox[0].transcript):
                await self._publish_event(self._outbox[0], transcript)
                self._outbox.popleft()

    async def _publish_event(self, due: _PendingEvent, transcript: Transcript) -> None:
        services, ssrc, utterance, is_new = self._services, self._ssrc, due.ended_utterance, False
        # A LAST mark during silence has no final transcript, unless the transcript was requested.
        if utterance is None or not utterance.is_mark or transcript.commit:
            publishing = partial(services.transcripts.publish, ssrc, transcript, due.number)
            is_new = await retry_until_done("an event", publishing)
            if transcript.kind is EventKind.GAP and is_new:
                lost_ms = transcript.end_ms - transcript.start_ms
                await retry_until_done("a gap", lambda: services.transcripts.add_lost_audio(ssrc, lost_ms))
        if utterance is None:
            return
        if not utterance.is_mark:
            services.counters.events["finals" if is_new else "finals_of_others"] += 1
        characters = len(transcript.text) if is_new else 0
        mark = partial(
            services.transcripts.mark_transcribed, ssrc, utterance.last, utterance.next_chunk_number, characters
        )
        await retry_until_done("a final", mark)
        await retry_until_done("the journal", services.batch.flush)
        await retry_until_done("the journal", lambda: services.journal.delete(ssrc, list(utterance.entries)))

    def _start_partial_if_due(self) -> None:
        utterance = self._audio.current_utterance
        if (
            utterance is None
            or not utterance.is_announced  # an earlier utterance still waits for late chunks
            or utterance.end is not None
            or self._outbox
            or (self._partial and not self._partial.done())
        ):
            return
        if utterance is not self._partial_utterance:
            self._partial_utterance, self._partial_frames = utterance, 0
        # Under load, all partials are slightly delayed, instead of some being skipped.
        waiting = sum(self._services.transcriber.queue_depths)
        frames = PARTIAL_INTERVAL_FRAMES if self._partial_frames else FIRST_PARTIAL_FRAMES
        due = frames * min(MAX_PARTIAL_INTERVAL_FACTOR, 1 + waiting / QUEUE_THRESHOLD_WINDOWS)
        if utterance.frame_count - self._partial_frames < due:
            return
        self._partial_frames = utterance.frame_count
        if not utterance.is_stationary_noise(MIN_STEADY_FRAMES):
            self._partial = self._start_task(self._transcribe_partial(utterance, utterance.frame_count))

    async def _transcribe_partial(self, utterance: Utterance, frames: int) -> None:
        begin_s, received_s = utterance.begin * FRAME_S, utterance.transcribed_frame_count * FRAME_S
        try:
            result = await self._services.transcriber.transcribe(
                utterance, self._language, Priority.PARTIAL, self._prompt
            )
        except StaleJobError:
            self._services.counters.events["partials_shed"] += 1
            return
        except JobFailedError:
            return
        self._services.counters.record_work(time.monotonic(), result.processing_s)
        self._continue_agreement(utterance)
        utterance.agreement.add_hypothesis(shift_words(result.words, begin_s), counts=received_s >= MIN_AUDIO_S)
        await self._publish_partial(utterance, frames, result)
        self._publish_stable_part(utterance)

    async def _publish_partial(self, utterance: Utterance, frames: int, result: WindowTranscript) -> None:
        transcript = self._apply_redaction(_create_transcript(EventKind.PARTIAL, utterance, frames, result))
        async with self._publishing:
            # After a partial of a later utterance, Valkey would reject the final transcript of an earlier utterance.
            if self._outbox or not utterance.is_announced or not transcript.text:
                return
            try:
                # The event's number is the amount of audio, so a partial of another host with less audio never follows.
                await self._services.transcripts.publish(self._ssrc, transcript, frames)
            except STORE_ERRORS:
                return
            self._services.counters.events["partials"] += 1

    def _apply_redaction(self, transcript: Transcript) -> Transcript:
        """Return a transcript with the session's redactions."""
        if not self._redact:
            return transcript
        is_final = transcript.kind is EventKind.FINAL
        redactions = redact_transcript(transcript, self._redact, self._previous_digits)
        if is_final and transcript.text:
            self._previous_digits = count_trailing_digits(transcript.text.split(), self._previous_digits)
        return redactions

    def _publish_stable_part(self, utterance: Utterance) -> None:
        """Publish the stable part of a long utterance as a final transcript.

        The audio that is transcribed again therefore stays short.
        """
        committed = utterance.agreement.committed
        if not committed or utterance.end is not None or utterance is not self._audio.current_utterance:
            return
        at = round(committed[-1].end / FRAME_S)
        if (
            utterance.transcribed_frame_count <= SPLIT_THRESHOLD_FRAMES
            or not 2 * OVERLAP_FRAMES <= at - utterance.begin <= utterance.transcribed_frame_count
        ):
            return
        rest = self._audio.split(utterance, at)
        self._services.counters.events["lost_chunks"] += utterance.lost_chunk_count
        self._services.counters.record_work(time.monotonic(), 0.0, utterance.frame_count * FRAME_S)
        self._queue_gaps(utterance)
        self._partial_utterance, self._partial_frames = rest, rest.frame_count
        utterance.agreement.tentative = []
        final = self._apply_redaction(
            _create_transcript(EventKind.FINAL, utterance, utterance.frame_count, EMPTY_TRANSCRIPT)
        )
        self._outbox.append(_PendingEvent(final.model_copy(update={"speech_final": False}), ended_utterance=utterance))
        self._start_task(self._publish())


def _create_transcript(
    kind: EventKind, utterance: Utterance, frames: int, result: WindowTranscript, ingest_ms: float | None = None
) -> Transcript:
    stages_ms = result.stages_ms if ingest_ms is None else {"ingest": ingest_ms, **result.stages_ms}
    agreement = utterance.agreement
    words = agreement.words
    if kind is EventKind.PARTIAL and utterance.end is None:
        words = agreement.list_words_before((utterance.start + frames) * FRAME_S - CUT_WORD_MARGIN_S)
    text = join_words(words) if result.words or agreement.words else result.text
    # Models transcribe noise as a full stop.
    is_speech = any(map(str.isalnum, text))
    return Transcript(
        kind=kind,
        utterance=utterance.start,
        text=text if is_speech else "",
        committed=join_words(agreement.committed) if is_speech else "",
        words=[to_timed_word(word) for word in words] if is_speech else [],
        start_ms=utterance.start * FRAME_MS,
        end_ms=(utterance.start + frames) * FRAME_MS,
        commit=kind is EventKind.FINAL and bool(utterance.marks & ChunkFlag.COMMIT),
        language=result.language,
        stages_ms={stage: round(duration_ms, 1) for stage, duration_ms in stages_ms.items()},
    )


def to_timed_word(word: Word) -> TimedWord:
    return TimedWord(
        text=word.text.strip(),
        start_ms=round(1000 * word.start),
        end_ms=round(1000 * word.end),
        confidence=word.confidence,
    )
