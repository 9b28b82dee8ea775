"""Utterances through vLLM: a small server implements its API, and a real engine posts to it."""

import asyncio
import contextlib
import email
import email.policy
import http.server
import io
import json
import threading
import time
import wave
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import httpx2
import numpy as np
import pytest
from conftest import Start
from engine_host import chunks_of, cut, finals, first_sentence, open_session
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S, until
from voice_blueprint.contract.chunk import ChunkKind
from voice_blueprint.contract.network import Tier
from voice_runtime.hosts import HostRegistry
from voice_whisper import streaming, vllm_backend, vllm_watch
from voice_whisper.job import JobFailedError, Priority, WindowTranscript
from voice_whisper.session_audio import SessionAudio
from voice_whisper.utterance import Utterance
from voice_whisper.vllm_backend import VllmTranscriber
from voice_whisper.vllm_watch import VllmMonitor, is_loopback_url
from voice_whisper.window import FRAME_MS

MODEL = "openai/whisper-large-v3"
TURN_MS = 1500


class _Vllm(http.server.BaseHTTPRequestHandler):
    """Returns prepared responses, and records the requests."""

    answers: ClassVar[list[tuple[int, Any]]]
    forms: ClassVar[list[dict[Any, Any]]]
    models: ClassVar[list[str]]
    works: ClassVar[threading.Event]
    silence: ClassVar[list[tuple[int, Any]]]

    def do_GET(self) -> None:
        self._answer(200, {"data": [{"id": model} for model in self.models]})

    def do_POST(self) -> None:
        assert self.path == "/v1/audio/transcriptions"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = list(email.message_from_bytes(head + body, policy=email.policy.HTTP).iter_parts())
        form = {part.get_param("name", header="content-disposition"): part.get_content() for part in parts}
        self.works.wait(BUSY_TIMEOUT_S)
        if any(part.get_filename() == "silence.wav" for part in parts):
            self._answer(*self.silence[0])
            return
        self.forms.append(form)
        self._answer(*self.answers.pop(0))

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Vllm:
    """The server and its recorded requests.

    Attributes:
        works: When cleared, the engine core hangs: requests are accepted and never answered.
    """

    def __init__(self) -> None:
        self.works = threading.Event()
        self.works.set()
        self.silence: list[tuple[int, Any]] = [(200, {"text": ""})]
        self.answers: list[tuple[int, Any]] = []
        self.forms: list[dict[str, Any]] = []
        self.models = [MODEL]
        state = {
            "answers": self.answers,
            "forms": self.forms,
            "models": self.models,
            "works": self.works,
            "silence": self.silence,
        }
        handler = type("Handler", (_Vllm,), state)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self.works.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vllm]:
    monkeypatch.setattr(vllm_backend, "RETRY_PAUSE_S", 0.01)
    found = Vllm()
    yield found
    found.stop()


def utterance() -> Utterance:
    found = Utterance(0, ChunkKind.PCM16, opened=True)
    for chunk in chunks_of(1, first_sentence(), kind=ChunkKind.PCM16):
        found.add(chunk, 0.0)
    return found


async def said(vllm: Vllm, wanted: Priority = Priority.FINAL, model: str = "") -> str:
    transcriber = VllmTranscriber(vllm.address, model)
    running = asyncio.create_task(transcriber.run())
    try:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            await transcriber.wait_until_ready()
            heard = await transcriber.transcribe(utterance(), "en", wanted)
            assert heard.stages_ms.keys() == {"queue", "decode"}
            return heard.text
    finally:
        running.cancel()


async def test_utterance_is_posted_unchanged(vllm: Vllm) -> None:
    vllm.answers.append((200, {"text": " Please hold the line. "}))
    assert await said(vllm) == "Please hold the line."
    (form,) = vllm.forms
    assert {name: str(form[name]).strip() for name in ("model", "language", "response_format")} == {
        "model": MODEL,
        "language": "en",
        "response_format": "json",
    }
    with wave.open(io.BytesIO(form["file"])) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        np.testing.assert_array_equal(np.frombuffer(file.readframes(10**6), "<i2"), first_sentence())


async def test_the_configured_model_of_a_router_is_used(vllm: Vllm) -> None:
    """A router lists the models of every service, and none before the first engine is ready."""
    vllm.models[:] = []
    vllm.answers.append((200, {"text": "One moment."}))
    speaking = asyncio.create_task(said(vllm, model=MODEL))
    await asyncio.sleep(0)
    vllm.models[:] = ["qwen3-8b", "llama-3", MODEL]
    assert await speaking == "One moment."
    assert str(vllm.forms[0]["model"]).strip() == MODEL


