"""Unmodified clients of other services on the complete voice path."""

import asyncio
import base64
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
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

from tests.voice.callers import SENTENCES, speech
from voice_ops.call.recording import SAMPLE_RATE_HZ
from voice_ops.call.senders import Samples
from voice_ops.call.session import REQUEST_TIMEOUT_S, Session
from voice_ops.demo.command import calculate_word_error_rate
from voice_ops.demo.services import Gateway, VoicePath
from voice_ops.loadtest import client_session
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.inputs import Recording
from voice_ops.loadtest.trace import RequestTrace
from voice_sandbox.loopback import find_free_port

ENDED_WITHIN_S = 120
MAX_ERROR_RATE = 0.15
SPOKEN_TEXT = SENTENCES[:3]
"""Silence that is sent in real time after the speech."""
TEXT = " ".join(SPOKEN_TEXT)
PAUSE_S = 1.5
CHUNK_S = 0.05
MULAW_RATE = 8_000
TELEPHONE = pytest.param(MULAW_RATE, 0.35, marks=pytest.mark.nightly)
"""tiny.en makes more mistakes at 8 kHz; a fast test with the gateway alone covers the encoding."""

Break = Callable[[], Coroutine[None, None, None]]


def started(path: VoicePath) -> Gateway:
    gateway = path.start_gateway("gateway", find_free_port())
    path.wait_until_ready()
    path.wait_for_capacity(gateway)
    return gateway


@pytest.fixture
def gateway(whole_path: VoicePath) -> Gateway:
    return started(whole_path)


async def in_real_time(audio: np.ndarray, rate: int) -> AsyncIterator[bytes]:
    """Yield audio in chunks in real time."""
    loop, piece = asyncio.get_running_loop(), round(rate * CHUNK_S)
    begin = loop.time()
    for number, start in enumerate(range(0, len(audio), piece)):
        await asyncio.sleep(begin + number * CHUNK_S - loop.time())
        yield audio[start : start + piece].tobytes()


def resample_audio(samples: Samples, rate: int) -> np.ndarray:
    return np.asarray(soxr.resample(samples, SAMPLE_RATE_HZ, rate), "<i2") if rate != SAMPLE_RATE_HZ else samples


def mulaw(samples: Samples) -> np.ndarray:
    """Encode telephone audio with the formula, independently of the tested table."""
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
        """Send the speech, and read events until all transcripts have arrived."""
        async with self._client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            created = await connection.recv()
            assert created.type == "session.created"
            await connection.session.update(session=self._session())
            listening = asyncio.create_task(self._listen(connection))
            breaking = asyncio.create_task(meanwhile()) if meanwhile else None
            try:
                async for piece in in_real_time(self._encode(samples), self._rate):
                    await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
                await connection.input_audio_buffer.commit()
            finally:
                if breaking:
                    await breaking
            # This protocol does not signal the end of the transcripts.
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

    def _encode(self, samples: Samples) -> np.ndarray:
        resampled = resample_audio(samples, self._rate)
        return mulaw(resampled) if self._rate == MULAW_RATE else resampled

    def events_of_type(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type.endswith(kind)]

    @property
    def transcript(self) -> str:
        return " ".join(event.transcript for event in self.events_of_type(".completed"))


@pytest.mark.parametrize(("rate", "max_error_rate"), [(24_000, MAX_ERROR_RATE), TELEPHONE])
async def test_openai_package_transcribes_the_sample(gateway: Gateway, rate: int, max_error_rate: float) -> None:
    caller = OpenAiCaller(gateway, rate=rate)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SPOKEN_TEXT, PAUSE_S))
    assert calculate_word_error_rate(TEXT, caller.transcript) <= max_error_rate, caller.transcript
    assert not caller.events_of_type("error")
    done = [event for event in caller.events_of_type(".completed") if event.transcript]
    assert len(done) >= len(SPOKEN_TEXT)
    for item in done:  # the deltas are a prefix of the final text
        told = "".join(event.delta for event in caller.events_of_type(".delta") if event.item_id == item.item_id)
        assert item.transcript.startswith(told)
        of_item = [
            event.type.rpartition(".")[2] for event in caller.events if getattr(event, "item_id", "") == item.item_id
        ]
        assert (of_item[0], of_item[-1]) == ("speech_started", "completed")
        assert [kind for kind in of_item if kind != "delta"] == [
            "speech_started", "speech_stopped", "committed", "completed",
        ]  # fmt: skip
    assert any(caller.events_of_type(".delta"))


