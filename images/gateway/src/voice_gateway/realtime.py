"""``WS /v1/realtime?intent=transcription``: OpenAI's realtime transcription, for its clients.

https://platform.openai.com/docs/api-reference/realtime. Of its events those that transcribe; there is no conversation.
"""

import asyncio
import base64
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket

from blueprint.contract.session_api import MOST_END_OF_TURN_MS
from voice_gateway.audio import AudioFormat, Encoding
from voice_gateway.audio_socket import Close
from voice_gateway.client_socket import ClientSocket, Opening
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_gateway.rtp import COMMIT
from voice_gateway.session_routes import Language, check_language
from voice_runtime.transcripts import EventKind, Transcript

REALTIME_RATE = 24_000
G711_RATE = 8_000

Json = Mapping[str, Any]


class Format(BaseModel):
    """Of the audio; ``rate`` may be any other, which OpenAI's may not."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int | None = None

    def audio(self) -> AudioFormat:
        encoding = {"audio/pcm": Encoding.PCM16, "audio/pcmu": Encoding.MULAW, "audio/pcma": Encoding.ALAW}[self.type]
        default = REALTIME_RATE if encoding is Encoding.PCM16 else G711_RATE
        return AudioFormat(encoding=encoding, rate=self.rate or default)


class Transcription(BaseModel):
    """What is transcribed how; a prompt and what else there is change nothing here."""

    model: str | None = None
    language: Language | None = None


class TurnDetection(BaseModel):
    """What ends a turn; thresholds are the deployment's own."""

    model_config = ConfigDict(extra="allow")

    silence_duration_ms: int | None = Field(default=None, ge=0, le=MOST_END_OF_TURN_MS)


class Input(BaseModel):
    """Of a session."""

    format: Format | None = None
    transcription: Transcription | None = None
    turn_detection: TurnDetection | None = None


class Audio(BaseModel):
    """Of a session."""

    input: Input = Input()


class SessionUpdate(BaseModel):
    """The part of a session that can be set here."""

    type: Literal["transcription"] = "transcription"
    audio: Audio = Audio()


class Update(BaseModel):
    """Sets up the session; what it leaves away stays."""

    type: Literal["session.update"]
    session: SessionUpdate


class Append(BaseModel):
    """Brings audio."""

    type: Literal["input_audio_buffer.append"]
    audio: str


class Buffer(BaseModel):
    """Asks for a transcript of what was said since the last one, or that there be none."""

    type: Literal["input_audio_buffer.commit", "input_audio_buffer.clear"]


Event = TypeAdapter[Update | Append | Buffer](Annotated[Update | Append | Buffer, Field(discriminator="type")])


@dataclass
class Item:
    """What a client has a transcript of: an utterance, or all that it commits at once.

    Attributes:
        finals: Text of its parts.
        told: What deltas have brought of it; they are never taken back.
        is_committed: Whether the client knows that no more audio belongs to it.
        is_dropped: Whether the client has cleared its audio.
        audio_ms: Length of what was heard.
    """

    id: str = field(default_factory=lambda: _id("item"))
    finals: list[str] = field(default_factory=list)
    told: str = ""
    is_committed: bool = False
    is_dropped: bool = False
    audio_ms: int = 0

    def delta(self, certain: str) -> str:
        """Return what a text adds to what was told; nothing where it is another."""
        whole = " ".join(filter(None, [*self.finals, certain]))
        added = whole[len(self.told) :] if whole.startswith(self.told) else ""
        self.told += added
        return added


