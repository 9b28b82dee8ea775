"""Transcription by vLLM on the same host, or by several vLLM servers through a router."""

import asyncio
import io
import logging
import time
import wave
from collections.abc import Mapping

import httpx2

from voice_blueprint.contract.chunk import ChunkKind
from voice_blueprint.contract.network import VLLM
from voice_runtime.features import SAMPLE_RATE_HZ
from voice_whisper.job import JobFailedError, Priority, WindowTranscript
from voice_whisper.utterance import Utterance
from voice_whisper.vllm_watch import VllmMonitor
from voice_whisper.window import MAX_UTTERANCE_FRAMES

MAX_CONCURRENT_REQUESTS = 64
"""Maximum number of concurrent requests, which vLLM batches. Further requests wait here."""
REQUEST_TIMEOUT_S = 60.0
RETRY_PAUSE_S = 1.0
MAX_ATTEMPTS = 60
"""Maximum number of attempts, which cover a restart of vLLM. After the last attempt, an utterance is abandoned."""
SILENCE_PCM = bytes(2 * SAMPLE_RATE_HZ)

log = logging.getLogger(__name__)


class VllmTranscriber:
    """Client for vLLM's OpenAI-compatible API. vLLM encodes and decodes in one process, so there is one queue.

    Args:
        address: Address of vLLM, or of a router.
        model: Name of the transcription model; empty if there is only one model.
    """

    max_utterance_frames = MAX_UTTERANCE_FRAMES
    overlap_frames = 0

    def __init__(self, address: str = f"http://127.0.0.1:{VLLM.number}", model: str = "") -> None:
        self.supported_kinds = frozenset({ChunkKind.PCM16})
        self.languages: tuple[str, ...] = ()
        self.restarts_by_role: dict[str, int] = {}
        self._client = httpx2.AsyncClient(base_url=address, timeout=REQUEST_TIMEOUT_S)
        self._places = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._waiting = 0
        self._expected_model, self._model = model, ""
        self._ready = asyncio.Event()
        self._watch = VllmMonitor(self._probe, (httpx2.HTTPError, JobFailedError), address)

    @property
    def is_stuck(self) -> bool:
        """Whether vLLM no longer responds."""
        return self._watch.is_stuck

    @property
    def queue_depths(self) -> tuple[int, int]:
        """Number of utterances that wait for vLLM."""
        return self._waiting, 0

    async def run(self) -> None:
        """Wait for vLLM, query its model, and maintain the connection until cancelled."""
        async with self._client:
            while not self._model:
                try:
                    answer = await self._client.get("/v1/models")
                    names = [each["id"] for each in answer.raise_for_status().json()["data"]]
                    self._model = next(
                        name for name in names if not self._expected_model or name == self._expected_model
                    )
                except (httpx2.HTTPError, KeyError, StopIteration, ValueError):
                    await asyncio.sleep(RETRY_PAUSE_S)
            self._ready.set()
            await self._watch.run()
            await asyncio.Event().wait()

    async def wait_until_ready(self) -> None:
        """Return once vLLM responds."""
        await self._ready.wait()

    async def transcribe(
        self, utterance: Utterance, language: str | None, priority: Priority, prompt: str = ""
    ) -> WindowTranscript:
        """Return the transcript of an utterance.

        A partial is tried once. Other transcripts are retried until vLLM is available again.

        Raises:
            JobFailedError: vLLM rejects the utterance, or remains unavailable.
        """
        wav, requested_at = _encode_wav(utterance.decode_samples().tobytes()), time.monotonic()
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            started_at = time.monotonic()
            attempts = 1 if priority is Priority.PARTIAL else MAX_ATTEMPTS
            text = await self._post_audio(wav, {"language": language, "prompt": prompt}, attempts)
            duration_s = time.monotonic() - started_at
        finally:
            self._places.release()
        stages_ms = {"queue": 1000 * (started_at - requested_at), "decode": 1000 * duration_s}
        return WindowTranscript(text, language, stages_ms, duration_s)

    async def _post_audio(self, wav: bytes, hints: Mapping[str, str | None], attempts: int) -> str:
        form = {"model": self._model, "response_format": "json"}
        form |= {name: hint for name, hint in hints.items() if hint}
        problem = ""
        for _ in range(attempts):
            try:
                answer = await self._client.post(
                    "/v1/audio/transcriptions", data=form, files={"file": ("utterance.wav", wav, "audio/wav")}
                )
            except httpx2.HTTPError as error:
                problem = str(error) or type(error).__name__
            else:
                if answer.is_success:
                    self._watch.record_response()
                    return _parse_response_text(answer)
                problem = f"{answer.status_code} {answer.text[:200]}"
                if answer.is_client_error:
                    break
            await asyncio.sleep(RETRY_PAUSE_S)
        raise JobFailedError(f"vLLM: {problem}")

    async def _probe(self) -> None:
        """Request a transcript of a short silence.

        Raises:
            JobFailedError: vLLM accepts no requests. Any other error of the request counts as a response.
            httpx2.HTTPError: vLLM did not respond.
        """
        form = {"model": self._model, "language": "en", "max_completion_tokens": "1"}
        files = {"file": ("silence.wav", _encode_wav(SILENCE_PCM), "audio/wav")}
        answer = await self._client.post("/v1/audio/transcriptions", data=form, files=files)
        if answer.is_server_error or answer.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            raise JobFailedError(f"vLLM: {answer.status_code} {answer.text[:200]}")


def _parse_response_text(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["text"]).strip()
    except (ValueError, KeyError, TypeError):
        raise JobFailedError(f"vLLM's answer holds no text: {answer.text[:200]!r}") from None


def _encode_wav(samples: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(SAMPLE_RATE_HZ)
        sound.writeframes(samples)
    return file.getvalue()
