"""OpenAI's realtime API for speech to speech: https://platform.openai.com/docs/api-reference/realtime.

The events of a spoken conversation are supported. The agent detects turns regardless of the client's settings. Prompt,
voice and tools are those of the deployment.
"""

import base64
import json
import secrets
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pipecat.audio.utils import create_stream_resampler
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    OutputTransportMessageUrgentFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.serializers.base_serializer import FrameSerializer
from pydantic import Base64Bytes, BaseModel, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocket

from voice_runtime.openai_events import parse_event_id

SUBPROTOCOL = "realtime"
"""Subprotocol that browsers offer, followed by a key."""
SAMPLE_RATE = 24000
"""Sample rate of PCM16 in both directions, in Hz."""

JsonObject = dict[str, Any]


class SessionUpdateEvent(BaseModel):
    """An update to the session. The update has no effect, but clients wait for the response."""

    type: Literal["session.update"]


class AudioAppendEvent(BaseModel):
    """An event with audio from the client."""

    type: Literal["input_audio_buffer.append"]
    audio: Base64Bytes


class IgnoredEvent(BaseModel):
    """An ignored event with which a client that detects turns itself ends a turn or requests an answer."""

    type: Literal["input_audio_buffer.commit", "input_audio_buffer.clear", "response.create", "response.cancel"]


CLIENT_EVENT_ADAPTER = TypeAdapter[SessionUpdateEvent | AudioAppendEvent | IgnoredEvent](
    Annotated[SessionUpdateEvent | AudioAppendEvent | IgnoredEvent, Field(discriminator="type")]
)


class RealtimeSerializer(FrameSerializer):
    """Serializer for OpenAI's events. If a frame maps to several events, they are sent directly to the socket."""

    def __init__(self, socket: WebSocket) -> None:
        super().__init__()
        self._socket = socket
        self._resampler = create_stream_resampler()
        self._input_rate = 0
        self._received_bytes = 0
        self._response_id = ""
        self._item_id = _generate_id("item")
        self._session: JsonObject = {}

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own
        """Store the sample rate of the pipeline's input."""
        self._input_rate = setup.audio_in_sample_rate

    async def serialize(self, frame: Frame) -> str | None:
        """Return the event for a frame, or ``None`` if the protocol has none."""
        match frame:
            case OutputAudioRawFrame():
                if not self._response_id:
                    await self._send_events(self._build_response_start_events())
                delta = base64.b64encode(frame.audio).decode()
                return json.dumps(self._build_part_event("response.output_audio.delta", delta=delta))
            case InterruptionFrame():
                await self._send_events(self.build_response_done_events("cancelled"))
                self._item_id = _generate_id("item")
                return json.dumps(
                    _build_event(
                        "input_audio_buffer.speech_started", item_id=self._item_id, audio_start_ms=self._received_ms
                    )
                )
            case OutputTransportMessageFrame() | OutputTransportMessageUrgentFrame():
                return json.dumps(frame.message)
        return None

    async def deserialize(self, data: str | bytes) -> Frame | None:
        """Return the audio in an event, or ``None`` for any other event."""
        try:
            event = CLIENT_EVENT_ADAPTER.validate_json(data)
        except ValidationError as error:
            message = error.errors(include_url=False, include_input=False)[0]["msg"]
            wrong = {"type": "invalid_request_error", "code": "invalid_value", "message": message, "param": None}
            await self._send_events([_build_event("error", error={**wrong, "event_id": parse_event_id(data)})])
            return None
        if isinstance(event, SessionUpdateEvent):
            await self._send_events([_build_event("session.updated", session=self._session)])
        return await self._resample_audio(event.audio) if isinstance(event, AudioAppendEvent) else None

    async def _resample_audio(self, samples: bytes) -> Frame | None:
        self._received_bytes += len(samples)
        resampled = await self._resampler.resample(samples, SAMPLE_RATE, self._input_rate)
        return InputAudioRawFrame(resampled, self._input_rate, 1) if resampled else None

    def build_session_created_event(self, conversation: str, token: str) -> JsonObject:
        """Return the first event, with OpenAI's fields and the token for resuming the conversation."""
        form = {"type": "audio/pcm", "rate": SAMPLE_RATE}
        self._session = {
            "type": "realtime",
            "object": "realtime.session",
            "id": f"sess_{conversation}",
            "output_modalities": ["audio"],
            "audio": {
                "input": {"format": form, "turn_detection": {"type": "semantic_vad"}},
                "output": {"format": form},
            },
            "conversation": {"id": conversation, "token": token},
        }
        return _build_event("session.created", session=self._session)

    def build_question_events(self, text: str) -> Iterator[JsonObject]:
        """Yield the events for a question, with the caller's words."""
        yield _build_event("input_audio_buffer.speech_stopped", item_id=self._item_id, audio_end_ms=self._received_ms)
        yield _build_event("input_audio_buffer.committed", item_id=self._item_id, previous_item_id=None)
        yield _build_event(
            "conversation.item.input_audio_transcription.completed",
            item_id=self._item_id,
            content_index=0,
            transcript=text,
            usage={"type": "duration", "seconds": self._received_ms / 1000},
        )

    def build_answer_events(self, text: str) -> Iterator[JsonObject]:
        """Yield the event with the agent's words."""
        if self._response_id:
            yield self._build_part_event("response.output_audio_transcript.done", transcript=text)

    def build_response_done_events(self, status: Literal["completed", "cancelled"]) -> Iterator[JsonObject]:
        """Yield the events for the end of an answer."""
        if self._response_id:
            yield self._build_part_event("response.output_audio.done")
            reason = {"type": status, "reason": "turn_detected" if status == "cancelled" else None}
            yield _build_event(
                "response.done", response=self._build_response_description(status) | {"status_details": reason}
            )
            self._response_id = ""

    def _build_response_start_events(self) -> Iterator[JsonObject]:
        self._response_id, self._item_id = _generate_id("resp"), _generate_id("item")
        yield _build_event("response.created", response=self._build_response_description("in_progress"))
        item = {"id": self._item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        yield _build_event("response.output_item.added", response_id=self._response_id, output_index=0, item=item)

    def _build_response_description(self, status: str) -> JsonObject:
        return {"id": self._response_id, "object": "realtime.response", "status": status, "output": []}

    def _build_part_event(self, kind: str, **fields: object) -> JsonObject:
        ids = {"response_id": self._response_id, "item_id": self._item_id, "output_index": 0, "content_index": 0}
        return _build_event(kind, **ids, **fields)

    @property
    def _received_ms(self) -> int:
        return self._received_bytes * 1000 // (2 * SAMPLE_RATE)

    async def _send_events(self, events: Iterator[JsonObject] | list[JsonObject]) -> None:
        for event in events:
            await self._socket.send_text(json.dumps(event))


def _build_event(kind: str, **fields: object) -> JsonObject:
    return {"type": kind, "event_id": _generate_id("event"), **fields}


def _generate_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"
