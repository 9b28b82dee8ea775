"""Clients of other services, unmodified, on the whole voice path."""

import asyncio
import base64
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from time import perf_counter
from typing import Any

import httpx2
import numpy as np
import pytest
import soxr
import websockets
from deepgram import AsyncDeepgramClient
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment
from openai import AsyncOpenAI
from yarl import URL

from ops.call.recording import RATE
from ops.call.senders import Samples
from ops.call.session import TIMEOUT_S, Session
from ops.demo.command import word_error_rate
from ops.demo.services import Gateway, VoicePath, free_port
from ops.loadtest import client_session
from ops.loadtest.endpoint import Endpoint
from ops.loadtest.inputs import Recording
from ops.loadtest.trace import Trace
from tests.voice.callers import SENTENCES, speech

ENDED_WITHIN_S = 120
WORST_ERROR_RATE = 0.15
SAID = SENTENCES[:3]
"""Said in real time, as all audio here."""
TEXT = " ".join(SAID)
PAUSE_S = 1.5
PIECE_S = 0.05
MULAW_RATE = 8_000
TELEPHONE = pytest.param(MULAW_RATE, 0.35, marks=pytest.mark.nightly)
"""tiny.en mishears more of 8 kHz; what the bytes mean is tested in a moment with the gateway alone."""

Break = Callable[[], Coroutine[None, None, None]]


def started(path: VoicePath) -> Gateway:
    gateway = path.start_gateway("gateway", free_port())
    path.wait_ready()
    path.wait_for_capacity(gateway)
    return gateway


@pytest.fixture
def gateway(whole_path: VoicePath) -> Gateway:
    return started(whole_path)


async def in_real_time(audio: np.ndarray, rate: int) -> AsyncIterator[bytes]:
    """Yield audio in pieces, each when it has been said."""
    loop, piece = asyncio.get_running_loop(), round(rate * PIECE_S)
    begin = loop.time()
    for number, start in enumerate(range(0, len(audio), piece)):
        await asyncio.sleep(begin + number * PIECE_S - loop.time())
        yield audio[start : start + piece].tobytes()


def at_rate(samples: Samples, rate: int) -> np.ndarray:
    return np.asarray(soxr.resample(samples, RATE, rate), "<i2") if rate != RATE else samples


def mulaw(samples: Samples) -> np.ndarray:
    """Encode telephone audio by the formula, as this side's own check of the other's table."""
    bias, clip = 132, 32_635
    size = np.minimum(np.abs(samples.astype(int)), clip) + bias
    exponent = np.floor(np.log2(size)).astype(int) - 7
    code = exponent << 4 | size >> exponent + 3 & 15
    return np.asarray(~(code | np.where(samples < 0, 128, 0)) & 255, np.uint8)


class OpenAiCaller:
    """A program with the `openai` package."""

    def __init__(self, gateway: Gateway, key: str = "any", *, turns: bool = True, rate: int = 24_000) -> None:
        self._client = AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key)
        self._turns, self._rate = turns, rate
        self.events: list[Any] = []

    async def call(self, samples: Samples, *, meanwhile: Break | None = None) -> None:
        """Speak, and listen until nothing is missing."""
        async with self._client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            created = await connection.recv()
            assert created.type == "session.created"
            await connection.session.update(session=self._session())
            listening = asyncio.create_task(self._listen(connection))
            breaking = asyncio.create_task(meanwhile()) if meanwhile else None
            try:
                async for piece in in_real_time(self._encoded(samples), self._rate):
                    await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
                await connection.input_audio_buffer.commit()
            finally:
                if breaking:
                    await breaking
            # An end of its own this protocol does not have.
            await self._quiet()
            listening.cancel()

    async def _quiet(self) -> None:
        said = -1
        while said != len(self.events):
            said = len(self.events)
            await asyncio.sleep(4)

    async def _listen(self, connection: Any) -> None:  # noqa: ANN401  of a package
        async for event in connection:
            self.events.append(event)

    def _session(self) -> Any:  # noqa: ANN401
        audio = {"type": "audio/pcmu"} if self._rate == MULAW_RATE else {"type": "audio/pcm", "rate": self._rate}
        turns = {"type": "server_vad", "threshold": 0.5} if self._turns else None
        about = {"format": audio, "transcription": {"model": "whisper-1", "language": "en"}, "turn_detection": turns}
        return {"type": "transcription", "audio": {"input": about}}

    def _encoded(self, samples: Samples) -> np.ndarray:
        resampled = at_rate(samples, self._rate)
        return mulaw(resampled) if self._rate == MULAW_RATE else resampled

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type.endswith(kind)]

    @property
    def heard(self) -> str:
        return " ".join(event.transcript for event in self.of(".completed"))


