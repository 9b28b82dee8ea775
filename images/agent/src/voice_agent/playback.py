"""Plays answers, which can be paused until it is clear whether a caller interrupts."""

import asyncio

from pipecat.frames.frames import OutputAudioRawFrame
from pipecat.transports.websocket.fastapi import (
    FastAPIWebsocketOutputTransport,
    FastAPIWebsocketParams,
    FastAPIWebsocketTransport,
)
from starlette.websockets import WebSocket


class Playback:
    """Pauses and resumes the audio of an answer, which is sent in real time."""

    def __init__(self) -> None:
        self._released = asyncio.Event()
        self._released.set()

    def pause(self) -> None:
        """Pause the audio."""
        self._released.clear()

    def resume(self) -> None:
        """Resume the audio."""
        self._released.set()

    async def wait_until_released(self) -> None:
        """Wait until audio may be sent."""
        await self._released.wait()


class _PausableOutput(FastAPIWebsocketOutputTransport):
    playback: Playback

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        await self.playback.wait_until_released()
        return await super().write_audio_frame(frame)


class Transport(FastAPIWebsocketTransport):
    """Pipecat's WebSocket transport with pausable audio."""

    def __init__(self, socket: WebSocket, params: FastAPIWebsocketParams, playback: Playback) -> None:
        super().__init__(socket, params)
        self._output = _PausableOutput(self, self._client, params, name=self._output_name)
        self._output.playback = playback