async def test_openai_package_without_turns_has_one_transcript_per_commit(gateway: Gateway) -> None:
    """Without turn detection, two sentences with a pause are one transcript."""
    caller = OpenAiCaller(gateway, turns=False)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SENTENCES[:2], 1.5))
    (done,) = caller.events_of_type(".completed")
    assert calculate_word_error_rate(" ".join(SENTENCES[:2]), done.transcript) <= MAX_ERROR_RATE
    assert not caller.events_of_type("speech_started")


class DeepgramCaller:
    """A program with the `deepgram-sdk`."""

    def __init__(self, gateway: Gateway, key: str = "any", *, rate: int = SAMPLE_RATE_HZ) -> None:
        self._rate = rate
        socket = gateway.url.replace("http", "ws", 1)
        place = DeepgramClientEnvironment(base=gateway.url, production=socket, agent=socket, agent_rest=gateway.url)
        self._client = AsyncDeepgramClient(api_key=key, environment=place)
        self.messages: list[Any] = []

    async def call(self, samples: Samples, *, meanwhile: Break | None = None, finalize: bool = False) -> None:
        """Send the speech, and read events until the server closes the connection."""
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
                async for piece in in_real_time(self._encode(samples), self._rate):
                    await connection.send_media(piece)
            finally:
                if breaking:
                    await breaking
            if finalize:
                await connection.send_finalize()
                while not any(result.from_finalize for result in self.events_of_type("Results")):
                    await asyncio.sleep(0.05)
            await connection.send_close_stream()
            await listening

    def _encode(self, samples: Samples) -> np.ndarray:
        resampled = resample_audio(samples, self._rate)
        return mulaw(resampled) if self._rate == MULAW_RATE else resampled

    def events_of_type(self, kind: str) -> list[Any]:
        return [message for message in self.messages if message.type == kind]

    @property
    def finals(self) -> list[Any]:
        return [each.channel.alternatives[0] for each in self.events_of_type("Results") if each.is_final]

    @property
    def transcript(self) -> str:
        return " ".join(final.transcript for final in self.finals)


@pytest.mark.parametrize(("rate", "max_error_rate"), [(SAMPLE_RATE_HZ, MAX_ERROR_RATE), TELEPHONE])
async def test_deepgram_sdk_transcribes_the_sample(gateway: Gateway, rate: int, max_error_rate: float) -> None:
    caller = DeepgramCaller(gateway, rate=rate)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await caller.call(speech(SPOKEN_TEXT, PAUSE_S), finalize=True)
    assert calculate_word_error_rate(TEXT, caller.transcript) <= max_error_rate, caller.transcript
    words = [word for final in caller.finals for word in final.words]
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert len(caller.events_of_type("SpeechStarted")) >= len(SPOKEN_TEXT)
    assert len(caller.events_of_type("UtteranceEnd")) >= len(SPOKEN_TEXT) - 1
    assert any(not result.is_final for result in caller.events_of_type("Results"))
    assert all(result.speech_final for result in caller.events_of_type("Results") if result.is_final)
    assert caller.messages[-1].type == "Metadata"


# The gateway handles both protocols in the same way: one is tested on every change, the other nightly.
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
        await caller.call(speech(SPOKEN_TEXT, PAUSE_S), meanwhile=kill)
    assert calculate_word_error_rate(TEXT, caller.transcript) <= MAX_ERROR_RATE, caller.transcript