@pytest.mark.parametrize("module", [vllm_backend, streaming])
def test_a_final_waits_a_minute_for_vllm_to_restart(module: ModuleType) -> None:
    assert module.RETRY_PAUSE_S * module.MAX_ATTEMPTS == 60


async def test_finals_wait_for_vllm_to_recover_but_partials_do_not(vllm: Vllm) -> None:
    vllm.answers += [(503, {}), (500, {}), (200, {"text": "yes"})]
    assert await said(vllm) == "yes"
    vllm.answers += [(503, {}), (200, {"text": "yes"})]
    with pytest.raises(JobFailedError, match="503"):
        await said(vllm, Priority.PARTIAL)


@pytest.mark.parametrize(("answer", "why"), [((400, {"error": "no audio"}), "400.*no audio"), ((200, []), "no text")])
async def test_an_error_response_is_not_retried(vllm: Vllm, answer: tuple[int, Any], why: str) -> None:
    vllm.answers.append(answer)
    with pytest.raises(JobFailedError, match=why):
        await said(vllm)
    assert len(vllm.forms) == 1


def client(answer: Callable[[httpx2.Request], Coroutine[None, None, httpx2.Response]]) -> VllmTranscriber:
    """Return a transcriber whose requests a function answers."""
    found = VllmTranscriber("http://vllm.voice")
    found._client = httpx2.AsyncClient(base_url="http://vllm.voice", transport=httpx2.MockTransport(answer))
    return found


def brief() -> Utterance:
    found = Utterance(0, ChunkKind.PCM16, opened=True)
    found.add(chunks_of(1, first_sentence()[:1600], kind=ChunkKind.PCM16)[0], 0.0)
    return found


async def test_sixty_four_utterances_are_transcribed_at_a_time_and_others_wait() -> None:
    requests, works = [], asyncio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        await works.wait()
        return httpx2.Response(200, json={"text": "yes"})

    transcriber = client(answer)
    assert transcriber.queue_depths == (0, 0)
    speaking = [asyncio.create_task(transcriber.transcribe(brief(), "en", Priority.FINAL)) for _ in range(66)]
    for _ in range(500):
        await asyncio.sleep(0)
    assert (len(requests), transcriber.queue_depths) == (64, (2, 0))
    works.set()
    assert {heard.text for heard in await asyncio.gather(*speaking)} == {"yes"}
    assert transcriber.queue_depths == (0, 0)


async def test_the_stages_of_a_transcript_are_the_wait_and_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"text": "yes"})

    monkeypatch.setattr(vllm_backend, "time", SimpleNamespace(monotonic=iter([10.0, 10.25, 12.0]).__next__))
    heard = await client(answer).transcribe(brief(), None, Priority.PARTIAL)
    assert heard == WindowTranscript("yes", None, {"queue": 250.0, "decode": 1750.0}, 1.75)


@pytest.mark.parametrize(
    ("status", "is_answer"),
    [(200, True), (400, True), (404, True), (431, True), (499, True), (429, False), (500, False), (503, False)],
)
async def test_an_answer_to_silence_shows_that_vllm_works(status: int, *, is_answer: bool) -> None:
    """Of a second, for one token. A model may refuse silence, which differs from a full queue or a failure."""
    bodies = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(await request.aread())
        return httpx2.Response(status, json={"error": "why"})

    with contextlib.nullcontext() if is_answer else pytest.raises(JobFailedError, match=f"vLLM: {status} .*why"):
        await client(answer)._probe()
    _, _, wav = bodies[0].partition(b"RIFF")
    with wave.open(io.BytesIO(b"RIFF" + wav)) as file:
        assert (file.getframerate(), file.getnframes()) == (16000, 16000)
        assert not any(file.readframes(16000))


