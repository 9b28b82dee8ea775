"""``WS /v1/realtime?intent=transcription``: OpenAI's realtime transcription, for its clients.

https://platform.openai.com/docs/api-reference/realtime. Only events for transcription are supported, not those for
conversations.
"""

import asyncio
import base64
import logging
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from redis.exceptions import RedisError
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket

from voice_blueprint.contract.session_api import MAX_END_OF_TURN_MS, MAX_PROMPT_CHARACTERS
from voice_gateway.audio import MAX_RATE, MIN_RATE, AudioFormat, Encoding, Framer
from voice_gateway.audio_socket import MAX_MESSAGE_BYTES, CloseReason
from voice_gateway.client_socket import ClientSocket, SocketArguments
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_gateway.rtp import COMMIT
from voice_gateway.session_routes import Language, check_language
from voice_runtime.openai_events import MAX_ID_CHARACTERS, parse_event_id
from voice_runtime.sessions import Session
from voice_runtime.transcripts import EventKind, Transcript

log = logging.getLogger(__name__)

REALTIME_SAMPLE_RATE_HZ = 24_000
G711_SAMPLE_RATE_HZ = 8_000
MAX_APPEND_BYTES = 15 << 20
"""Maximum audio per event in OpenAI's API: five minutes."""
MAX_EVENT_BYTES = MAX_APPEND_BYTES // 3 * 4 + MAX_MESSAGE_BYTES
"""Maximum size of an event: the maximum audio in base64, plus the other fields."""
MAX_SLICE_CHARACTERS = MAX_MESSAGE_BYTES // 3 * 4
"""Number of base64 characters that are decoded at once, so that other callers are served in between."""

JsonObject = Mapping[str, Any]


class RealtimeAudioFormat(BaseModel):
    """Audio format of a session. Unlike in OpenAI's API, ``rate`` can have any value."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int | None = Field(default=None, ge=MIN_RATE, le=MAX_RATE)

    def to_audio_format(self) -> AudioFormat:
        encoding = {"audio/pcm": Encoding.PCM16, "audio/pcmu": Encoding.MULAW, "audio/pcma": Encoding.ALAW}[self.type]
        default = REALTIME_SAMPLE_RATE_HZ if encoding is Encoding.PCM16 else G711_SAMPLE_RATE_HZ
        return AudioFormat(encoding=encoding, rate=self.rate or default)


DEFAULT_AUDIO_FORMAT = RealtimeAudioFormat(type="audio/pcm", rate=REALTIME_SAMPLE_RATE_HZ)


class TranscriptionSettings(BaseModel):
    """Transcription settings of a session. Other fields have no effect."""

    model: str | None = None
    language: Language | None = None
    prompt: str | None = None
    keywords: list[str] | None = None

    @property
    def hints(self) -> str | None:
        """Likely words for an engine's prompt, or ``None`` if the client sends no words."""
        hints = ". ".join(filter(None, [self.prompt, ", ".join(self.keywords or ())]))
        return None if self.prompt is None and self.keywords is None else hints[:MAX_PROMPT_CHARACTERS]


class TurnDetectionSettings(BaseModel):
    """Turn detection settings of a session. Thresholds are those of the deployment."""

    model_config = ConfigDict(extra="allow")

    silence_duration_ms: int | None = Field(default=None, ge=0, le=MAX_END_OF_TURN_MS)


class InputSettings(BaseModel):
    """Settings for the input audio of a session."""

    format: RealtimeAudioFormat | None = None
    transcription: TranscriptionSettings | None = None
    turn_detection: TurnDetectionSettings | None = None

    @classmethod
    def from_session(cls, session: Session, model: str | None = None) -> Self:
        """Return the initial settings of a session, before the client changes any."""
        changes = cls.model_validate_json(session.realtime or "{}")
        return cls(
            format=DEFAULT_AUDIO_FORMAT,
            transcription=TranscriptionSettings(model=model, language=session.language),
            turn_detection=TurnDetectionSettings(type="server_vad", silence_duration_ms=session.end_of_turn_ms),
        ).merge(changes)

    def merge(self, changes: Self) -> Self:
        """Return the settings with a client's changes.

        Null disables turn detection. For other settings, null has no effect.
        """
        values = {name: getattr(changes, name) for name in changes.model_fields_set}
        return self.model_copy(
            update={name: value for name, value in values.items() if value is not None or name == "turn_detection"}
        )


