"""Streaming engines: a server with vLLM's realtime messages, whose words follow from the audio that it received."""

import asyncio
import base64
import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
import websockets
from conftest import Start
from engine_host import chunks_of, finals, open_session
from numpy.typing import NDArray
from redis.asyncio import Redis
from websockets.http11 import Request, Response

from images.conftest import BUSY_TIMEOUT_S
from voice_blueprint.contract.chunk import ChunkKind
from voice_runtime.features import SAMPLE_RATE_HZ
from voice_whisper import streaming, vllm_realtime, vllm_watch
from voice_whisper.job import Priority
from voice_whisper.streaming import OVERLAP_SAMPLES, StreamError, StreamingTranscriber, join_texts
from voice_whisper.utterance import Utterance
from voice_whisper.vllm_realtime import VllmRealtimeRecognizer, VllmStream

MODEL = "voxtral-mini-4b-realtime"
WORD, SPACE = SAMPLE_RATE_HZ * 2 // 5, SAMPLE_RATE_HZ // 10
CONTEXT = 150
"""Tokens, of which a stream may use 9.6 s: its boundaries fall inside words."""
PARTIAL_EVERY = 25
"""Chunks: half a second."""


def speech(words: int) -> NDArray[np.int16]:
    """Return audio with two words a second: each is its number, as a constant level."""
    said = [np.concatenate([np.full(WORD, 1 + number), np.zeros(SPACE)]) for number in range(words)]
    return np.concatenate(said).astype(np.int16)


def text(words: int) -> str:
    return " ".join(f"word{1 + number}" for number in range(words))


def heard(audio: NDArray[np.int16]) -> Iterator[str]:
    """Yield the words of audio; words that were cut are not recognized."""
    edges = np.flatnonzero(np.diff(audio)) + 1
    for part in np.split(audio, edges):
        if part.size and part[0]:
            yield f"word{part[0]}" if part.size == WORD else "mumble"


class Realtime:
    """vLLM's HTTP port: its models and the WebSocket."""

    def __init__(self) -> None:
        self.tokens = CONTEXT
        self.streams: list[int] = []
        self.breaks = self.ended = 0
        self.works = asyncio.Event()
        self.works.set()

    async def serve(self, socket: websockets.ServerConnection) -> None:
        await socket.send(json.dumps({"type": "session.created", "id": "sess-1", "created": 0}))
        assert json.loads(await socket.recv()) == {"type": "session.update", "model": MODEL}
        assert json.loads(await socket.recv()) == {"type": "input_audio_buffer.commit", "final": False}
        number, audio, told = len(self.streams), np.empty(0, np.int16), 0
        self.streams.append(0)
        async for message in socket:
            event = json.loads(message)
            await self.works.wait()
            if event["type"] == "input_audio_buffer.commit":
                assert event["final"]
                words = list(heard(audio))
                await socket.send(json.dumps({"type": "transcription.done", "text": " ".join(words), "usage": None}))
                return
            audio = np.concatenate([audio, np.frombuffer(base64.b64decode(event["audio"]), "<i2")])
            self.streams[number] = audio.size
            if self.breaks and audio.size > 2 * SAMPLE_RATE_HZ:
                self.breaks -= 1
                await socket.send(json.dumps({"type": "error", "error": "the engine died", "code": "processing_error"}))
                return
            words = list(heard(audio))[:-1]
            for word in words[told:]:
                await socket.send(json.dumps({"type": "transcription.delta", "delta": f" {word}"}))
            told = len(words)
        self.ended += 1

    def models(self, connection: websockets.ServerConnection, request: Request) -> Response | None:
        if request.path == "/v1/realtime":
            return None
        return connection.respond(HTTPStatus.OK, json.dumps({"data": [{"id": MODEL, "max_model_len": self.tokens}]}))


