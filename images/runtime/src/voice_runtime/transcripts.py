"""Transcripts: one bounded stream per session, in the order of the audio."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from blueprint.contract.state import TRANSCRIPT_FINAL_NUMBER, SessionField
from voice_runtime import state
from voice_runtime.replies import entries, text

_FIELD = b"event"


class EventKind(StrEnum):
    """What a caller is told."""

    PARTIAL = "partial"
    """May still change."""
    FINAL = "final"
    """One for each utterance, of a long one several; it may be empty, where no words were heard."""
    SPEECH_STARTED = "speech_started"
    SPEECH_STOPPED = "speech_stopped"
    """Ahead of the utterance's final."""
    GAP = "gap"
    """Audio of that stretch was lost between the VAD tier and the engine; what was said in it is not transcribed."""
    END = "end"
    """The caller has said goodbye, and all that it said is transcribed; the gateway tells it in its own words."""


LATEST = 256
"""Events among which the last final is looked for; of an utterance without one there are fewer."""
GAP_NUMBER = 2**31
"""Of a gap inside an utterance, and its place in there: behind all partials, ahead of the end."""
NUMBERS = {
    EventKind.SPEECH_STARTED: 1,
    EventKind.SPEECH_STOPPED: TRANSCRIPT_FINAL_NUMBER - 1,
    EventKind.FINAL: TRANSCRIPT_FINAL_NUMBER,
    EventKind.END: TRANSCRIPT_FINAL_NUMBER + 1,
}
"""Of the events that an utterance has once."""


class TimedWord(BaseModel):
    """A word of a transcript.

    Attributes:
        confidence: 0 to 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    start_ms: int
    end_ms: int
    confidence: float


class Transcript(BaseModel):
    """What is heard in one utterance.

    Attributes:
        utterance: Where it begins in the audio, in 20 ms frames; names it within the session.
        start_ms: The same in milliseconds.
        end_ms: Where the audio ends that this is a transcript of.
        committed: What of the text will not change any more: its beginning.
        words: Of the text; none where the engine does not tell.
        speech_final: Whether the utterance ends with it; a long one has several finals.
        commit: It answers a caller that asked for what was said so far.
        stages_ms: What each stage took, by name.
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
    """Place of an event in a session's stream.

    Attributes:
        utterance: Where its utterance begins, in 20 ms frames.
        number: Counts an utterance's events from 1; a final has the highest.
    """

    utterance: int
    number: int

    def __str__(self) -> str:
        return f"{self.utterance}-{self.number}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Read an id.

        Raises:
            ValueError: It is none.
        """
        utterance, dash, number = text.partition("-")
        if not (dash and utterance.isascii() and utterance.isdigit() and number.isascii() and number.isdigit()):
            raise ValueError(f"{text[:40]!r} is no event id: two numbers with a dash between them")
        event_id = cls(int(utterance), int(number))
        if max(event_id.utterance, event_id.number) >= 2**64:
            raise ValueError(f"{text[:40]!r} is no event id: a number is above 2^64")
        return event_id


BEFORE_ALL = EventId(0, 0)


class Transcripts:
    """Writes and reads transcripts."""

    def __init__(self, store: Redis) -> None:
        self._store = store

    async def publish(self, ssrc: int, transcript: Transcript, number: int = 1) -> bool:
        """Append an event, and return whether it was news.

        It is not when another host has already said as much of that utterance or has gone on to a later one.

        Args:
            ssrc: The session.
            transcript: What an utterance has once has a number of its own.
            number: Of a partial, counts up; of a gap ``GAP_NUMBER`` and its place, or 0 before the utterance.
        """
        event_id = EventId(transcript.utterance, NUMBERS.get(transcript.kind, number))
        key = state.transcript(ssrc)
        try:
            await self._store.xadd(
                key,
                {_FIELD: transcript.model_dump_json(exclude_defaults=True)},
                id=str(event_id),
                maxlen=state.TRANSCRIPT_EVENTS,
                approximate=True,
            )
        except ResponseError as error:
            if "equal or smaller" in str(error):
                return False
            raise
        await self._keep(ssrc, key)
        return True

    async def covered(self, ssrc: int, sequence: int, chunks: int) -> None:
        """Say that finals cover a session's chunks up to one, and so many chunks."""
        key = state.session(ssrc)
        # A record that has expired is not made anew: it would never expire.
        if await self._store.exists(key):
            fields: dict[Any, str] = {
                SessionField.TRANSCRIBED_TO: str(sequence), SessionField.TRANSCRIBED_CHUNKS: str(chunks)
            }  # fmt: skip
            await self._store.hset(key, mapping=fields)

    async def lose(self, ssrc: int, milliseconds: int) -> None:
        """Say that so much audio of a session never came."""
        key = state.session(ssrc)
        if await self._store.exists(key):
            await self._store.hincrby(key, SessionField.LOST_MS, milliseconds)

    async def read(
        self, ssrc: int, after: EventId = BEFORE_ALL, *, count: int = 100
    ) -> list[tuple[EventId, Transcript]]:
        """Return the events behind a place, at most so many."""
        return (await self.read_many({ssrc: after}, count=count)).get(ssrc, [])

    async def read_many(
        self, after: Mapping[int, EventId], *, count: int
    ) -> dict[int, list[tuple[EventId, Transcript]]]:
        """Return what is behind a place in each of several sessions, at most so many events of each, in one request."""
        places = {state.transcript(ssrc): (ssrc, place) for ssrc, place in after.items()}
        answer: Any = await self._store.xread({key: str(place) for key, (_, place) in places.items()}, count=count)
        return {
            places[text(key)][0]: [
                (EventId.of(entry_id), Transcript.model_validate_json(fields[_FIELD]))
                for entry_id, fields in entries(found)
            ]
            for key, found in answer or ()
        }

    async def last_final(self, ssrc: int) -> Transcript | None:
        """Return the last final that was told."""
        answer: Any = await self._store.xrevrange(state.transcript(ssrc), count=LATEST)
        told = (Transcript.model_validate_json(fields[_FIELD]) for _, fields in entries(answer))
        return next((event for event in told if event.kind is EventKind.FINAL), None)

    async def _keep(self, ssrc: int, key: str) -> None:
        """Let the transcript live as long as its session's record."""
        remaining = await self._store.ttl(state.session(ssrc))
        await self._store.expire(key, max(remaining, state.SESSION_KEPT_S))