@OPENAI_AT_ONCE
async def test_client_with_a_session_token_continues_after_a_gateway_restart(
    path: VoicePath, kind: type[OpenAiCaller] | type[DeepgramCaller]
) -> None:
    """The first socket is closed during the pause; the second one delivers missed events, some of them again."""
    gateway = started(path)
    async with httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client:
        session = await Session.open(client, gateway.url, "websocket")
    first, second = kind(gateway, session.token), kind(gateway, session.token)

    async def kill() -> None:
        await asyncio.sleep(speech(SENTENCES[:1], 0.0).size / SAMPLE_RATE_HZ + 0.3)
        await asyncio.to_thread(path.services["gateway"].stop, signal.SIGKILL)
        path.services["gateway"].start()
        await asyncio.to_thread(path.services["gateway"].wait_until_ready)
        await asyncio.to_thread(path.wait_for_capacity, gateway)

    async with asyncio.timeout(ENDED_WITHIN_S):
        with contextlib.suppress(websockets.ConnectionClosed):
            await first.call(speech(SENTENCES[:1], 3.0), meanwhile=kill)
        await second.call(speech(SENTENCES[1:2], 1.0))
    # Text from the last second before the reconnect may be repeated.
    heard = (
        second.transcript
        if second.transcript.startswith(first.transcript)
        else f"{first.transcript} {second.transcript}"
    )
    assert calculate_word_error_rate(" ".join(SENTENCES[:2]), heard) <= MAX_ERROR_RATE, heard


@DEEPGRAM_AT_ONCE
async def test_a_client_receives_all_transcripts_before_its_gateway_stops(
    path: VoicePath, kind: type[OpenAiCaller] | type[DeepgramCaller]
) -> None:
    """This client cannot reconnect, so its speech is transcribed before the socket is closed."""
    gateway = started(path)
    caller = kind(gateway)
    spoken = speech(SENTENCES[:1], 0.0)

    async def stop() -> None:
        await asyncio.sleep(spoken.size / SAMPLE_RATE_HZ)
        service = path.services["gateway"]
        assert service.process
        service.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(service.process.wait, ENDED_WITHIN_S)

    async with asyncio.timeout(ENDED_WITHIN_S):
        with contextlib.suppress(websockets.ConnectionClosed):
            await caller.call(spoken, meanwhile=stop)
    assert calculate_word_error_rate(SENTENCES[0], caller.transcript) <= MAX_ERROR_RATE, caller.transcript


@pytest.mark.nightly
@pytest.mark.parametrize("driver", [client_session.OpenAiDriver, client_session.DeepgramDriver])
async def test_load_tests_support_their_protocols(
    gateway: Gateway, driver: type[client_session.WebSocketDriver]
) -> None:
    pcm = speech(SENTENCES[:1], 0.0).astype("<i2").tobytes()
    trace = RequestTrace("1", perf_counter(), perf_counter())
    async with asyncio.timeout(ENDED_WITHIN_S):
        async with Endpoint("gateway", URL(gateway.url), "", {}) as endpoint:
            await driver(endpoint, (Recording("sentence", b"", pcm),)).send(0, trace)
    assert trace.first_piece_delay_s
    assert trace.input_ended_s
    assert trace.ended_s >= trace.input_ended_s


DOCUMENT = Path(__file__).parents[2] / "docs/clients.md"
SILENCE_S = 3.0


def documented_function(package: str, gateway: Gateway, prints: Callable[[Any], None]) -> Callable[[bytes], Any]:
    """Return `main` of the documented program that imports a package, adapted to the test gateway."""
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = [each for each in programs if f"import {package}" in each]
    names: dict[str, Any] = {"print": prints}
    exec(compile(text.replace("127.0.0.1:8080", str(URL(gateway.url).authority)), DOCUMENT.name, "exec"), names)  # noqa: S102
    main: Callable[[bytes], Any] = names["main"]
    return main


@pytest.mark.parametrize(("package", "rate"), [("AsyncOpenAI", 24_000), ("AsyncDeepgramClient", SAMPLE_RATE_HZ)])
async def test_the_documented_programs_transcribe(gateway: Gateway, package: str, rate: int) -> None:
    told: list[Any] = []

    def transcript() -> str:
        finals = [
            each if isinstance(each, str) else each.channel.alternatives[0].transcript
            for each in told
            if isinstance(each, str) or (each.type == "Results" and each.is_final)
        ]
        return " ".join(finals)

    samples = np.concatenate(
        [resample_audio(speech(SPOKEN_TEXT[:1], PAUSE_S), rate), np.zeros(round(SILENCE_S * rate), "<i2")]
    )
    main = asyncio.create_task(documented_function(package, gateway, told.append)(samples.tobytes()))
    async with asyncio.timeout(ENDED_WITHIN_S):
        while calculate_word_error_rate(SPOKEN_TEXT[0], transcript()) > MAX_ERROR_RATE:
            assert not main.done() or main.exception() is None, transcript()
            await asyncio.sleep(0.1)
    main.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await main
