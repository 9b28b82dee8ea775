"""Driver for this platform's session API, with audio over a WebSocket and transcripts as events."""

import asyncio
from dataclasses import dataclass
from functools import cached_property

import aiohttp
from pydantic import ValidationError
from yarl import URL

from voice_blueprint.contract.session_api import SESSIONS_PATH, TOKEN_HEADER
from voice_ops.call.session import SUBPROTOCOL, SessionResponse
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.events import read_events
from voice_ops.loadtest.failures import INCOMPLETE_RESPONSE_MESSAGE, EndpointResponseError, format_error_response
from voice_ops.loadtest.inputs import Recording
from voice_ops.loadtest.realtime import send_frames, split_into_frames
from voice_ops.loadtest.trace import RequestTrace

_END_MESSAGE = {"type": "end"}


@dataclass(frozen=True)
class VoiceSessionDriver:
    """Driver for ``POST /v1/sessions``, a WebSocket and an event stream. An interrupted stream is a failure."""

    endpoint: Endpoint
    recordings: tuple[Recording, ...]

    async def send(self, index: int, trace: RequestTrace) -> None:
        """Stream a recording. Each partial or final transcript with text is a piece of the response."""
        recording_index = index % len(self.recordings)
        trace.input_audio_s = self.recordings[recording_index].duration_s
        opened = await self._open_session(trace)
        tasks = [
            asyncio.create_task(self._send_recording(opened, self._frames[recording_index], trace)),
            asyncio.create_task(self._receive_response(opened, trace)),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @cached_property
    def _frames(self) -> list[list[bytes]]:
        return [split_into_frames(recording) for recording in self.recordings]

    async def _open_session(self, trace: RequestTrace) -> SessionResponse:
        request = {"transport": "websocket"} | dict(self.endpoint.body)
        async with self.endpoint.post(SESSIONS_PATH, trace.request_id, json=request) as response:
            try:
                return SessionResponse.model_validate_json(await response.read())
            except ValidationError as error:
                raise EndpointResponseError(
                    f"the response is not from the session API: {error.errors()[0]['msg']}"
                ) from None

    async def _send_recording(self, session: SessionResponse, frames: list[bytes], trace: RequestTrace) -> None:
        if session.media.websocket is None:
            raise EndpointResponseError("the session has no WebSocket")
        async with self.endpoint.session.ws_connect(
            session.media.websocket, protocols=(SUBPROTOCOL, session.token)
        ) as socket:
            # Receiving is required to respond to pings.
            close_task = asyncio.create_task(socket.receive())
            try:
                await send_frames(frames, socket.send_bytes, trace)
                await socket.send_json(_END_MESSAGE)
                await close_task
            finally:
                close_task.cancel()
            if socket.close_code != aiohttp.WSCloseCode.OK:
                raise EndpointResponseError(f"the WebSocket was closed with {socket.close_code}")

    async def _receive_response(self, session: SessionResponse, trace: RequestTrace) -> None:
        url = self.endpoint.url_for(SESSIONS_PATH).join(URL(session.events))
        async with self.endpoint.session.get(url, headers={TOKEN_HEADER: session.token}) as response:
            if not response.ok:
                raise EndpointResponseError(format_error_response(response.status, await response.read()))
            async for event in read_events(response):
                if event.kind and event.text:
                    trace.record_text()
                if event.complete is not None:
                    trace.record_end()
                    if not event.complete:
                        raise EndpointResponseError("the session ended before all was transcribed")
                    return
        raise EndpointResponseError(INCOMPLETE_RESPONSE_MESSAGE)
