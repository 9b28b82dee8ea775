"""Driver for vLLM's realtime transcription, which sends audio over a WebSocket in real time.

``/v1/realtime`` accepts PCM16 mono at 16 kHz (vLLM 0.33.0, speech_to_text/realtime/protocol.py), as sessions of this
platform do.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TypeVar

import aiohttp

from voice_ops.call.recording import SAMPLE_RATE_HZ
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.events import parse_event
from voice_ops.loadtest.failures import INCOMPLETE_RESPONSE_MESSAGE, EndpointResponseError
from voice_ops.loadtest.inputs import Recording
from voice_ops.loadtest.trace import RequestTrace

FRAME_DURATION_S = 0.08
"""Duration of a frame, which is sent when a microphone would have recorded all of it."""

Frame = TypeVar("Frame")

_START_MESSAGE = {"type": "input_audio_buffer.commit"}
_END_MESSAGE = {"type": "input_audio_buffer.commit", "final": True}


@dataclass(frozen=True)
class RealtimeDriver:
    """Driver for ``WS /v1/realtime``.

    The driver sends ``session.update``, ``commit``, the frames in real time, and ``commit`` with ``final``.
    """

    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Stream a recording. Each ``transcription.delta`` with text is a piece of the response."""
        recording_index = index % len(self.recordings)
        trace.input_audio_s = self.recordings[recording_index].duration_s
        async with self.endpoint.session.ws_connect(
            self.endpoint.url_for("/v1/realtime"), headers={"X-Request-Id": trace.request_id}, max_msg_size=0
        ) as socket:
            created = parse_event(await _receive_text(socket))
            if created.type != "session.created":
                raise EndpointResponseError(f"received {created.type or 'an unknown event'} instead of session.created")
            await socket.send_json({"type": "session.update", "model": self.endpoint.model} | dict(self.endpoint.body))
            await socket.send_json(_START_MESSAGE)
            feed_task = asyncio.create_task(_send_recording(socket, self._frames[recording_index], trace))
            try:
                await _read_transcript(socket, trace)
            finally:
                feed_task.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await feed_task

    @cached_property
    def _frames(self) -> list[list[str]]:
        """Messages with the frames of each recording.

        They are encoded in advance, so that a client under load spends no time on base64.
        """
        return [
            [
                json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(frame).decode()})
                for frame in split_into_frames(recording)
            ]
            for recording in self.recordings
        ]


async def send_frames(frames: Sequence[Frame], send: Callable[[Frame], Awaitable[None]], trace: RequestTrace) -> None:
    """Send frames in real time, and record the maximum delay and the time of the last frame."""
    start = perf_counter()
    for number, frame in enumerate(frames, start=1):
        due = start + number * FRAME_DURATION_S
        await asyncio.sleep(max(0.0, due - perf_counter()))
        trace.pacing_lag_s = max(trace.pacing_lag_s, perf_counter() - due)
        await send(frame)
    trace.input_ended_s = perf_counter()


def split_into_frames(recording: Recording) -> list[bytes]:
    """Split a recording into frames of ``FRAME_DURATION_S``, as 16-bit PCM."""
    size = 2 * round(FRAME_DURATION_S * SAMPLE_RATE_HZ)
    return [recording.pcm[start : start + size] for start in range(0, len(recording.pcm), size)]


async def _send_recording(socket: aiohttp.ClientWebSocketResponse, frames: list[str], trace: RequestTrace) -> None:
    await send_frames(frames, socket.send_str, trace)
    await socket.send_json(_END_MESSAGE)


async def _read_transcript(socket: aiohttp.ClientWebSocketResponse, trace: RequestTrace) -> None:
    while (event := parse_event(await _receive_text(socket))).type != "transcription.done":
        if event.has_text:
            trace.record_text()
    trace.record_end()
    trace.output_tokens = event.tokens


async def _receive_text(socket: aiohttp.ClientWebSocketResponse) -> str:
    message = await socket.receive()
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise EndpointResponseError(INCOMPLETE_RESPONSE_MESSAGE)
    return str(message.data)