class AudioSettings(BaseModel):
    """Audio settings of a session."""

    input: InputSettings = InputSettings()


class SessionUpdate(BaseModel):
    """The configurable part of a session."""

    type: Literal["transcription"] = "transcription"
    audio: AudioSettings = AudioSettings()


class ClientEvent(BaseModel):
    """An event from a client. An ``error`` event contains the id of the event that caused it."""

    event_id: Annotated[str, Field(max_length=MAX_ID_CHARACTERS)] | None = None


class SessionUpdateEvent(ClientEvent):
    """Updates the session. Omitted fields are unchanged."""

    type: Literal["session.update"]
    session: SessionUpdate


class AudioAppendEvent(ClientEvent):
    """Adds audio to the buffer."""

    type: Literal["input_audio_buffer.append"]
    audio: str


class AudioBufferEvent(ClientEvent):
    """Requests a transcript of the audio since the last commit, or discards this audio."""

    type: Literal["input_audio_buffer.commit", "input_audio_buffer.clear"]


CLIENT_EVENT_ADAPTER = TypeAdapter[SessionUpdateEvent | AudioAppendEvent | AudioBufferEvent](
    Annotated[SessionUpdateEvent | AudioAppendEvent | AudioBufferEvent, Field(discriminator="type")]
)


@dataclass
class ConversationItem:
    """A transcribed item: an utterance, or all audio that the client commits at once.

    Attributes:
        finals: Texts of the item's final transcripts.
        sent_text: Text sent in deltas, which cannot be withdrawn.
        is_committed: Whether the client was notified that the item contains no further audio.
        audio_ms: Duration of transcribed audio.
        start_ms: Start of the utterance, or ``None`` if the item is not an utterance.
    """

    id: str = field(default_factory=lambda: _generate_id("item"))
    finals: list[str] = field(default_factory=list)
    sent_text: str = ""
    is_committed: bool = False
    audio_ms: int = 0
    start_ms: int | None = None

    def append_delta(self, text: str) -> str:
        """Return the text that extends the sent text, or an empty string if the sent text has changed."""
        full_text = " ".join(filter(None, [*self.finals, text]))
        added = full_text[len(self.sent_text) :] if full_text.startswith(self.sent_text) else ""
        self.sent_text += added
        return added