@pytest.mark.parametrize(("rate", "worst"), [(24_000, WORST_ERROR_RATE), TELEPHONE])
async def test_openai_package_transcribes_the_sample(gateway: Gateway, rate: int, worst: float) -> None:
    caller = OpenAiCaller(gateway, rate=rate)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SAID, PAUSE_S))
    assert word_error_rate(TEXT, caller.heard) <= worst, caller.heard
    assert not caller.of("error")
    done = [event for event in caller.of(".completed") if event.transcript]
    assert len(done) >= len(SAID)
    for item in done:  # what came bit by bit is the beginning of what it came to
        told = "".join(event.delta for event in caller.of(".delta") if event.item_id == item.item_id)
        assert item.transcript.startswith(told)
        of_item = [
            event.type.rpartition(".")[2] for event in caller.events if getattr(event, "item_id", "") == item.item_id
        ]
        assert (of_item[0], of_item[-1]) == ("speech_started", "completed")
        assert [kind for kind in of_item if kind != "delta"] == [
            "speech_started", "speech_stopped", "committed", "completed",
        ]  # fmt: skip
    assert any(caller.of(".delta"))


async def test_openai_package_without_turns_has_one_transcript_for_what_it_commits(gateway: Gateway) -> None:
    """Two sentences with a pause between them are one question, where the client says so."""
    caller = OpenAiCaller(gateway, turns=False)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SENTENCES[:2], 1.5))
    (done,) = caller.of(".completed")
    assert word_error_rate(" ".join(SENTENCES[:2]), done.transcript) <= WORST_ERROR_RATE
    assert not caller.of("speech_started")


class DeepgramCaller:
    """A program with the `deepgram-sdk`."""

    def __init__(self, gateway: Gateway, key: str = "any", *, rate: int = RATE) -> None:
        self._rate = rate
        socket = gateway.url.replace("http", "ws", 1)
        place = DeepgramClientEnvironment(base=gateway.url, production=socket, agent=socket, agent_rest=gateway.url)
        self._client = AsyncDeepgramClient(api_key=key, environment=place)
        self.messages: list[Any] = []

    async def call(self, samples: Samples, *, meanwhile: Break | None = None, finalize: bool = False) -> None:
        """Speak, and listen until the other side is done."""
        options: dict[str, Any] = {
            "model": "nova-3", "encoding": "mulaw" if self._rate == MULAW_RATE else "linear16",
            "sample_rate": self._rate, "interim_results": "true",
            "vad_events": "true", "utterance_end_ms": 1000, "language": "en",
        }  # fmt: skip
        async with self._client.listen.v1.connect(**options) as connection:
            connection.on(EventType.MESSAGE, self.messages.append)
            listening = asyncio.create_task(connection.start_listening())
            await connection.send_keep_alive()
            breaking = asyncio.create_task(meanwhile()) if meanwhile else None
            try:
                async for piece in in_real_time(self._encoded(samples), self._rate):
                    await connection.send_media(piece)
            finally:
                if breaking:
                    await breaking
            if finalize:
                await connection.send_finalize()
                while not any(result.from_finalize for result in self.of("Results")):
                    await asyncio.sleep(0.05)
            await connection.send_close_stream()
            await listening

    def _encoded(self, samples: Samples) -> np.ndarray:
        resampled = at_rate(samples, self._rate)
        return mulaw(resampled) if self._rate == MULAW_RATE else resampled

    def of(self, kind: str) -> list[Any]:
        return [message for message in self.messages if message.type == kind]

    @property
    def finals(self) -> list[Any]:
        return [each.channel.alternatives[0] for each in self.of("Results") if each.is_final]

    @property
    def heard(self) -> str:
        return " ".join(final.transcript for final in self.finals)


@pytest.mark.parametrize(("rate", "worst"), [(RATE, WORST_ERROR_RATE), TELEPHONE])
async def test_deepgram_sdk_transcribes_the_sample(gateway: Gateway, rate: int, worst: float) -> None:
    caller = DeepgramCaller(gateway, rate=rate)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SAID, PAUSE_S), finalize=True)
    assert word_error_rate(TEXT, caller.heard) <= worst, caller.heard
    words = [word for final in caller.finals for word in final.words]
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert len(caller.of("SpeechStarted")) >= len(SAID)
    assert len(caller.of("UtteranceEnd")) >= len(SAID) - 1
    assert any(not result.is_final for result in caller.of("Results"))
    assert all(result.speech_final for result in caller.of("Results") if result.is_final)
    assert caller.messages[-1].type == "Metadata"


