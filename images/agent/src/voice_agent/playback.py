"""Plays answers, which can be paused until it is clear whether a caller interrupts."""

import asyncio

from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMFullResponseStartFrame,
    OutputAudioRawFrame,
    TTSStartedFrame,
)
from pipecat.processors.frame_processor import FrameDirection
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
        self._discard_count = 0

    def pause(self) -> None:
        """Pause the audio."""
        self._released.clear()

    def resume(self) -> None:
        """Resume the audio."""
        self._released.set()

    def discard(self) -> None:
        """Discard the paused audio, and allow later audio to be sent."""
        self._discard_count += 1
        self._released.set()

    async def wait_until_released(self) -> bool:
        """Wait until audio may be sent, and return False if the audio was discarded in the meantime."""
        discard_count = self._discard_count
        await self._released.wait()
        return self._discard_count == discard_count


class _PausableOutput(FastAPIWebsocketOutputTransport):
    playback: Playback

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        # The queue is empty now. If the piece that is being written were not discarded, it would wait for the end of
        # the caller's turn. Then it would be played, or the write would time out and end the conversation.
        if isinstance(frame, InterruptionFrame):
            self.playback.discard()
        # These frames wait for all earlier audio, but the words and the end of an answer do not. Without this wait, a
        # short answer to an interruption would end before it starts, and would not be stored.
        if isinstance(frame, (LLMFullResponseStartFrame, TTSStartedFrame)):
            for sender in self._media_senders.values():
                await sender._audio_queue.join()

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        return await self.playback.wait_until_released() and await super().write_audio_frame(frame)


class PausableTransport(FastAPIWebsocketTransport):
    """Pipecat's WebSocket transport with pausable audio."""

    def __init__(self, socket: WebSocket, params: FastAPIWebsocketParams, playback: Playback) -> None:
        super().__init__(socket, params)
        self._output = _PausableOutput(self, self._client, params, name=self._output_name)
        self._output.playback = playback
