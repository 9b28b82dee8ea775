"""Voxtral with the command line of a GPU host, and Whisper: audio is accepted and reused from the cache.

The weights are random, so only the numbers of tokens are meaningful, not the text.
"""

import base64
import io
import math
import struct
import wave
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.blueprint.launch.samples import WHISPER_LOAD, p5
from tests.engines.conftest import Bench, Tokens
from tests.engines.rendered import on_host
from voice_blueprint.contract.network import VLLM
from voice_blueprint.engines.launch.services import create_fleet_launcher
from voice_blueprint.file.model.serving import Quantization
from voice_sandbox.engines.processes import EngineProcess, run_processes

VOXTRAL, WHISPER = "voxtral-small-24b", "whisper-large-v3"
TOKENS_PER_S = 12.5
"""Rate of Voxtral's audio (voice_blueprint/catalog/models.yaml)."""
RATE = 16_000
PATIENCE_S = 300
"""A busy machine needs seconds per token."""


def sound(seconds: float, hz: float = 220.0) -> bytes:
    """Return a WAV file with a tone."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        tone = (round(8000 * math.sin(math.tau * hz * step / RATE)) for step in range(round(seconds * RATE)))
        out.writeframes(b"".join(struct.pack("<h", sample) for sample in tone))
    return file.getvalue()


def spoken(seconds: float, hz: float) -> dict[str, Any]:
    audio = {"data": base64.b64encode(sound(seconds, hz)).decode(), "format": "wav"}
    return {"role": "user", "content": [{"type": "input_audio", "input_audio": audio}]}


def answer(engine: EngineProcess, messages: list[dict[str, Any]]) -> str:
    body = {"model": VOXTRAL, "messages": messages, "max_tokens": 4, "ignore_eos": True, "temperature": 0}
    done = httpx2.post(f"{engine.url}/v1/chat/completions", json=body, timeout=PATIENCE_S).raise_for_status().json()
    return str(done["choices"][0]["message"]["content"])


def transcribe(engine: EngineProcess, model: str, seconds: float) -> httpx2.Response:
    """Send a file like the Whisper engine does to vLLM; random weights would generate until the end of the context."""
    form = {"model": model, "response_format": "json", "language": "en", "max_completion_tokens": "4"}
    files = {"file": ("utterance.wav", sound(seconds), "audio/wav")}
    return httpx2.post(f"{engine.url}/v1/audio/transcriptions", data=form, files=files, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def voxtral(bench: Bench) -> Iterator[EngineProcess]:
    """Start the container of a p5 host."""
    with run_processes(bench.launch_process(on_host("both", "p5"), "p5", VLLM.number)) as (engine,):
        yield engine


@pytest.fixture(scope="module")
def whisper(bench: Bench) -> Iterator[EngineProcess]:
    launcher = create_fleet_launcher(p5(WHISPER, WHISPER_LOAD, Quantization.FP8))
    with run_processes(bench.launch_process(launcher, "whisper", VLLM.number)) as (engine,):
        yield engine


def test_audio_of_a_conversation_is_a_cache_hit(voxtral: EngineProcess) -> None:
    tokens = Tokens(voxtral)
    first = spoken(24, 220)
    said = answer(voxtral, [first])
    asked, cached = tokens.take()
    assert asked >= 24 * TOKENS_PER_S, "every second of audio has its tokens"
    assert cached == 0
    assert answer(voxtral, [first]) == said
    again, cached = tokens.take()
    assert (again, cached > again / 2) == (asked, True)
    answer(voxtral, [first, {"role": "assistant", "content": "hello world"}, spoken(24, 330)])
    second, cached = tokens.take()
    print(f"audio: {asked} tokens, then {second} of which {cached} cached")
    assert second > asked + 24 * TOKENS_PER_S - 1
    assert cached > asked / 2


def test_other_audio_of_the_same_length_is_a_cache_miss(voxtral: EngineProcess) -> None:
    tokens = Tokens(voxtral)
    answer(voxtral, [spoken(24, 440)])
    asked, cached = tokens.take()
    assert asked > 24 * TOKENS_PER_S
    assert cached == 0


def test_more_audio_than_a_conversation_may_contain_is_refused(voxtral: EngineProcess) -> None:
    with pytest.raises(httpx2.HTTPStatusError) as refused:
        answer(voxtral, [spoken(1, 200 + each) for each in range(6)])
    assert refused.value.response.status_code == 400
    assert "At most 5 audio" in refused.value.response.text


def test_voxtral_transcribes(voxtral: EngineProcess) -> None:
    assert isinstance(transcribe(voxtral, VOXTRAL, 3).raise_for_status().json()["text"], str)


def test_whisper_transcribes_more_than_its_window(whisper: EngineProcess) -> None:
    assert isinstance(transcribe(whisper, WHISPER, 40).raise_for_status().json()["text"], str)
