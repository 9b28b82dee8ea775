"""Third-party clients complete three turns: unmodified ones of OpenAI and of Pipecat, and Twilio's messages."""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
import websockets
from openai import AsyncOpenAI
from pipecat.audio.utils import create_stream_resampler, pcm_to_ulaw
from pipecat.frames.frames import Frame, InputAudioRawFrame, InterruptionFrame, OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.client import WebsocketClientParams, WebsocketClientTransport
from pipecat.workers.runner import WorkerRunner

from images.agent.tests.conftest import FRAME, RATE, Place, silence, speech
from images.agent.tests.engines import Engines
from images.conftest import until

TURNS = 3
SPOKEN_S = 2.0
PAUSE_S = 0.5
"""Silence that is sent at a time, until the agent has answered."""
FRAME_S = FRAME / RATE
REALTIME_RATE = 24000
TWILIO_RATE = 8000

Samples = np.ndarray[Any, np.dtype[np.int16]]


class Script:
    """Three questions and answers, for any kind of client."""

    def __init__(self, place: Place, engines: Engines) -> None:
        self._place = place
        self._engines = engines
        engines.answers = [f"Answer {turn}." for turn in range(TURNS)]
        self.sent = 0

    async def pieces(self, turn: int, is_answered: Callable[[], bool]) -> AsyncIterator[Samples]:
        """Yield a caller's audio, each piece after the previous one was processed."""
        await until(lambda: len(self._place.vads) == 1)
        self._engines.finals.append((0, f"Question {turn}?"))
        for samples in [speech(SPOKEN_S), *[silence(PAUSE_S)] * 1000]:
            for begin in range(0, samples.size - FRAME + 1, FRAME):
                yield samples[begin : begin + FRAME]
                self.sent += 2 * FRAME
                # As fast as it is processed, or in real time, since resamplers buffer some audio, and may drop it.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(until(self._is_heard), FRAME_S)
            if is_answered():
                return

    def _is_heard(self) -> bool:
        return self._place.vads[-1].processed_bytes >= self.sent - RATE

    def check(self) -> None:
        asked = [each["messages"][1:] for each in self._engines.asked]
        assert [each["content"] for each in asked[-1]] == [
            words for turn in range(TURNS) for words in (f"Question {turn}?", f"Answer {turn}.")
        ][:-1]


def at(rate: int, samples: Samples) -> Samples:
    return np.asarray(soxr.resample(samples, RATE, rate), np.int16)


async def test_openais_client_sends_and_receives_audio(place: Place, engines: Engines) -> None:
    script = Script(place, engines)
    events: list[Any] = []
    client = AsyncOpenAI(base_url=f"{place.url}/v1", api_key="a-key")
    async with client.realtime.connect(model="any") as connection:

        async def listen() -> None:
            async for event in connection:
                events.append(event)  # noqa: PERF401  they are read while they come

        listening = asyncio.create_task(listen())
        await connection.session.update(session={"type": "realtime", "instructions": "Be brief."})
        for turn in range(TURNS):
            said = count(events, "response.done")
            async for piece in script.pieces(turn, lambda said=said: count(events, "response.done") > said):  # type: ignore[misc]
                audio = base64.b64encode(at(REALTIME_RATE, piece).tobytes()).decode()
                await connection.input_audio_buffer.append(audio=audio)
        listening.cancel()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["session.created", "session.updated"]
    assert "error" not in kinds
    assert kinds.count("input_audio_buffer.speech_started") == TURNS
    heard = "conversation.item.input_audio_transcription.completed"
    assert [event.transcript for event in events if event.type == heard] == [
        f"Question {turn}?" for turn in range(TURNS)
    ]
    told = [event for event in events if event.type == "response.output_audio_transcript.done"]
    assert [event.transcript for event in told] == [f"Answer {turn}." for turn in range(TURNS)]
    done = [event.response for event in events if event.type == "response.done"]
    assert [response.status for response in done] == ["completed"] * TURNS
    spoken = b"".join(base64.b64decode(event.delta) for event in events if event.type == "response.output_audio.delta")
    assert len(spoken) / 2 / REALTIME_RATE == pytest.approx(TURNS * engines.spoken_s, abs=0.2)
    assert engines.keys == ["Bearer a-key"]
    script.check()


