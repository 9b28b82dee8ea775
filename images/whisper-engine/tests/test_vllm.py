"""Utterances beside vLLM: a small server speaks its API, and a real engine posts to it."""

import asyncio
import email
import email.policy
import http.server
import io
import json
import threading
import wave
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import Start
from engine_host import chunks_of, finals, first_sentence, open_session
from redis.asyncio import Redis

from blueprint.contract.chunk import ChunkKind
from images.conftest import PATIENCE_S
from voice_whisper import beside_vllm
from voice_whisper.beside_vllm import BesideVllm
from voice_whisper.job import GivenUpError, Wanted
from voice_whisper.utterance import Utterance
from voice_whisper.window import FRAME_MS

MODEL = "openai/whisper-large-v3"
TURN_MS = 1500


class _Vllm(http.server.BaseHTTPRequestHandler):
    """Answers what it is told to, and keeps what it was sent."""

    answers: ClassVar[list[tuple[int, Any]]]
    forms: ClassVar[list[dict[Any, Any]]]
    models: ClassVar[list[str]]

    def do_GET(self) -> None:
        self._answer(200, {"data": [{"id": model} for model in self.models]})

    def do_POST(self) -> None:
        assert self.path == "/v1/audio/transcriptions"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = email.message_from_bytes(head + body, policy=email.policy.HTTP).iter_parts()
        form = {part.get_param("name", header="content-disposition"): part.get_content() for part in parts}
        self.forms.append(form)
        self._answer(*self.answers.pop(0))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Vllm:
    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.forms: list[dict[str, Any]] = []
        self.models = [MODEL]
        handler = type("Handler", (_Vllm,), {"answers": self.answers, "forms": self.forms, "models": self.models})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vllm]:
    monkeypatch.setattr(beside_vllm, "RETRY_PAUSE_S", 0.01)
    found = Vllm()
    yield found
    found.stop()


def utterance() -> Utterance:
    found = Utterance(0, ChunkKind.PCM16, opened=True)
    for chunk in chunks_of(1, first_sentence(), kind=ChunkKind.PCM16):
        found.add(chunk, 0.0)
    return found


async def said(vllm: Vllm, wanted: Wanted = Wanted.FINAL, model: str = "") -> str:
    transcriber = BesideVllm(vllm.address, model)
    running = asyncio.create_task(transcriber.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await transcriber.ready()
            heard = await transcriber.transcribe(utterance(), "en", wanted)
            assert heard.stages_ms.keys() == {"queue", "decode"}
            return heard.text
    finally:
        running.cancel()


async def test_utterance_is_posted_as_it_was_spoken(vllm: Vllm) -> None:
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


async def test_of_a_routers_models_the_one_that_was_named_is_asked(vllm: Vllm) -> None:
    """A router tells of every service's, and of none before the first engine is ready."""
    vllm.models[:] = []
    vllm.answers.append((200, {"text": "One moment."}))
    speaking = asyncio.create_task(said(vllm, model=MODEL))
    await asyncio.sleep(0)
    vllm.models[:] = ["qwen3-8b", MODEL]
    assert await speaking == "One moment."
    assert str(vllm.forms[0]["model"]).strip() == MODEL


async def test_final_waits_for_vllm_to_come_back_and_a_partial_does_not(vllm: Vllm) -> None:
    vllm.answers += [(503, {}), (500, {}), (200, {"text": "yes"})]
    assert await said(vllm) == "yes"
    vllm.answers += [(503, {}), (200, {"text": "yes"})]
    with pytest.raises(GivenUpError, match="503"):
        await said(vllm, Wanted.PARTIAL)


@pytest.mark.parametrize(("answer", "why"), [((400, {"error": "no audio"}), "400.*no audio"), ((200, []), "no text")])
async def test_refusal_is_an_answer(vllm: Vllm, answer: tuple[int, Any], why: str) -> None:
    vllm.answers.append(answer)
    with pytest.raises(GivenUpError, match=why):
        await said(vllm)
    assert len(vllm.forms) == 1


async def test_silence_ends_a_sentence_sooner_than_half_of_one(
    vllm: Vllm, start: Start, store: Redis, ssrc: int
) -> None:
    """The text decides: an engine as a process, and a server that says whether the sentence is whole."""
    engine = start("h1", VOICE_ENGINE="vllm", VOICE_VLLM_URL=vllm.address)
    engine.wait_ready()
    waited_ms = []
    for place, text in enumerate(("That is all.", "I would like to")):
        await open_session(store, ssrc + place, end_of_turn_ms=TURN_MS)
        vllm.answers += [(200, {"text": text})] * 20
        await engine.say(chunks_of(ssrc + place, first_sentence(), kind=ChunkKind.PCM16))
        (final,) = await finals(store, ssrc + place, 1)
        assert final.text == text
        waited_ms.append(sum(final.stages_ms.values()))
        vllm.answers.clear()
    # Silence is counted in frames, and the first may be over for a part of one when the clock of the stages begins.
    assert TURN_MS - FRAME_MS <= waited_ms[0] < 2 * TURN_MS - FRAME_MS <= waited_ms[1]
