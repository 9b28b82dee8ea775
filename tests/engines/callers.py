"""Clients of an engine's OpenAI-compatible API, and counters of the engine's metrics."""

import base64
import io
import math
import struct
import wave
from dataclasses import dataclass
from typing import Any

import httpx2

from voice_sandbox.engines.processes import EngineProcess

REQUEST_TIMEOUT_S = 300.0
"""Timeout of one request: responses take tens of milliseconds on idle cores, and many seconds on busy ones."""
SAMPLE_RATE = 16000
TRANSFERRED_BYTES = "vllm:nixl_bytes_transferred_sum"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
EXTERNAL_HITS = "vllm:external_prefix_cache_hits_total"
PROMPT_TOKENS, GENERATION_TOKENS = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"


@dataclass(frozen=True)
class Caller:
    """Sends requests to one address.

    Attributes:
        salt: Cache salt: prompts with another salt are never cache hits.
    """

    url: str
    model: str
    salt: str | None = None

    def complete(self, prompt: str, tokens: int = 8, timeout_s: float = REQUEST_TIMEOUT_S) -> httpx2.Response:
        """Request a completion of exactly this many tokens."""
        return self._post("/v1/completions", {"prompt": prompt}, tokens, timeout_s)

    def chat(self, messages: list[dict[str, Any]], tokens: int = 8) -> httpx2.Response:
        """Request a response of exactly this many tokens."""
        return self._post("/v1/chat/completions", {"messages": messages}, tokens, REQUEST_TIMEOUT_S)

    def transcribe(self, recording: bytes, tokens: int = 4) -> httpx2.Response:
        """Upload a recording as a form, with a token limit, since a model with random weights would never stop."""
        form = {"model": self.model, "language": "en", "max_completion_tokens": str(tokens)}
        files = {"file": ("speech.wav", recording, "audio/wav")}
        return httpx2.post(f"{self.url}/v1/audio/transcriptions", data=form, files=files, timeout=REQUEST_TIMEOUT_S)

    def prefill(self, prompt: str) -> dict[str, Any]:
        """Let a prefill engine process a prompt like the P/D router; return the location of its KV cache."""
        body = {"prompt": prompt, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
        answer = self._post("/v1/completions", body, 1, REQUEST_TIMEOUT_S).raise_for_status().json()
        parameters: dict[str, Any] = answer["kv_transfer_params"]
        return parameters

    def decode(self, prompt: str, parameters: dict[str, Any], tokens: int = 8) -> httpx2.Response:
        """Let a decode engine fetch the KV cache of a prompt, and continue."""
        body = {"prompt": prompt, "kv_transfer_params": parameters}
        return self._post("/v1/completions", body, tokens, REQUEST_TIMEOUT_S)

    def _post(self, path: str, question: dict[str, Any], tokens: int, timeout_s: float) -> httpx2.Response:
        body = {"model": self.model, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **question}
        if self.salt:
            body["cache_salt"] = self.salt
        return httpx2.post(f"{self.url}{path}", json=body, timeout=timeout_s)


def user_message(text: str, *recordings: bytes) -> dict[str, Any]:
    """Return a user message with recordings and a question about them."""
    spoken = [{"type": "input_audio", "input_audio": {"data": _base64(each), "format": "wav"}} for each in recordings]
    return {"role": "user", "content": [*spoken, {"type": "text", "text": text}]}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def tone(hertz: float, seconds: float = 6.0) -> bytes:
    """Return a WAV file with a tone."""
    count = int(SAMPLE_RATE * seconds)
    samples = (round(8000 * math.sin(2 * math.pi * hertz * at / SAMPLE_RATE)) for at in range(count))
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(SAMPLE_RATE)
        written.writeframes(struct.pack(f"<{count}h", *samples))
    return file.getvalue()


class Growth:
    """Increases of an engine's counters since the last reading."""

    def __init__(self, engine: EngineProcess) -> None:
        self._engine = engine
        self._before = engine.fetch_metrics()

    def take(self) -> dict[str, int]:
        """Return the increase of every series since the last call; an unpublished series counts as 0."""
        before, self._before = self._before, self._engine.fetch_metrics()
        return {name: round(value - before.get(name, 0)) for name, value in self._before.items()}
