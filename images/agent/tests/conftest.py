"""An agent on a port of this machine, with stand-in engines whose responses are scripted, and a caller."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
import websockets
from pipecat.frames.protobufs import frames_pb2
from redis.asyncio import Redis

from images.agent.tests.engines import SPEECH_RATE, Engines
from images.conftest import BUSY_TIMEOUT_S, until
from voice_agent.models import VoiceDetector
from voice_agent.server import Agent, announce_slots, create_application
from voice_agent.settings import AgentSettings
from voice_agent.siblings import ForwardableConnection
from voice_ops.call.recording import read_samples
from voice_sandbox.loopback import find_free_port

RATE = 16000
SAMPLE_BYTES = 2
FRAME = RATE // 50
KEY = "k" * 32
SAMPLE = Path(__file__).parents[3] / "voice_ops/demo/page/sample.wav"
SENTENCE_S = 2.0
"""Within the sample's first pause: the next 2.7 s are continuous speech."""
LOUD = 1000


def speech(seconds: float) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Return the start of the sample's second sentence, from its first sound."""
    samples = read_samples(SAMPLE)
    first = int(SENTENCE_S * RATE)
    onset = first + int(np.argmax(np.abs(samples[first:].astype(np.int32)) > LOUD))
    return samples[onset : onset + int(seconds * RATE)]


def silence(seconds: float) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.zeros(int(seconds * RATE), np.int16)


@dataclass
class Caller:
    """A caller that uses Pipecat's protobuf, as its own clients do."""

    socket: websockets.ClientConnection
    vads: list[VoiceDetector]
    sent: int = 0
    heard_s: float = 0.0
    rate: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    interruptions: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        async for data in self.socket:
            frame = frames_pb2.Frame.FromString(data)  # type: ignore[attr-defined]
            async with self.changed:
                match frame.WhichOneof("frame"):
                    case "audio":
                        self.rate = frame.audio.sample_rate
                        self.heard_s += len(frame.audio.audio) / 2 / self.rate
                    case "message":
                        self.messages.append(json.loads(frame.message.data))
                    case "interruption":
                        self.interruptions += 1
                self.changed.notify_all()

    async def send(self, samples: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        """Send audio as fast as it is processed, so that only the audio's own time counts on any machine.

        The rest is not sent if the agent ends the conversation meanwhile.
        """
        for begin in range(0, samples.size - FRAME + 1, FRAME):
            frame = frames_pb2.Frame()  # type: ignore[attr-defined]
            frame.audio.audio = samples[begin : begin + FRAME].astype("<i2").tobytes()
            frame.audio.sample_rate = RATE
            frame.audio.num_channels = 1
            try:
                await self.socket.send(frame.SerializeToString())
            except websockets.ConnectionClosed:
                return
            self.sent += len(frame.audio.audio)
            await until(lambda: self.vads[-1].processed_bytes >= self.sent or self.socket.close_code is not None)

    async def until(self, condition: Callable[["Caller"], bool]) -> None:
        async with self.changed, asyncio.timeout(BUSY_TIMEOUT_S):
            await self.changed.wait_for(lambda: condition(self))

    async def closed(self) -> int | None:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            await self.socket.wait_closed()
        return self.socket.close_code


@dataclass
class Place:
    """Address of the agent."""

    agent: Agent
    url: str
    vads: list[VoiceDetector]

    @contextlib.asynccontextmanager
    async def call(
        self, path: str = "/v1/conversations", token: str = "", holder: "Place | None" = None
    ) -> AsyncIterator[Caller]:
        """Call, and wait until ``holder`` has the conversation, which is a sibling if this agent is full."""
        holder = holder or self
        headers, known = {"X-Voice-Token": token} if token else {}, len(holder.vads)
        async with websockets.connect(
            f"ws{self.url[4:]}{path}", additional_headers=headers, ping_interval=None
        ) as socket:
            caller = Caller(socket, holder.vads)
            listening = asyncio.create_task(caller.listen())
            await caller.until(lambda each: bool(each.messages))
            await until(lambda: len(holder.vads) > known)
            yield caller
            held = holder.agent.conversation_count
        with contextlib.suppress(websockets.ConnectionClosed):
            await listening
        await until(lambda: holder.agent.conversation_count < max(held, 1))


@contextlib.asynccontextmanager
async def serving(app: Any, port: int, host: str = "127.0.0.1", ws: Any = "websockets-sansio") -> AsyncIterator[None]:
    config = uvicorn.Config(app, host=host, port=port, lifespan="off", log_config=None, ws=ws, ws_ping_interval=None)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    yield
    server.should_exit = server.force_exit = True
    await task


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    engines = Engines()
    engines.port = find_free_port()
    async with serving(engines.app(), engines.port):
        yield engines


def settings_of(engines: Engines, port: int, **more: Any) -> AgentSettings:
    usual: dict[str, Any] = {
        "deployment": "test",
        "fleet": "agent",
        "http_port": port,
        "bind_address": "127.0.0.1",
        "token_key": KEY,
        "token_ttl_s": 600,
        "idle_timeout_s": 300,
        "drain_timeout_s": 30,
        "conversations": 1,
        "gateway_url": engines.url,
        "chat_url": f"{engines.url}/v1",
        "chat_model": "small",
        "chat_key": "of-chat",
        "speech_url": f"{engines.url}/v1",
        "speech_model": "voices",
        "speech_key": "of-speech",
        "speech_voice": "joe",
        "speech_rate": SPEECH_RATE,
        "prompt": "Answer in one sentence.",
        "tools_url": "",
        "tools_key": "",
        "twilio_account": "",
        "twilio_token": "",
        "language": "",
        "answer_tokens": 100,
        "listening": "transcript",
        "final_within_s": BUSY_TIMEOUT_S,
        "unheard_within_s": BUSY_TIMEOUT_S,
    }
    return AgentSettings(**{**usual, **more})


@contextlib.asynccontextmanager
async def running_agent(
    engines: Engines, store: Redis, address: str = "127.0.0.1", port: int = 0, **more: Any
) -> AsyncIterator[Place]:
    port = port or find_free_port()
    agent = Agent(settings_of(engines, port, bind_address=address, **more), store)
    vads: list[VoiceDetector] = []
    make = agent.models.create_voice_detector
    agent.models.create_voice_detector = lambda: vads.append(make()) or vads[-1]  # type: ignore[method-assign, func-returns-value]
    announcing = asyncio.create_task(announce_slots(agent))
    async with serving(create_application(agent), port, address, ForwardableConnection):
        yield Place(agent, f"http://{address}:{port}", vads)
        agent.shutting_down.set()
        agent.count_changed.set()
        await until(lambda: agent.conversation_count == 0)
    await announcing
    await agent.client.aclose()


@pytest.fixture
async def place(engines: Engines, store: Redis) -> AsyncIterator[Place]:
    async with running_agent(engines, store) as place:
        yield place
