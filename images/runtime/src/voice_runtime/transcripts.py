"""Transcripts: one bounded stream per session, in the order of the audio."""

import logging
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from voice_blueprint.contract.state import FINAL_SEQUENCE_NUMBER, SessionField, TranscribedAudioField
from voice_runtime import state
from voice_runtime.replies import decode_entries, decode_text
from voice_runtime.transcribed import write_transcription_progress

_EVENT_FIELD = b"event"
_WRITER_FIELD = b"writer"

log = logging.getLogger(__name__)


class EventKind(StrEnum):
    """Kind of event for a caller."""

    PARTIAL = "partial"
    """Text that may still change."""
    FINAL = "final"
    """Final text of an utterance. A long utterance has several final transcripts. The text is empty if no words were
    recognized."""
    SPEECH_STARTED = "speech_started"
    SPEECH_STOPPED = "speech_stopped"
    """End of an utterance. This event precedes the utterance's final transcript."""
    GAP = "gap"
    """Audio was lost between the VAD tier and the engine, so speech in it is not transcribed."""
    END = "end"
    """End of a session. The caller has ended it, and all of its speech is transcribed. The gateway sends the event in
    its own format."""


MAX_RECENT_EVENTS = 256
"""Number of recent events that are searched for the last final transcript. An utterance has fewer events before its
final transcript."""
GAP_NUMBER_BASE = 2**31
"""Base of the number of a gap inside an utterance, to which the gap's position is added. Gaps follow all partials, and
precede the end."""
MAX_REPORTED_SESSIONS = 64
"""Maximum number of sessions whose invalid entries a process remembers to have logged, since waiting readers read such
an entry repeatedly."""
FIXED_EVENT_NUMBER_BY_KIND = {
    EventKind.SPEECH_STARTED: 1,
    EventKind.SPEECH_STOPPED: FINAL_SEQUENCE_NUMBER - 1,
    EventKind.FINAL: FINAL_SEQUENCE_NUMBER,
    EventKind.END: FINAL_SEQUENCE_NUMBER + 1,
}
"""Numbers of events that occur once per utterance."""


class TimedWord(BaseModel):
    """A word in a transcript.

    Attributes:
        confidence: 0 to 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    start_ms: int
    end_ms: int
    confidence: float


class Transcript(BaseModel):
    """Transcript of an utterance.

    Attributes:
        utterance: Start in the audio, in 20 ms frames, which identifies the utterance within the session.
        start_ms: Start in milliseconds.
        end_ms: End of the transcribed audio.
        committed: Beginning of the text, which no longer changes.
        words: Words of the text; empty if the engine does not report them.
        speech_final: Whether the utterance ends with this final transcript. A long utterance has several final
            transcripts.
        commit: Whether the final transcript responds to a request for the transcript so far.
        stages_ms: Duration of each stage, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EventKind
    utterance: int
    text: str = ""
    start_ms: int
    end_ms: int
    language: str | None = None
    committed: str = ""
    words: list[TimedWord] = []
    speech_final: bool = True
    commit: bool = False
    stages_ms: dict[str, float] = {}


