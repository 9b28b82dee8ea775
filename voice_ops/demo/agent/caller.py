"""A caller that speaks to the agent in real time, and receives answers as a loudspeaker would play them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

import numpy as np
import websockets
from numpy.typing import NDArray
from pipecat.frames.protobufs import frames_pb2

Samples = NDArray[np.int16]
SAMPLE_RATE_HZ = 16000
FRAME_S = 0.02
SAMPLES_PER_FRAME = round(SAMPLE_RATE_HZ * FRAME_S)
ANSWER_TIMEOUT_S = 180.0
MAX_LAG_S = 0.5
"""Maximum delay of a sent frame. If the machine falls further behind, the schedule is shifted."""
ANSWER_POLL_INTERVAL_S = 0.2


class Caller:
    """A caller that sends Pipecat's protobuf over a WebSocket, including silence, as a microphone does.

    Attributes:
        conversation: Id of the conversation.
        token: Token for resuming the conversation.
        heard_rate: Sample rate of the answer, Hz.
        barge_in_latency_s: Time from the onset of the interruption to the last audible sound.
        interruptions: Number of interruptions reported by the agent, including one at the start of each turn.
    """

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers
        self.conversation = self.token = ""
        self.heard_rate = SAMPLE_RATE_HZ
        self.interruptions = 0
        self._outgoing_frames: list[Samples] = []
        self._reset()

    def _reset(self) -> None:
        self._chunks: list[bytes] = []
        self._playback_ends_at = 0.0
        self._onset_at = self.barge_in_latency_s = 0.0

    async def __aenter__(self) -> Self:
        self._socket = await websockets.connect(self._url, additional_headers=self._headers)
        self._tasks = [asyncio.create_task(each) for each in (self._listen(), self._speak())]
        await self._wait_until(lambda: bool(self.token))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._socket.close()

    async def ask_question(self, question: Samples, is_answered: Callable[[], Awaitable[bool]]) -> Samples:
        """Ask a question, and return the audible answer.

        Args:
            is_answered: Function that returns whether the stored conversation contains the complete answer.
        """
        self._reset()
        self._outgoing_frames = _split_into_frames(question)
        await self._wait_until(lambda: not self._outgoing_frames and bool(self._chunks))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while not await is_answered():
                await asyncio.sleep(ANSWER_POLL_INTERVAL_S)
        await self._wait_until(lambda: self._get_current_time() > self._playback_ends_at)
        return self._get_received_audio()

    async def interrupt(self, question: Samples, objection: Samples, delay_s: float) -> float:
        """Ask a question, and interrupt the answer.

        Returns:
            The time from the onset of the objection to the last audible sound of the answer, s.
        """
        self._reset()
        self._outgoing_frames = _split_into_frames(question)
        await self._wait_until(
            lambda: not self._outgoing_frames and self._get_received_audio().size > delay_s * self.heard_rate
        )
        self._outgoing_frames, self._onset_at = _split_into_frames(objection), self._get_current_time()
        await self._wait_until(lambda: bool(self.barge_in_latency_s))
        return self.barge_in_latency_s

    def queue_speech(self, samples: Samples) -> None:
        """Send speech without waiting for an answer."""
        self._reset()
        self._outgoing_frames = _split_into_frames(samples)

    async def wait_for_audio(self, seconds: float) -> None:
        """Wait until this many seconds of an answer have arrived.

        Raises:
            ConnectionError: The agent closes the connection before that.
        """
        await self._wait_until(lambda: self._get_received_audio().size >= seconds * self.heard_rate)

    async def wait_closed(self) -> int | None:
        """Wait for the connection to close, and return the close code."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await self._socket.wait_closed()
        return self._socket.close_code

    def _get_received_audio(self) -> Samples:
        return np.frombuffer(b"".join(self._chunks), "<i2")

    async def _listen(self) -> None:
        async for data in self._socket:
            frame = frames_pb2.Frame.FromString(data)  # type: ignore[attr-defined]
            match frame.WhichOneof("frame"):
                case "audio":
                    self.heard_rate = frame.audio.sample_rate
                    self._chunks.append(frame.audio.audio)
                    begin = max(self._get_current_time(), self._playback_ends_at)
                    self._playback_ends_at = begin + len(frame.audio.audio) / 2 / self.heard_rate
                case "message":
                    message: dict[str, Any] = json.loads(frame.message.data)
                    self.conversation, self.token = message["id"], message["token"]
                case "interruption":
                    self.interruptions += 1
                    # Audio that was received but not played is discarded.
                    if self._onset_at and not self.barge_in_latency_s:
                        self.barge_in_latency_s = min(self._get_current_time(), self._playback_ends_at) - self._onset_at
                    self._playback_ends_at = min(self._get_current_time(), self._playback_ends_at)

    async def _speak(self) -> None:
        begin, sent = self._get_current_time(), 0
        while True:
            samples = self._record_frame(
                self._outgoing_frames.pop(0) if self._outgoing_frames else np.zeros(SAMPLES_PER_FRAME, np.int16)
            )
            frame = frames_pb2.Frame()  # type: ignore[attr-defined]
            frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels = samples.tobytes(), SAMPLE_RATE_HZ, 1
            await self._socket.send(frame.SerializeToString())
            sent += 1
            lag_s = self._get_current_time() - begin - sent * FRAME_S
            if lag_s > MAX_LAG_S:
                begin += lag_s  # a microphone does not repeat audio
            await asyncio.sleep(-lag_s)

    def _record_frame(self, samples: Samples) -> Samples:
        """Return the frame that the microphone records. Subclasses can change the frame."""
        return samples

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while not condition():
                for task in self._tasks:
                    if task.done():
                        task.result()
                        raise ConnectionError(f"the agent hangs up: {self._socket.close_code}")
                await asyncio.sleep(FRAME_S)

    @staticmethod
    def _get_current_time() -> float:
        return asyncio.get_running_loop().time()


def _split_into_frames(samples: Samples) -> list[Samples]:
    return [
        samples[begin : begin + SAMPLES_PER_FRAME]
        for begin in range(0, samples.size - SAMPLES_PER_FRAME + 1, SAMPLES_PER_FRAME)
    ]