@pytest.fixture
async def vllm(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Realtime, str]]:
    monkeypatch.setattr(streaming, "RETRY_PAUSE_S", 0.01)
    monkeypatch.setattr(vllm_watch, "PROBE_IDLE_TIME_S", BUSY_TIMEOUT_S)
    found = Realtime()
    async with websockets.serve(found.serve, "127.0.0.1", 0, process_request=found.models) as server:
        yield found, f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


@pytest.fixture
async def streams(vllm: tuple[Realtime, str]) -> AsyncIterator[StreamingTranscriber]:
    transcriber = StreamingTranscriber(VllmRealtimeRecognizer(vllm[1]))
    running = asyncio.create_task(transcriber.run())
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        await transcriber.wait_until_ready()
        yield transcriber
    running.cancel()


async def said(streams: StreamingTranscriber, utterance: Utterance, wanted: Priority = Priority.FINAL) -> str:
    return (await streams.transcribe(utterance, None, wanted)).text


async def test_a_hanging_engine_is_reported_with_the_kind_of_error(
    vllm: tuple[Realtime, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_realtime, "RESPONSE_TIMEOUT_S", 0.2)
    vllm[0].works.clear()
    stream = await VllmRealtimeRecognizer(vllm[1], MODEL).open_stream()
    with pytest.raises(StreamError, match="vLLM: TimeoutError"):
        await stream.finish()
    vllm[0].works.set()
    await stream.close()


class Connection:
    """A WebSocket whose messages and errors a test determines."""

    def __init__(self, *received: dict[str, str] | Exception, failure: Exception | None = None) -> None:
        self.sent: list[dict[str, object]] = []
        self._received = iter(received)
        self._failure = failure

    async def send(self, message: str) -> None:
        if self._failure:
            raise self._failure
        self.sent.append(json.loads(message))

    async def recv(self) -> str:
        for each in self._received:
            if isinstance(each, Exception):
                raise each
            return json.dumps(each)
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Close nothing."""


def stream_of(connection: Connection, answered: Callable[[], None] = lambda: None) -> VllmStream:
    return VllmStream(connection, answered)  # type: ignore[arg-type]


async def test_only_messages_of_the_engine_core_are_responses() -> None:
    """The HTTP server sends those of the session, even if the engine core hangs."""
    answers: list[int] = []
    connection = Connection(
        {"type": "session.created"},
        {"type": "transcription.delta", "delta": " one"},
        {"type": "transcription.delta", "delta": " two"},
        {"type": "transcription.done", "text": " one two. "},
    )
    stream = stream_of(connection, lambda: answers.append(1))
    await stream.send(np.array([1, -2], np.int16))
    assert await stream.finish() == "one two."
    assert stream.text == " one two"
    assert len(answers) == 3
    assert connection.sent == [
        {"type": "input_audio_buffer.append", "audio": base64.b64encode(b"\1\0\xfe\xff").decode()},
        {"type": "input_audio_buffer.commit", "final": True},
    ]
    await stream.close()


ERRORS = pytest.mark.parametrize(
    ("error", "why"), [(OSError("gone"), "gone"), (TimeoutError(), "TimeoutError"), (KeyError("text"), "'text'")]
)


@ERRORS
async def test_a_failure_to_send_is_reported(error: Exception, why: str) -> None:
    stream = stream_of(Connection(failure=error))
    with pytest.raises(StreamError, match=f"^vLLM: {why}$"):
        await stream.send(speech(1))
    await stream.close()


@ERRORS
async def test_a_failure_to_receive_is_reported(error: Exception, why: str) -> None:
    stream = stream_of(Connection(error))
    with pytest.raises(StreamError, match=f"^vLLM: {why}$"):
        await stream.finish()
    with pytest.raises(StreamError, match=f"^vLLM: {why}$"):
        await stream.send(speech(1))
    await stream.close()


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ({"type": "transcription.done", "text": "one"}, "vLLM ended a stream before its audio did"),
        ({"type": "error", "error": "the engine died"}, "vLLM: the engine died"),
    ],
)
async def test_a_stream_that_has_ended_accepts_no_audio(last: dict[str, str], why: str) -> None:
    connection = Connection(last)
    stream = stream_of(connection)
    for _ in range(10):  # until it has read the message
        await asyncio.sleep(0)
    with pytest.raises(StreamError, match=f"^{why}$"):
        await stream.send(speech(1))
    assert connection.sent == []
    await stream.close()


@ERRORS
async def test_a_stream_that_cannot_be_opened_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    opened = []

    async def connect(url: str, **_: object) -> Connection:
        opened.append(url)
        return Connection(failure=error)

    monkeypatch.setattr(websockets, "connect", connect)
    with pytest.raises(StreamError, match=f"^vLLM: {why}$"):
        await VllmRealtimeRecognizer("https://http.voice", MODEL).open_stream()
    assert opened == ["wss://http.voice/v1/realtime"]


@pytest.mark.parametrize(("context", "seconds"), [(150, 9.6), (900, 57.6), (131072, 60.0)])
async def test_streams_use_four_fifths_of_the_context_and_at_most_a_minute(
    monkeypatch: pytest.MonkeyPatch, context: int, seconds: float
) -> None:
    """Voxtral Realtime's model card states one token per 80 ms of audio. vLLM is asked each second until it answers."""
    cards = [{"id": "qwen3-8b", "max_model_len": 40960}, {"id": MODEL, "max_model_len": context}]
    answers = [httpx2.Response(503), httpx2.Response(200, json={"data": cards[:1]})]
    pauses: list[float] = []
    create_client = httpx2.AsyncClient

    def answer(_: httpx2.Request) -> httpx2.Response:
        return answers.pop(0) if answers else httpx2.Response(200, json={"data": cards})

    async def pause(duration_s: float) -> None:
        pauses.append(duration_s)

    monkeypatch.setattr(
        httpx2, "AsyncClient", lambda **more: create_client(transport=httpx2.MockTransport(answer), **more)
    )
    monkeypatch.setattr(vllm_realtime, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    recognizer = VllmRealtimeRecognizer("http://router.voice", MODEL)
    running = asyncio.create_task(recognizer.run())
    await asyncio.wait_for(recognizer.wait_until_ready(), BUSY_TIMEOUT_S)
    assert recognizer.max_stream_s == pytest.approx(seconds)
    assert pauses == [1.0, 1.0]
    running.cancel()


async def test_a_hanging_engine_is_stuck_until_it_processes_silence(
    vllm: tuple[Realtime, str], streams: StreamingTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server still accepts sockets and reports success."""
    for name, seconds in (("PROBE_IDLE_TIME_S", 0.2), ("POLL_INTERVAL_S", 0.05), ("PROBE_TIMEOUT_S", 0.5)):
        monkeypatch.setattr(vllm_watch, name, seconds)
    await asyncio.sleep(2)
    assert not streams.is_stuck
    vllm[0].works.clear()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not streams.is_stuck:
            await asyncio.sleep(0.05)
        vllm[0].works.set()
        while streams.is_stuck:
            await asyncio.sleep(0.05)


async def test_no_word_is_lost_or_repeated_between_streams(
    vllm: tuple[Realtime, str], streams: StreamingTranscriber
) -> None:
    utterance, partials = Utterance(0, ChunkKind.PCM16, opened=True), []
    for number, chunk in enumerate(chunks_of(1, speech(90), kind=ChunkKind.PCM16)):
        utterance.add(chunk, 0.0)
        if number % PARTIAL_EVERY == 0:
            partials.append(await said(streams, utterance, Priority.PARTIAL))
    assert await said(streams, utterance) == text(90)
    assert await said(streams, utterance) == text(90), "asked once more"
    lengths = vllm[0].streams
    assert len(lengths) > 4
    assert max(lengths) <= 10 * SAMPLE_RATE_HZ, "longer than the context holds"
    assert sum(lengths) == speech(90).size + (len(lengths) - 1) * OVERLAP_SAMPLES, "each second is heard once"
    assert len(partials[-1].split()) > 75


async def test_speech_after_a_pause_is_transcribed_from_there(
    vllm: tuple[Realtime, str], streams: StreamingTranscriber
) -> None:
    utterance, texts = Utterance(0, ChunkKind.PCM16, opened=True), []
    chunks = chunks_of(1, speech(12), kind=ChunkKind.PCM16)
    half = len(speech(6)) // 320
    for chunk in chunks:
        utterance.add(chunk, 0.0)
        if utterance.frame_count == half:
            texts.append(await said(streams, utterance))
    texts.append(await said(streams, utterance))
    assert texts == [text(6), text(12)]
    assert sum(vllm[0].streams) == speech(12).size


async def test_interrupted_engine_processes_all_audio_again(
    vllm: tuple[Realtime, str], streams: StreamingTranscriber
) -> None:
    utterance = Utterance(0, ChunkKind.PCM16, opened=True)
    for chunk in chunks_of(1, speech(12), kind=ChunkKind.PCM16):
        utterance.add(chunk, 0.0)
    vllm[0].breaks = 3
    assert await said(streams, utterance) == text(12)
    assert len(vllm[0].streams) == 4


async def test_stream_ends_with_its_utterance(vllm: tuple[Realtime, str], streams: StreamingTranscriber) -> None:
    """Another host may take a session in the middle of a sentence."""
    utterance = Utterance(0, ChunkKind.PCM16, opened=True)
    for chunk in chunks_of(1, speech(3), kind=ChunkKind.PCM16):
        utterance.add(chunk, 0.0)
    await said(streams, utterance, Priority.PARTIAL)
    while not vllm[0].streams:
        await asyncio.sleep(0.01)
    assert vllm[0].ended == 0
    del utterance, chunk
    gc.collect()
    while not vllm[0].ended:
        await asyncio.sleep(0.01)


async def test_monologue_is_one_utterance_of_the_engine(
    vllm: tuple[Realtime, str], start: Start, store: Redis, ssrc: int
) -> None:
    """As a process: audio posted as a whole is cut at 28 s, in the middle of a word."""
    vllm[0].tokens = 131072
    engine = start("h1", VOICE_ENGINE="vllm-realtime", VOICE_VLLM_URL=vllm[1])
    await asyncio.to_thread(engine.wait_until_ready)
    await open_session(store, ssrc, end_of_turn_ms=0)
    await engine.say(chunks_of(ssrc, speech(70), kind=ChunkKind.PCM16))
    (final,) = await finals(store, ssrc, 1)
    assert final.text == text(70)


@pytest.mark.parametrize(
    ("before", "behind", "whole"),
    [
        ("one two thr", "two three four", "one two three four"),
        ("One, two. Thr", "wo two three", "One, two three"),
        ("one two", "three four", "one two three four"),
        ("", "one", "one"),
        ("one", "", "one"),
        (
            "we went to the market and bought some apples for my mother yesterday evening",
            "then she was so happy to see it",
            (
                "we went to the market and bought some apples for my mother yesterday evening "
                "then she was so happy to see it"
            ),
        ),
        (
            "I told him that the meeting would be on Friday and the contract is ready now",
            "now we can sign the papers and send it to the lawyer",
            (
                "I told him that the meeting would be on Friday and the contract is ready now "
                "we can sign the papers and send it to the lawyer"
            ),
        ),
        ("it is now it is", "it is good", "it is now it is good"),
        ("the lid is red and heavy", "please put the box down", "the lid is red and heavy please put the box down"),
    ],
)
def test_common_text_of_two_streams_appears_once(before: str, behind: str, whole: str) -> None:
    assert join_texts(before, behind, overlaps=True, is_complete=True) == whole
