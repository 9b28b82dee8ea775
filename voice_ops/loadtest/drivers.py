"""Drivers that send one request to each HTTP API and record a trace."""

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import aiohttp

from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.events import Event, parse_event, read_events
from voice_ops.loadtest.failures import EndpointResponseError
from voice_ops.loadtest.inputs import PASSAGE, Recording, rotate_words
from voice_ops.loadtest.trace import RequestTrace

_EVENT_STREAM_MEDIA_TYPE = "text/event-stream"
_JSON_MEDIA_TYPE = "application/json"


class Api(StrEnum):
    """An API that can be load tested."""

    TRANSCRIPTION = "transcription"
    REALTIME = "realtime"
    SPEECH = "speech"
    CHAT = "chat"
    SESSION = "session"
    """This platform's own API."""
    OPENAI = "openai"
    DEEPGRAM = "deepgram"
    """This platform with the protocols of other services' clients."""
    CONVERSATION = "conversation"
    """An agent, with OpenAI's speech-to-speech API."""

    @property
    def has_model_parameter(self) -> bool:
        """Whether a request specifies a model; on this platform, the deployment file specifies it."""
        return self not in {Api.SESSION, Api.OPENAI, Api.DEEPGRAM, Api.CONVERSATION}


class Driver(Protocol):
    """Sends a request and reads its response to the end."""

    @property
    def endpoint(self) -> Endpoint: ...

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Send request number ``index``, and record the arrivals in the trace.

        Raises:
            EndpointResponseError, aiohttp.ClientError, OSError: The request failed.
        """


@dataclass(frozen=True)
class ChatDriver:
    """Driver for ``POST /v1/chat/completions`` with a streamed response."""

    endpoint: Endpoint
    text: str = PASSAGE

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Send a prompt. Each event with text, including reasoning, is a piece of the response."""
        prompt = rotate_words(self.text, index)
        trace.input_chars = len(prompt)
        body = {
            "model": self.endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 128,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with self.endpoint.post(
            "/v1/chat/completions", trace.request_id, json=body | dict(self.endpoint.body)
        ) as response:
            async for event in read_events(response):
                _record_event_text(event, trace)
        if not trace.arrivals_s:
            raise EndpointResponseError("the response contains no text")


@dataclass(frozen=True)
class TranscriptionDriver:
    """Driver for ``POST /v1/audio/transcriptions``. The response is streamed if the endpoint supports it."""

    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Send a recording as a file. Unless the response is streamed, the transcript is recorded as one piece."""
        recording = self.recordings[index % len(self.recordings)]
        trace.input_audio_s = recording.duration_s
        form = aiohttp.FormData()
        form.add_field("file", recording.wav, filename=recording.name, content_type="audio/wav")
        for name, value in ({"model": self.endpoint.model, "stream": True} | dict(self.endpoint.body)).items():
            form.add_field(name, value if isinstance(value, str) else json.dumps(value))
        async with self.endpoint.post("/v1/audio/transcriptions", trace.request_id, data=form) as response:
            if response.content_type == _EVENT_STREAM_MEDIA_TYPE:
                async for event in read_events(response):
                    _record_event_text(event, trace)
                return
            answer = await response.read()
            if response.content_type == _JSON_MEDIA_TYPE and parse_event(answer).text is None:
                raise EndpointResponseError("the response contains no transcript")
            trace.record_text()


@dataclass(frozen=True)
class SpeechDriver:
    """Driver for ``POST /v1/audio/speech``. The response is streamed as raw PCM or as server-sent events."""

    endpoint: Endpoint
    text: str = PASSAGE
    reference: Recording | None = None
    """Reference voice. The default is the endpoint's voice, or the voice in ``body``."""
    sample_rate_hz: int = 24_000
    """Sample rate of the returned PCM, which the response does not specify."""

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Send the text to speak. A piece of the response is one read of the socket, or one event."""
        text = rotate_words(self.text, index)
        trace.input_chars = len(text)
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "input": text,
            "response_format": "pcm",
            "stream_format": "audio",
        }
        if self.reference:
            body["ref_audio"] = self.reference.data_url
        async with self.endpoint.post(
            "/v1/audio/speech", trace.request_id, json=body | dict(self.endpoint.body)
        ) as response:
            async for pcm in _read_pcm(response):
                trace.record_audio(len(pcm) / (2 * self.sample_rate_hz))
        if not trace.arrivals_s:
            raise EndpointResponseError("the response contains no audio")


async def _read_pcm(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    if response.content_type == _JSON_MEDIA_TYPE:
        raise EndpointResponseError(f"the response is JSON instead of audio: {await response.text()}")
    if response.content_type != _EVENT_STREAM_MEDIA_TYPE:
        async for piece in response.content.iter_any():
            yield piece
        return
    async for event in read_events(response):
        if event.audio:
            try:
                yield base64.b64decode(event.audio, validate=True)
            except binascii.Error:
                raise EndpointResponseError("the audio of an event is not valid base64") from None


def _record_event_text(event: Event, trace: RequestTrace) -> None:
    if event.has_text:
        trace.record_text()
    trace.output_tokens = event.tokens or trace.output_tokens