class RealtimeSocket(ClientSocket):
    """One client.

    With turn detection an item is an utterance. Without it is all between two commits, however many pauses are in it.
    """

    def __init__(self, gateway: Gateway, websocket: WebSocket, opening: Opening) -> None:
        super().__init__(gateway, websocket, opening)
        self._settings = Input(
            format=Format(type="audio/pcm", rate=REALTIME_RATE),
            transcription=Transcription(model=websocket.query_params.get("model"), language=opening.session.language),
            turn_detection=TurnDetection(type="server_vad", silence_duration_ms=opening.session.end_of_turn_ms),
        )
        self._set_format(AudioFormat(rate=REALTIME_RATE))
        self._items: deque[Item] = deque()
        self._previous: str | None = None
        self._audio_behind_mark = False
        self._writing: set[asyncio.Task[None]] = set()
        self._tell([self._describe("session.created")])

    @classmethod
    def check(cls, asked: QueryParams) -> None:
        if asked.get("intent", "transcription") != "transcription":
            raise Refusal(400, "bad request", "intent: only transcription is spoken here")

    # --- What the client sends ----------------------------------------------------------------------------

    def _control(self, text: str) -> Close | None:
        try:
            event = Event.validate_json(text)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            self._refuse(problem["msg"], ".".join(map(str, problem["loc"][1:])))
            return None
        if isinstance(event, Append):
            return self._append(event.audio)
        if isinstance(event, Update):
            self._update(event.session.audio.input)
        elif event.type == "input_audio_buffer.commit":
            self._commit()
        else:
            self._clear()
        return None

    def _append(self, audio: str) -> Close | None:
        try:
            samples = base64.b64decode(audio, validate=True)
        except ValueError as error:
            self._refuse(f"no base64: {error}", "audio")
            return None
        if not samples:
            return None
        self._audio_behind_mark = True
        return self._add(samples)

    def _update(self, asked: Input) -> None:
        try:
            if asked.format:
                self._set_format(asked.format.audio())
            if asked.transcription and (language := asked.transcription.language):
                check_language(self._gateway, language)
                self._note_settings(language=language)
            if (turns := asked.turn_detection) and turns.silence_duration_ms is not None:
                self._note_settings(end_of_turn_ms=str(turns.silence_duration_ms))
        except Refusal as refusal:
            self._refuse(refusal.detail, "session.audio.input.transcription.language", "unsupported_language")
            return
        except ValidationError as error:
            self._refuse(error.errors()[0]["msg"], "session.audio.input.format.rate")
            return
        given = {name: getattr(asked, name) for name in asked.model_fields_set if getattr(asked, name) is not None}
        if "turn_detection" in asked.model_fields_set:
            given["turn_detection"] = asked.turn_detection
        self._settings = self._settings.model_copy(update=given)
        self._tell([self._describe("session.updated")])

    def _note_settings(self, **fields: str) -> None:
        writing = asyncio.create_task(self._gateway.sessions.note(self._session, **fields))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def _commit(self) -> None:
        if not self._audio_behind_mark:
            # An error would end the stream in some clients, and nothing is lost.
            self._tell(self._complete(Item(), at_once=True))
            return
        self._audio_behind_mark = False
        self._mark(COMMIT)
        if self._detects_turns:
            return
        item = next((each for each in self._items if not each.is_committed), None) or self._begin()
        self._tell(self._committed(item))

    def _clear(self) -> None:
        self._tell([_event("input_audio_buffer.cleared")])
        if self._audio_behind_mark and not self._detects_turns:
            item = next((each for each in self._items if not each.is_committed), None) or self._begin()
            item.is_committed = item.is_dropped = True
            self._audio_behind_mark = False
            self._mark(COMMIT)

    # --- What the client is told --------------------------------------------------------------------------

    def _hear(self, said: Transcript) -> Iterator[Json]:
        if said.kind is EventKind.SPEECH_STARTED:
            yield from self._started(said)
        elif said.kind is EventKind.SPEECH_STOPPED and self._items and self._detects_turns:
            item = self._items[0]
            yield _event("input_audio_buffer.speech_stopped", item_id=item.id, audio_end_ms=said.end_ms)
            yield from self._committed(item)
        elif said.kind is EventKind.PARTIAL:
            yield from self._delta(said.committed)
        elif said.kind is EventKind.FINAL:
            yield from self._final(said)

    def _settles(self, said: Transcript) -> bool:
        return said.kind is EventKind.FINAL and not any(item.finals for item in self._items)

    def _started(self, said: Transcript) -> Iterator[Json]:
        if self._detects_turns:
            self._items.clear()
            item = self._begin()
            yield _event("input_audio_buffer.speech_started", item_id=item.id, audio_start_ms=said.start_ms)

    def _delta(self, certain: str) -> Iterator[Json]:
        item = self._items[0] if self._items else self._begin()
        delta = item.delta(certain)
        if delta and not item.is_dropped:
            yield _event(f"{TRANSCRIBED}.delta", item_id=item.id, content_index=0, delta=delta)

    def _final(self, said: Transcript) -> Iterator[Json]:
        yield from self._delta(said.text)
        item = self._items[0]
        item.finals += filter(None, [said.text])
        item.audio_ms += said.end_ms - said.start_ms
        if said.commit or (self._detects_turns and said.speech_final):
            self._items.popleft()
            yield from self._complete(item)

    def _complete(self, item: Item, *, at_once: bool = False) -> Iterator[Json]:
        if item.is_dropped:
            return
        if at_once or not item.is_committed:
            yield from self._committed(item)
        yield _event(
            f"{TRANSCRIBED}.completed",
            item_id=item.id,
            content_index=0,
            transcript=" ".join(item.finals),
            usage={"type": "duration", "seconds": item.audio_ms / 1000},
        )

    def _committed(self, item: Item) -> Iterable[Json]:
        item.is_committed = True
        before, self._previous = self._previous, item.id
        yield _event("input_audio_buffer.committed", item_id=item.id, previous_item_id=before)

    def _begin(self) -> Item:
        self._items.append(Item())
        return self._items[-1]

    @property
    def _detects_turns(self) -> bool:
        return self._settings.turn_detection is not None

    def _describe(self, kind: str) -> Json:
        session = self._opening.session
        described = {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "id": f"sess_{session.id}",
            "expires_at": session.expires_at,
            "audio": {"input": self._settings.model_dump(exclude_none=False)},
        }
        return _event(kind, session=described)

    def _refuse(self, message: str, parameter: str, code: str = "invalid_value") -> None:
        """Say what is wrong in what the client has sent; the session goes on."""
        error = {"type": "invalid_request_error", "code": code, "message": message, "param": parameter}
        self._tell([_event("error", error=error | {"event_id": None})])


TRANSCRIBED = "conversation.item.input_audio_transcription"


def _event(kind: str, **fields: Any) -> Json:  # noqa: ANN401  JSON
    return {"type": kind, "event_id": _id("event"), **fields}


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"