@pytest.mark.parametrize(
    ("error", "why"), [(httpx2.ConnectError("refused"), "refused"), (httpx2.ReadTimeout(""), "ReadTimeout")]
)
async def test_a_failed_request_is_reported_with_its_text_or_kind(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    async def answer(_: httpx2.Request) -> httpx2.Response:
        raise error

    monkeypatch.setattr(vllm_backend, "RETRY_PAUSE_S", 0.0)
    with pytest.raises(JobFailedError, match=f"^vLLM: {why}$"):
        await client(answer).transcribe(brief(), None, Priority.PARTIAL)


def test_speech_after_a_commit_is_transcribed_alone() -> None:
    """Without word times, words that were transcribed twice could not be found."""
    audio = SessionAudio(overlap_frames=VllmTranscriber.overlap_frames)
    for chunk in cut(1, first_sentence(), 101, kind=ChunkKind.PCM16):
        audio.add(chunk, 0.0)
    _, after = audio.pop_finished(0.0)
    assert (after.start, after.begin, after.split_from) == (101, 101, None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_watch, "PROBE_IDLE_TIME_S", 0.2)
    monkeypatch.setattr(vllm_watch, "POLL_INTERVAL_S", 0.05)
    monkeypatch.setattr(vllm_watch, "PROBE_TIMEOUT_S", 0.5)


@pytest.mark.usefixtures("impatient")
async def test_a_hanging_vllm_is_stuck_until_it_responds(vllm: Vllm) -> None:
    transcriber = VllmTranscriber(vllm.address)
    running = asyncio.create_task(transcriber.run())
    await transcriber.wait_until_ready()
    await asyncio.sleep(1)
    assert not transcriber.is_stuck, "silence is answered"
    vllm.works.clear()
    await until(lambda: transcriber.is_stuck)
    vllm.works.set()
    await until(lambda: not transcriber.is_stuck)
    running.cancel()


@pytest.mark.usefixtures("impatient")
async def test_a_vllm_that_is_busy_is_not_stuck(caplog: pytest.LogCaptureFixture) -> None:
    """Silence waits in its queue indefinitely, while earlier requests are answered."""
    watch = VllmMonitor(lambda: asyncio.sleep(BUSY_TIMEOUT_S), (), "http://127.0.0.1:8000")
    running = asyncio.create_task(watch.run())
    for _ in range(40):
        await asyncio.sleep(0.1)
        watch.record_response()
        assert not watch.is_stuck
    await until(lambda: watch.is_stuck)
    running.cancel()
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["it hangs"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("status", "stuck"), [(500, True), (503, True), (429, True), (404, False), (400, False)])
async def test_vllms_responses_to_silence(vllm: Vllm, status: int, stuck: bool) -> None:
    """A shutdown answers 500; a full queue counts only while nothing else is answered. A model may refuse silence."""
    vllm.silence[:] = [(status, {})]
    transcriber = VllmTranscriber(vllm.address)
    running = asyncio.create_task(transcriber.run())
    await transcriber.wait_until_ready()
    if stuck:
        await until(lambda: transcriber.is_stuck)
    else:
        await asyncio.sleep(1.5)
        assert not transcriber.is_stuck
    running.cancel()


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000", True),
        ("http://[::1]:8000", True),
        ("http://router.voice:8080", False),
        ("http://asr.voice:8080", False),
        ("http://10.0.0.9:8000", False),
        ("/v1", False),
    ],
)
def test_only_a_local_vllm_is_watched(address: str, local: bool) -> None:
    """Behind a router, a hanging engine is one of several, and the router excludes it."""
    assert is_loopback_url(address) is local


class HangingError(Exception):
    """Raised by a probe that receives no response; its timeout passes."""


class Clock:
    """Time that passes while the monitor waits, from shortly after the boot."""

    def __init__(self) -> None:
        self.now = 4.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert self.now < BUSY_TIMEOUT_S
        self.now += seconds

    @contextlib.asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        try:
            yield
        except HangingError:
            self.now += seconds
            raise TimeoutError from None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(vllm_watch, "time", found)
    monkeypatch.setattr(vllm_watch, "asyncio", found)
    return found


async def watched(clock: Clock, *outcomes: Exception | None) -> list[tuple[float, bool]]:
    """Return the times of probes with these outcomes, and whether vLLM counts as stuck at each of them."""
    probes: list[tuple[float, bool]] = []
    remaining = iter(outcomes)

    async def probe() -> None:
        probes.append((clock.now, watch.is_stuck))
        if outcome := next(remaining, EOFError()):
            raise outcome

    watch = VllmMonitor(probe, (JobFailedError,), "http://127.0.0.1:8000")
    assert not watch.is_stuck
    with pytest.raises(EOFError):
        await watch.run()
    return probes


