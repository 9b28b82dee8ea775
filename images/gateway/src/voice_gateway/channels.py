"""Splits the audio of a socket with one speaker per channel, so that each channel has its own session."""

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketState

from voice_gateway.audio import BYTES_PER_SAMPLE, AudioFormat, Encoding

NORMAL_CLOSURE = 1000
MAX_QUEUED_MESSAGES = 16
"""Maximum number of messages by which one channel may lag behind the other."""


class ChannelSplitter:
    """Splits a socket into one socket per channel.

    Messages that the channels send are forwarded unchanged. The socket is closed after its last channel.

    Attributes:
        sockets: One socket per channel, for the implementation of a single-channel socket.
    """

    def __init__(self, websocket: WebSocket, audio_format: AudioFormat) -> None:
        self._websocket = websocket
        self._sample_bytes = BYTES_PER_SAMPLE if audio_format.encoding is Encoding.PCM16 else 1
        self._channel_count = self._active_channels = audio_format.channels
        self._queues: dict[int, asyncio.Queue[Message]] = {
            channel: asyncio.Queue(MAX_QUEUED_MESSAGES) for channel in range(self._channel_count)
        }
        self._remainder = b""
        self.sockets = [self._create_socket(channel) for channel in range(self._channel_count)]

    def mark_channel_complete(self) -> bool:
        """Record that a channel is complete, and return True if it is the last one."""
        self._active_channels -= 1
        return self._active_channels == 0

    async def run(self) -> None:
        """Split incoming messages until the client disconnects."""
        while True:
            message = await self._websocket.receive()
            audio: bytes | None = message.get("bytes")
            parts = self._split_channels(audio) if audio else [audio] * self._channel_count
            for channel, queue in list(self._queues.items()):
                if not audio:
                    await queue.put(message)
                elif parts[channel]:
                    await queue.put({**message, "bytes": parts[channel]})
            if message["type"] == "websocket.disconnect":
                return

    def _split_channels(self, audio: bytes) -> Sequence[bytes | None]:
        audio = self._remainder + audio
        complete_bytes = len(audio) - len(audio) % (self._sample_bytes * self._channel_count)
        self._remainder = audio[complete_bytes:]
        samples = np.frombuffer(audio[:complete_bytes], f"V{self._sample_bytes}").reshape(-1, self._channel_count)
        return [samples[:, channel].tobytes() for channel in range(self._channel_count)]

    def _create_socket(self, channel: int) -> WebSocket:
        socket = WebSocket(self._websocket.scope, self._queues[channel].get, partial(self._send, channel))
        socket.client_state = socket.application_state = WebSocketState.CONNECTED
        return socket

    async def _send(self, channel: int, message: Message) -> None:
        if message["type"] != "websocket.close":
            await self._websocket.send(message)
            return
        queue = self._queues.pop(channel)
        while not queue.empty():  # the splitting task may wait for space in the queue
            queue.get_nowait()
        # An error that ends one channel ends the other as well.
        if not self._queues or message["code"] != NORMAL_CLOSURE:
            await self._websocket.close(message["code"], message["reason"])