async def test_the_documented_program_completes_a_turn(place: Place, engines: Engines) -> None:
    document = Path(__file__).parents[3] / "docs/conversations.md"
    (text,) = re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(text.replace("http://127.0.0.1:8084", place.url), document.name, "exec"), names)  # noqa: S102
    engines.answers = ["Answer."]
    engines.finals.append((0, "Question?"))
    said = at(REALTIME_RATE, np.concatenate([speech(SPOKEN_S), silence(60)])).tobytes()
    played, interrupted = bytearray(), list[bool]()
    main = asyncio.create_task(names["main"](said, played.extend, lambda: interrupted.append(True)))
    await until(lambda: len(played) / 2 / REALTIME_RATE >= engines.spoken_s - 0.2 or main.done())
    assert not main.done(), main.exception()
    assert interrupted
    main.cancel()


def count(events: list[Any], kind: str) -> int:
    return sum(event.type == kind for event in events)


async def test_invalid_messages_are_reported_to_openais_client(place: Place) -> None:
    async with AsyncOpenAI(base_url=f"{place.url}/v1", api_key="a-key").realtime.connect(model="any") as connection:
        assert (await connection.recv()).type == "session.created"
        item: Any = {"type": "message", "role": "user", "content": []}
        await connection.conversation.item.create(item=item, event_id="mine")
        wrong = await connection.recv()
        assert wrong.type == "error"
        assert wrong.error.type == "invalid_request_error"
        assert wrong.error.event_id == "mine"


class Ear(FrameProcessor):
    """The end of a client's pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.heard_s = 0.0
        self.interruptions = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            self.heard_s += frame.num_frames / frame.sample_rate
        self.interruptions += isinstance(frame, InterruptionFrame)
        if not isinstance(frame, InputAudioRawFrame):
            await self.push_frame(frame, direction)


@pytest.mark.nightly
async def test_pipecats_client_sends_and_receives_audio(place: Place, engines: Engines) -> None:
    await ask_by_pipecat(place.url, Script(place, engines), engines)


async def ask_by_pipecat(url: str, script: Script, engines: Engines) -> None:
    ear = Ear()
    transport = WebsocketClientTransport(
        f"ws{url[4:]}/v1/conversations",
        WebsocketClientParams(
            audio_in_enabled=True, audio_out_enabled=True, add_wav_header=False, serializer=ProtobufFrameSerializer()
        ),
    )
    worker = PipelineWorker(
        Pipeline([transport.input(), ear, transport.output()]),
        params=PipelineParams(audio_in_sample_rate=REALTIME_RATE, audio_out_sample_rate=RATE),
        enable_rtvi=False,
        cancel_on_idle_timeout=False,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    for turn in range(TURNS):
        async for piece in script.pieces(turn, lambda turn=turn: ear.heard_s >= 0.9 * (turn + 1) * engines.spoken_s):  # type: ignore[misc]
            await worker.queue_frame(OutputAudioRawFrame(piece.tobytes(), RATE, 1))
    await worker.cancel()
    await running
    script.check()


@pytest.mark.nightly
async def test_a_twilio_stream_becomes_a_conversation(place: Place, engines: Engines) -> None:
    script = Script(place, engines)
    messages: list[dict[str, Any]] = []
    resampler = create_stream_resampler()

    def heard_s() -> float:
        media = [base64.b64decode(each["media"]["payload"]) for each in messages if each["event"] == "media"]
        return len(b"".join(media)) / TWILIO_RATE

    async with websockets.connect(f"ws{place.url[4:]}/v1/twilio") as socket:

        async def listen() -> None:
            async for text in socket:
                messages.append(json.loads(text))  # noqa: PERF401  they are read while they come

        listening = asyncio.create_task(listen())
        await socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        start = {
            "streamSid": "MZ1", "accountSid": "AC1", "callSid": "CA1", "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"key": "of-the-call"},
        }  # fmt: skip
        await socket.send(json.dumps({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": start}))
        for turn in range(TURNS):
            async for piece in script.pieces(turn, lambda turn=turn: heard_s() >= 0.9 * (turn + 1) * engines.spoken_s):  # type: ignore[misc]
                payload = base64.b64encode(await pcm_to_ulaw(piece.tobytes(), RATE, TWILIO_RATE, resampler)).decode()
                media = {"track": "inbound", "timestamp": "5", "payload": payload}
                await socket.send(json.dumps({"event": "media", "streamSid": "MZ1", "media": media}))
        listening.cancel()
    assert {each["event"] for each in messages} == {"media", "clear"}
    assert {each["streamSid"] for each in messages} == {"MZ1"}
    assert engines.keys == ["Bearer of-the-call"]
    script.check()
