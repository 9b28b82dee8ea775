"""Driver for the gateway with the protocols of other services' clients, over one WebSocket in real time."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import aiohttp

from voice_ops.call import dialects
from voice_ops.call.dialects import DIALECTS, SINGLE_TURN_MESSAGE, Dialect
from voice_ops.call.session import CallError
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.failures import INCOMPLETE_RESPONSE_MESSAGE, EndpointResponseError
from voice_ops.loadtest.inputs import Recording
from voice_ops.loadtest.realtime import send_frames, split_into_frames
from voice_ops.loadtest.trace import RequestTrace


@dataclass(frozen=True)
class WebSocketDriver:
    """Driver that sends audio and an end message over a WebSocket.

    A request ends with the last final transcript, or when the server closes the connection.
    """

    dialect: ClassVar[Dialect]
    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Stream a recording. Each committed text, interim result or final result is a piece of the response."""
        recording_index = index % len(self.recordings)
        trace.input_audio_s = self.recordings[recording_index].duration_s
        path, _, query = self.dialect.path.partition("?")
        async with self.endpoint.session.ws_connect(self.endpoint.url_for(path).with_query(query)) as socket:
            if self.dialect.first_message:
                await socket.send_str(self.dialect.first_message)
            speak_task = asyncio.create_task(self._send_recording(socket, recording_index, trace))
            try:
                await self._receive_response(socket, trace)
            except CallError as error:
                raise EndpointResponseError(str(error)) from None
            finally:
                speak_task.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await speak_task

    @cached_property
    def _frames(self) -> list[list[str | bytes]]:
        return [
            [self.dialect.encode_audio(frame) for frame in split_into_frames(recording)]
            for recording in self.recordings
        ]

    async def _send_recording(
        self, socket: aiohttp.ClientWebSocketResponse, recording_index: int, trace: RequestTrace
    ) -> None:
        async def send(frame: str | bytes) -> None:
            await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))

        await send_frames(self._frames[recording_index], send, trace)
        await socket.send_str(self.dialect.last_message)

    async def _receive_response(self, socket: aiohttp.ClientWebSocketResponse, trace: RequestTrace) -> None:
        async for message in socket:
            payload = json.loads(message.data)
            event = self.dialect.parse_transcripts(payload)
            if payload.get("delta") or (event and event.text and self.dialect.closes_at_end):
                trace.record_text()
            if event and not self.dialect.closes_at_end:
                trace.record_end()
                return
        if not self.dialect.closes_at_end or socket.close_code != aiohttp.WSCloseCode.OK:
            raise EndpointResponseError(INCOMPLETE_RESPONSE_MESSAGE)
        trace.record_end()


class OpenAiDriver(WebSocketDriver):
    """Driver with OpenAI's protocol. All audio is one item, so the transcript of the item is the last one."""

    dialect = replace(DIALECTS[dialects.Api.OPENAI], first_message=SINGLE_TURN_MESSAGE)


class DeepgramDriver(WebSocketDriver):
    """Driver with Deepgram's protocol. The server closes the connection after the last final result."""

    dialect = DIALECTS[dialects.Api.DEEPGRAM]
