"""Driver for an agent with OpenAI's realtime API: sends a question in real time, and receives the spoken answer."""

import asyncio
import base64
import itertools
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import aiohttp
import numpy as np
import soxr

from voice_ops.call.recording import SAMPLE_RATE_HZ
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.failures import INCOMPLETE_RESPONSE_MESSAGE, EndpointResponseError
from voice_ops.loadtest.inputs import Recording
from voice_ops.loadtest.realtime import FRAME_DURATION_S, send_frames, split_into_frames
from voice_ops.loadtest.trace import RequestTrace

SPEECH_SAMPLE_RATE_HZ = 24_000
SPEECH_BYTES_PER_S = 2 * SPEECH_SAMPLE_RATE_HZ


@dataclass(frozen=True)
class ConversationDriver:
    """Driver for ``WS /v1/realtime``, speech to speech. Each request is a conversation with one turn."""

    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Send a recording as a question. Each delta with audio is a piece of the response."""
        recording_index = index % len(self.recordings)
        trace.input_audio_s = self.recordings[recording_index].duration_s
        async with self.endpoint.session.ws_connect(
            self.endpoint.url_for("/v1/realtime"), headers={"X-Request-Id": trace.request_id}, max_msg_size=0
        ) as socket:
            speaking = asyncio.create_task(self._send_recording(socket, recording_index, trace))
            try:
                await _receive_response(socket, trace)
            finally:
                speaking.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await speaking

    @cached_property
    def _frames(self) -> list[list[str]]:
        return [[_encode_frame(frame) for frame in split_into_frames(recording)] for recording in self.recordings]

    async def _send_recording(
        self, socket: aiohttp.ClientWebSocketResponse, recording_index: int, trace: RequestTrace
    ) -> None:
        await send_frames(self._frames[recording_index], socket.send_str, trace)
        # Silence is sent after the question, as a microphone does, and ends the turn.
        silence, loop = _encode_frame(bytes(2 * round(FRAME_DURATION_S * SAMPLE_RATE_HZ))), asyncio.get_running_loop()
        begin = loop.time()
        for number in itertools.count(1):
            await asyncio.sleep(begin + number * FRAME_DURATION_S - loop.time())
            await socket.send_str(silence)


async def _receive_response(socket: aiohttp.ClientWebSocketResponse, trace: RequestTrace) -> None:
    async for message in socket:
        event = json.loads(message.data)
        match event["type"]:
            case "response.output_audio.delta":
                trace.record_audio(len(base64.b64decode(event["delta"])) / SPEECH_BYTES_PER_S)
            case "response.done":
                # A response that was cut short, because the question continued after a pause, is not an answer.
                if event["response"]["status"] == "completed" and trace.input_ended_s:
                    trace.record_end()
                    return
            case "error":
                raise EndpointResponseError(str(event["error"]["message"]))
    raise EndpointResponseError(INCOMPLETE_RESPONSE_MESSAGE)


def _encode_frame(frame: bytes) -> str:
    samples = np.asarray(soxr.resample(np.frombuffer(frame, "<i2"), SAMPLE_RATE_HZ, SPEECH_SAMPLE_RATE_HZ), "<i2")
    return json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(samples.tobytes()).decode()})