@dataclass(frozen=True, order=True)
class EventId:
    """Position of an event in a session's stream.

    Attributes:
        utterance: Start of its utterance, in 20 ms frames.
        number: Counts an utterance's events from 1; a final transcript has the highest number.
    """

    utterance: int
    number: int

    def __str__(self) -> str:
        return f"{self.utterance}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an id.

        Raises:
            ValueError: The text is not an id.
        """
        utterance, dash, number = text.partition("-")
        if not (dash and utterance.isascii() and utterance.isdigit() and number.isascii() and number.isdigit()):
            raise ValueError(f"{text[:40]!r} is no event id: two numbers with a dash between them")
        event_id = cls(int(utterance), int(number))
        if max(event_id.utterance, event_id.number) >= 2**64:
            raise ValueError(f"{text[:40]!r} is no event id: a number is above 2^64")
        return event_id


STREAM_START = EventId(0, 0)


class TranscriptStore:
    """Writes and reads transcripts."""

    def __init__(self, store: Redis) -> None:
        self._store = store
        self._writer_id = secrets.token_hex(8).encode()
        self._reported_sessions: deque[int] = deque(maxlen=MAX_REPORTED_SESSIONS)

    async def publish(self, ssrc: int, transcript: Transcript, number: int = 1) -> bool:
        """Append an event, and return True if it was new.

        An event is not new if another host has already published as much of its utterance, or a later utterance. An
        event that this instance has already published counts as new, since a command is repeated if its reply was lost.

        Args:
            ssrc: The session.
            transcript: Transcript. Kinds that occur once per utterance have fixed numbers.
            number: Sequence number of a partial; for a gap ``GAP_NUMBER_BASE`` plus its position, or 0 before the
                utterance.
        """
        event_id = EventId(transcript.utterance, FIXED_EVENT_NUMBER_BY_KIND.get(transcript.kind, number))
        # The final transcript of an archived session is first appended to the session's final transcripts. If the host
        # fails in between, nothing has been published, and its successor appends the transcript to both streams.
        if transcript.kind is EventKind.FINAL and await self._store.hexists(
            state.build_session_key(ssrc), SessionField.ARCHIVED_FROM
        ):
            await self._append(ssrc, state.build_finals_key(ssrc), event_id, transcript, state.MAX_FINALS)
        return await self._append(
            ssrc, state.build_transcript_key(ssrc), event_id, transcript, state.MAX_TRANSCRIPT_EVENTS
        )

    async def _append(self, ssrc: int, key: str, event_id: EventId, transcript: Transcript, maxlen: int) -> bool:
        """Append to a bounded stream, and return True if there were no later events."""
        event, is_new = transcript.model_dump_json(exclude_defaults=True).encode(), True
        try:
            await self._store.xadd(
                key,
                {_EVENT_FIELD: event, _WRITER_FIELD: self._writer_id},
                id=str(event_id),
                maxlen=maxlen,
                approximate=True,
            )
        except ResponseError as error:
            if "equal or smaller" not in str(error):
                raise
            present: Any = await self._store.xrange(key, str(event_id), str(event_id))
            # Another host may have published an identical event, such as a gap.
            is_new = any(
                fields.get(_WRITER_FIELD) == self._writer_id and fields.get(_EVENT_FIELD) == event
                for _, fields in decode_entries(present)
            )
        await self._extend_retention(ssrc, key)
        return is_new

    async def mark_transcribed(self, ssrc: int, sequence: int, chunks: int, characters: int = 0) -> None:
        """Record the last sequence and the number of chunks that the final transcripts of a session cover.

        Args:
            characters: Characters of the last final transcript.
        """
        fields: dict[Any, str] = {
            TranscribedAudioField.TRANSCRIBED_TO: str(sequence),
            TranscribedAudioField.TRANSCRIBED_CHUNKS: str(chunks),
        }
        await write_transcription_progress(self._store, ssrc, fields)
        if characters:
            await self._store.hincrby(
                state.build_transcription_progress_key(ssrc), TranscribedAudioField.CHARACTERS, characters
            )

    async def add_lost_audio(self, ssrc: int, milliseconds: int) -> None:
        """Record the duration of a session's lost audio."""
        key = state.build_transcription_progress_key(ssrc)
        await self._store.hincrby(key, TranscribedAudioField.LOST_MS, milliseconds)
        await self._extend_retention(ssrc, key)

    async def read(
        self, ssrc: int, after: EventId = STREAM_START, *, count: int = 100
    ) -> list[tuple[EventId, Transcript]]:
        """Return up to ``count`` events after a position. Invalid entries are skipped."""
        while entries := (await self.read_many({ssrc: after}, count=count)).get(ssrc):
            if events := [(position, event) for position, event in entries if event]:
                return events
            after, _ = entries[-1]
        return []

    async def read_many(
        self, after: Mapping[int, EventId], *, count: int
    ) -> dict[int, list[tuple[EventId, Transcript | None]]]:
        """Return up to ``count`` entries after a position in each of several sessions, in one request.

        An invalid entry has no transcript, but a position after which the reader can continue.
        """
        positions = {state.build_transcript_key(ssrc): (ssrc, position) for ssrc, position in after.items()}
        answer: Any = await self._store.xread(
            {key: str(position) for key, (_, position) in positions.items()}, count=count
        )
        found: dict[int, list[tuple[EventId, Transcript | None]]] = {}
        for key, stream in answer or ():
            ssrc, _ = positions[decode_text(key)]
            found[ssrc] = [
                (EventId.parse(entry_id), self._parse_event(ssrc, fields))
                for entry_id, fields in decode_entries(stream)
            ]
        return found

    async def read_finals(self, ssrc: int) -> list[Transcript]:
        """Return the final transcripts of an archived session."""
        answer: Any = await self._store.xrange(state.build_finals_key(ssrc))
        events = (self._parse_event(ssrc, fields) for _, fields in decode_entries(answer))
        return [event for event in events if event]

    async def read_last_final(self, ssrc: int) -> Transcript | None:
        """Return the last published final transcript."""
        answer: Any = await self._store.xrevrange(state.build_transcript_key(ssrc), count=MAX_RECENT_EVENTS)
        events = (self._parse_event(ssrc, fields) for _, fields in decode_entries(answer))
        return next((event for event in events if event and event.kind is EventKind.FINAL), None)

    def _parse_event(self, ssrc: int, fields: Mapping[bytes, bytes]) -> Transcript | None:
        """Return the event in an entry, or ``None`` if the entry is invalid."""
        try:
            return Transcript.model_validate_json(fields[_EVENT_FIELD])
        except (KeyError, ValidationError):
            if ssrc not in self._reported_sessions:
                self._reported_sessions.append(ssrc)
                # The entry may contain words of the caller, which are not logged.
                log.error("an invalid transcript is skipped", extra={"fields": {"ssrc": ssrc}})  # noqa: TRY400
            return None

    async def _extend_retention(self, ssrc: int, key: str) -> None:
        """Set the transcript's lifetime to that of its session's record."""
        remaining = await self._store.ttl(state.build_session_key(ssrc))
        await self._store.expire(key, max(remaining, state.SESSION_RETENTION_S))