# What the gateway does is the same for both protocols: on every change with one, nightly with the other too.
OPENAI_AT_ONCE = pytest.mark.parametrize(
    "kind", [OpenAiCaller, pytest.param(DeepgramCaller, marks=pytest.mark.nightly)]
)
DEEPGRAM_AT_ONCE = pytest.mark.parametrize(
    "kind", [pytest.param(OpenAiCaller, marks=pytest.mark.nightly), DeepgramCaller]
)


@OPENAI_AT_ONCE
async def test_killed_asr_host_loses_no_final_of_a_client(
    path: VoicePath, kind: type[OpenAiCaller] | type[DeepgramCaller]
) -> None:
    gateway = started(path)

    async def kill() -> None:
        await asyncio.sleep(1.5)
        await asyncio.to_thread(path.services["asr-1"].stop, signal.SIGKILL)

    caller = kind(gateway)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SAID, PAUSE_S), meanwhile=kill)
    assert word_error_rate(TEXT, caller.heard) <= WORST_ERROR_RATE, caller.heard


@OPENAI_AT_ONCE
async def test_client_with_a_sessions_token_goes_on_behind_a_restarted_gateway(
    path: VoicePath, kind: type[OpenAiCaller] | type[DeepgramCaller]
) -> None:
    """The first socket ends amid the pause; what it was not told, or a moment before, the second brings."""
    gateway = started(path)
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
        session = await Session.open(client, gateway.url, "websocket")
    first, second = kind(gateway, session.token), kind(gateway, session.token)

    async def kill() -> None:
        await asyncio.sleep(speech(SENTENCES[:1], 0.0).size / RATE + 0.3)
        await asyncio.to_thread(path.services["gateway"].stop, signal.SIGKILL)
        path.services["gateway"].start()
        await asyncio.to_thread(path.services["gateway"].wait_ready)
        await asyncio.to_thread(path.wait_for_capacity, gateway)

    async with asyncio.timeout(ENDED_WITHIN_S):
        with contextlib.suppress(websockets.ConnectionClosed):
            await first.call(speech(SENTENCES[:1], 3.0), meanwhile=kill)
        await second.call(speech(SENTENCES[1:2], 1.0))
    # What came within a second of the break comes again.
    heard = second.heard if second.heard.startswith(first.heard) else f"{first.heard} {second.heard}"
    assert word_error_rate(" ".join(SENTENCES[:2]), heard) <= WORST_ERROR_RATE, heard


@DEEPGRAM_AT_ONCE
async def test_client_is_told_all_before_its_gateway_stops(
    path: VoicePath, kind: type[OpenAiCaller] | type[DeepgramCaller]
) -> None:
    """It has no token to come back with: what it has said by then is transcribed before the socket closes."""
    gateway = started(path)
    caller = kind(gateway)
    spoken = speech(SENTENCES[:1], 0.0)

    async def stop() -> None:
        await asyncio.sleep(spoken.size / RATE)
        service = path.services["gateway"]
        assert service.process
        service.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(service.process.wait, ENDED_WITHIN_S)

    async with asyncio.timeout(ENDED_WITHIN_S):
        with contextlib.suppress(websockets.ConnectionClosed):
            await caller.call(spoken, meanwhile=stop)
    assert word_error_rate(SENTENCES[0], caller.heard) <= WORST_ERROR_RATE, caller.heard


@pytest.mark.nightly
@pytest.mark.parametrize("driver", [client_session.OpenAi, client_session.Deepgram])
async def test_load_goes_by_their_protocols_too(gateway: Gateway, driver: type[client_session.ClientSession]) -> None:
    pcm = speech(SENTENCES[:1], 0.0).astype("<i2").tobytes()
    trace = Trace("1", perf_counter(), perf_counter())
    async with asyncio.timeout(ENDED_WITHIN_S):
        async with Endpoint("gateway", URL(gateway.url), "", {}) as endpoint:
            await driver(endpoint, (Recording("sentence", b"", pcm),)).send(0, trace)
    assert trace.first_s
    assert trace.input_ended_s
    assert trace.ended_s >= trace.input_ended_s