class RealtimeSocket(ClientSocket):
    """The socket of one of OpenAI's clients.

    With turn detection, an item is an utterance. Without it, an item is everything between two commits, including
    pauses.
    """

    def __init__(self, gateway: Gateway, websocket: WebSocket, arguments: SocketArguments) -> None:
        super().__init__(gateway, websocket, arguments)
        self._settings = InputSettings.from_session(arguments.session, websocket.query_params.get("model"))
        self._set_audio_format((self._settings.format or DEFAULT_AUDIO_FORMAT).to_audio_format())
        self._items: deque[ConversationItem] = deque()
        self._previous_item_id: str | None = None
        self._has_uncommitted_audio = False
        self._committed_ms = self._position_ms
        """Position of the last commit."""
        self._cleared_ranges: deque[tuple[int, int]] = deque()
        """Start and end of each range of audio that the client cleared after the gateway had forwarded it."""
        self._event_id: str | None = None
        """Id of the client event that is being handled."""
        self._enqueue_messages([self._build_session_event("session.created")])

    @classmethod
    def validate_query(cls, query: QueryParams) -> None:
        if query.get("intent", "transcription") != "transcription":
            raise Refusal(400, "bad request", "intent: only transcription is supported")

    # --- Messages from the client ----------------------------------------------------------------------------

    async def _handle_control_message(self, text: str) -> CloseReason | None:
        try:
            event = CLIENT_EVENT_ADAPTER.validate_json(text)
        except ValidationError as error:
            self._event_id = parse_event_id(text)
            problem = error.errors(include_url=False, include_input=False)[0]
            self._send_error(problem["msg"], ".".join(map(str, problem["loc"][1:])))
            return None
        self._event_id = event.event_id
        if isinstance(event, AudioAppendEvent):
            return await self._append_audio(event.audio)
        if isinstance(event, SessionUpdateEvent):
            await self._update_settings(event.session.audio.input)
        elif event.type == "input_audio_buffer.commit":
            self._commit()
        else:
            self._clear_buffer()
        return None

    async def _append_audio(self, audio: str) -> CloseReason | None:
        slices: list[bytes] = []
        try:
            for begin in range(0, len(audio), MAX_SLICE_CHARACTERS):
                if begin:
                    await asyncio.sleep(0)
                slices.append(base64.b64decode(audio[begin : begin + MAX_SLICE_CHARACTERS], validate=True))
        except ValueError as error:
            self._send_error(f"no base64: {error}", "audio")
            return None
        for number, each in enumerate(filter(None, slices)):
            if number:
                await asyncio.sleep(0)
                await self._pacer.wait_until_not_full()
            self._has_uncommitted_audio = True
            self._send_audio(each)
        return None

    async def _update_settings(self, changes: InputSettings) -> None:
        """Store new settings for the engines, apply them, and confirm them."""
        transcription, turns = changes.transcription, changes.turn_detection
        stored: dict[str, str] = {}
        if transcription and transcription.language:
            stored["language"] = transcription.language
        if transcription and (hints := transcription.hints) is not None:
            stored["prompt"] = hints
        if turns and turns.silence_duration_ms is not None:
            stored["end_of_turn_ms"] = str(turns.silence_duration_ms)
        try:
            check_language(self._gateway, stored.get("language"))
            if stored:
                await self._gateway.sessions.update(self._session, **stored)
        except Refusal as refusal:
            self._send_error(refusal.detail, "session.audio.input.transcription.language", "unsupported_language")
            return
        except RedisError:
            log.exception("settings could not be stored", extra={"fields": {"ssrc": self._session.ssrc}})
            self._send_error("the settings were not stored; send them again", "session", "store_unavailable")
            return
        if changes.format:
            self._set_audio_format(changes.format.to_audio_format())
        self._settings = self._settings.merge(changes)
        self._enqueue_messages([self._build_session_event("session.updated")])

    def _commit(self) -> None:
        if not self._has_uncommitted_audio:
            # An error would end the stream in some clients, although no audio is lost.
            self._enqueue_messages(self._build_completed_events(ConversationItem()))
            return
        self._send_commit()
        if self._detects_turns:
            return
        item = next((each for each in self._items if not each.is_committed), None) or self._create_item()
        self._enqueue_messages(self._build_committed_events(item))

    def _send_commit(self) -> None:
        self._has_uncommitted_audio = False
        self._send_notice(COMMIT)
        self._committed_ms = self._position_ms

    def _clear_buffer(self) -> None:
        """Discard the audio since the last commit."""
        self._enqueue_messages([_build_event("input_audio_buffer.cleared")])
        self._framer = Framer(self._format)
        self._received_frames -= self._pacer.clear()
        begin, end = self._committed_ms, self._position_ms
        if end > begin:  # the audio has already been forwarded, so its transcript is suppressed
            self._cleared_ranges.append((begin, end))
            self._items = deque(item for item in self._items if item.is_committed)
            self._send_commit()
        self._has_uncommitted_audio = False

    # --- Messages to the client --------------------------------------------------------------------------

    def _convert_event(self, transcript: Transcript) -> Iterator[JsonObject]:
        if self._is_cleared(transcript):
            return
        if transcript.kind is EventKind.SPEECH_STARTED:
            yield from self._build_speech_started_events(transcript)
        elif transcript.kind is EventKind.SPEECH_STOPPED and self._items and self._detects_turns:
            item = self._items[0]
            yield _build_event("input_audio_buffer.speech_stopped", item_id=item.id, audio_end_ms=transcript.end_ms)
            yield from self._build_committed_events(item)
        elif transcript.kind is EventKind.PARTIAL:
            yield from self._build_delta_events(transcript.committed)
        elif transcript.kind is EventKind.FINAL:
            yield from self._build_final_events(transcript)

    def _is_cleared(self, transcript: Transcript) -> bool:
        """Return True for a transcript of cleared audio, unless the client was notified that the audio is committed."""
        while self._cleared_ranges and self._cleared_ranges[0][1] <= transcript.start_ms:
            self._cleared_ranges.popleft()
        if not self._cleared_ranges or transcript.start_ms < self._cleared_ranges[0][0]:
            return False
        return not (self._detects_turns and self._items and self._items[0].start_ms == transcript.start_ms)

    def _is_checkpoint(self, transcript: Transcript) -> bool:
        return transcript.kind is EventKind.FINAL and not any(item.finals for item in self._items)

    def _build_speech_started_events(self, transcript: Transcript) -> Iterator[JsonObject]:
        if self._detects_turns:
            self._items.clear()
            item = self._create_item(transcript.start_ms)
            yield _build_event("input_audio_buffer.speech_started", item_id=item.id, audio_start_ms=transcript.start_ms)

    def _build_delta_events(self, text: str) -> Iterator[JsonObject]:
        item = self._items[0] if self._items else self._create_item()
        if delta := item.append_delta(text):
            yield _build_event(f"{TRANSCRIPTION_EVENT_PREFIX}.delta", item_id=item.id, content_index=0, delta=delta)

    def _build_final_events(self, transcript: Transcript) -> Iterator[JsonObject]:
        yield from self._build_delta_events(transcript.text)
        item = self._items[0]
        item.finals += filter(None, [transcript.text])
        item.audio_ms += transcript.end_ms - transcript.start_ms
        if transcript.commit or (self._detects_turns and transcript.speech_final):
            self._items.popleft()
            yield from self._build_completed_events(item)

    def _build_completed_events(self, item: ConversationItem) -> Iterator[JsonObject]:
        if not item.is_committed:
            yield from self._build_committed_events(item)
        yield _build_event(
            f"{TRANSCRIPTION_EVENT_PREFIX}.completed",
            item_id=item.id,
            content_index=0,
            transcript=" ".join(item.finals),
            usage={"type": "duration", "seconds": item.audio_ms / 1000},
        )

    def _build_committed_events(self, item: ConversationItem) -> Iterable[JsonObject]:
        item.is_committed = True
        previous, self._previous_item_id = self._previous_item_id, item.id
        yield _build_event("input_audio_buffer.committed", item_id=item.id, previous_item_id=previous)

    def _create_item(self, start_ms: int | None = None) -> ConversationItem:
        self._items.append(ConversationItem(start_ms=start_ms))
        return self._items[-1]

    @property
    def _detects_turns(self) -> bool:
        return self._settings.turn_detection is not None

    def _build_session_event(self, kind: str) -> JsonObject:
        return _build_event(kind, session=describe_session(self._arguments.session, self._settings))

    def _send_error(self, message: str, parameter: str, code: str = "invalid_value") -> None:
        """Report an invalid event to the client. The session continues."""
        error = {"type": "invalid_request_error", "code": code, "message": message, "param": parameter}
        self._enqueue_messages([_build_event("error", error=error | {"event_id": self._event_id})])


def describe_session(session: Session, settings: InputSettings) -> JsonObject:
    """Return a session in OpenAI's format."""
    return {
        "type": "transcription",
        "object": "realtime.transcription_session",
        "id": f"sess_{session.id}",
        "expires_at": session.expires_at,
        "audio": {"input": settings.model_dump(exclude_none=False)},
    }


TRANSCRIPTION_EVENT_PREFIX = "conversation.item.input_audio_transcription"


def _build_event(kind: str, **fields: Any) -> JsonObject:  # noqa: ANN401  JSON
    return {"type": kind, "event_id": _generate_id("event"), **fields}


def _generate_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"