async def test_three_probes_without_a_response_show_that_vllm_is_stuck(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A probe follows 5 s without a response and has 4 s, so vLLM is stuck about 20 s after its last response."""
    probes = await watched(clock, *[HangingError()] * 5)
    assert probes == [(9, False), (14, False), (19, False), (24, True), (29, True), (34, True)]
    assert caplog.messages == ["no answer of vLLM for 19 s: it hangs"]


async def test_a_response_to_a_probe_is_counted_like_any_other(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    probes = await watched(
        clock, HangingError(), HangingError(), None, HangingError(), HangingError(), HangingError(), None
    )
    assert probes == [
        *((9, False), (14, False), (19, False)),
        *((24, False), (29, False), (34, False), (39, True)),
        (44, False),
    ]
    assert caplog.messages == ["no answer of vLLM for 19 s: it hangs", "vLLM answers again"]


async def test_refused_probes_are_repeated_each_second(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    probes = await watched(clock, *[JobFailedError("vLLM: 503")] * 3)
    assert probes == [(9, False), (10, False), (11, False), (12, True)]
    assert caplog.messages == ["no answer of vLLM for 7 s: vLLM: 503"]


async def test_a_probe_that_another_response_overtakes_does_not_count(clock: Clock) -> None:
    stuck: list[bool] = []

    async def probe() -> None:
        stuck.append(watch.is_stuck)
        if len(stuck) == 5:
            raise EOFError
        if len(stuck) == 1:
            clock.now += 1
            watch.record_response()
        raise HangingError

    watch = VllmMonitor(probe, (), "http://127.0.0.1:8000")
    with pytest.raises(EOFError):
        await watch.run()
    assert stuck == [False, False, False, False, True]


async def test_a_router_is_not_probed(clock: Clock) -> None:
    async def probe() -> None:
        raise AssertionError

    await VllmMonitor(probe, (), "http://router.voice:8080").run()
    assert clock.now == 4.0


async def test_sessions_leave_a_host_with_a_hanging_vllm_until_it_recovers(
    vllm: Vllm, start: Start, store: Redis, ssrc: int
) -> None:
    other = Vllm()
    ill = start("ill", VOICE_ENGINE="vllm", VOICE_VLLM_URL=vllm.address)
    healthy = start("healthy", "127.0.0.2", VOICE_ENGINE="vllm", VOICE_VLLM_URL=other.address)
    for host in (ill, healthy):
        host.wait_until_ready()
    registry = HostRegistry(store, Tier.ASR)
    await until(lambda: ill.metrics() != {} and healthy.metrics() != {})
    vllm.works.clear()
    other.answers += [(200, {"text": "That is all."})] * 50
    await open_session(store, ssrc)
    await ill.say(chunks_of(ssrc, first_sentence(), kind=ChunkKind.PCM16))
    await until(lambda: ill.get("/healthz") is None)
    assert ill.metrics()["EngineStuck"] == 1
    (final,) = await finals(store, ssrc, 1)
    assert final.text == "That is all.", "the other host found the session in the journal"
    assert [host.id for host in await registry.read_live_hosts()] == ["healthy"]
    assert healthy.counted("adopted") == 1
    vllm.works.set()
    await until(lambda: ill.get("/healthz") == b"ok")
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while {host.id for host in await registry.read_live_hosts()} != {"ill", "healthy"}:
        assert time.monotonic() < limit
        await asyncio.sleep(0.1)
    other.stop()


async def test_silence_ends_complete_sentences_sooner_than_incomplete_ones(
    vllm: Vllm, start: Start, store: Redis, ssrc: int
) -> None:
    """The text decides: an engine as a process, and a server that reports whether the sentence is complete."""
    engine = start("h1", VOICE_ENGINE="vllm", VOICE_VLLM_URL=vllm.address)
    engine.wait_until_ready()
    waited_ms = []
    for place, text in enumerate(("That is all.", "I would like to")):
        await open_session(store, ssrc + place, end_of_turn_ms=TURN_MS)
        vllm.answers += [(200, {"text": text})] * 20
        await engine.say(chunks_of(ssrc + place, first_sentence(), kind=ChunkKind.PCM16))
        (final,) = await finals(store, ssrc + place, 1)
        assert final.text == text
        waited_ms.append(sum(final.stages_ms.values()))
        vllm.answers.clear()
    # Silence is counted in frames, and part of the first may have passed when the stages' clock starts.
    assert TURN_MS - FRAME_MS <= waited_ms[0] < 2 * TURN_MS - FRAME_MS <= waited_ms[1]
