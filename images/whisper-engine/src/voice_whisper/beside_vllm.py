"""Utterances posted to vLLM: that of the same host where the fleet runs one, or a router before several."""

import asyncio
import io
import logging
import time
import wave

import httpx2

from blueprint.contract.chunk import ChunkKind
from blueprint.contract.network import VLLM
from voice_runtime.features import SAMPLE_RATE
from voice_whisper.job import GivenUpError, Heard, Wanted
from voice_whisper.utterance import Utterance
from voice_whisper.window import LONGEST_FRAMES

REQUESTS = 64
"""At a time; vLLM batches them. More wait here."""
TIMEOUT_S = 60.0
RETRY_PAUSE_S = 1.0
MOST_ATTEMPTS = 60
"""A restart of vLLM is waited for; then an utterance is given up."""

log = logging.getLogger(__name__)


class BesideVllm:
    """vLLM's OpenAI-compatible API. It encodes and decodes in one process, so there is one queue.

    Args:
        address: Of vLLM, or of a router.
        model: Name of the model that transcribes; empty: the only one there.
    """

    longest_frames = LONGEST_FRAMES

    def __init__(self, address: str = f"http://127.0.0.1:{VLLM.number}", model: str = "") -> None:
        self.kinds = frozenset({ChunkKind.PCM16})
        self.languages: tuple[str, ...] = ()
        self.restarts: dict[str, int] = {}
        self._client = httpx2.AsyncClient(base_url=address, timeout=TIMEOUT_S)
        self._places = asyncio.Semaphore(REQUESTS)
        self._waiting = 0
        self._wanted, self._model = model, ""
        self._ready = asyncio.Event()

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances that wait for vLLM."""
        return self._waiting, 0

    async def run(self) -> None:
        """Wait for vLLM, ask it for its model, and keep the connection until cancelled."""
        async with self._client:
            while not self._model:
                try:
                    answer = await self._client.get("/v1/models")
                    names = [each["id"] for each in answer.raise_for_status().json()["data"]]
                    self._model = next(name for name in names if not self._wanted or name == self._wanted)
                except (httpx2.HTTPError, KeyError, StopIteration, ValueError):
                    await asyncio.sleep(RETRY_PAUSE_S)
            self._ready.set()
            await asyncio.Event().wait()

    async def ready(self) -> None:
        """Return when vLLM answers."""
        await self._ready.wait()

    async def transcribe(self, utterance: Utterance, language: str | None, wanted: Wanted) -> Heard:
        """Return what an utterance says; a partial is tried once, all else until vLLM is back.

        Raises:
            GivenUpError: vLLM refuses it, or stays away.
        """
        sound, asked_at = _wave(utterance), time.monotonic()
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            since = time.monotonic()
            text = await self._post(sound, language, attempts=1 if wanted is Wanted.PARTIAL else MOST_ATTEMPTS)
            took_s = time.monotonic() - since
        finally:
            self._places.release()
        stages_ms = {"queue": 1000 * (since - asked_at), "decode": 1000 * took_s}
        return Heard(text, language, stages_ms, took_s)

    async def _post(self, sound: bytes, language: str | None, *, attempts: int) -> str:
        form = {"model": self._model, "response_format": "json"} | ({"language": language} if language else {})
        why = ""
        for _ in range(attempts):
            try:
                answer = await self._client.post(
                    "/v1/audio/transcriptions", data=form, files={"file": ("utterance.wav", sound, "audio/wav")}
                )
            except httpx2.HTTPError as error:
                why = str(error) or type(error).__name__
            else:
                if answer.is_success:
                    return _text(answer)
                why = f"{answer.status_code} {answer.text[:200]}"
                if answer.is_client_error:
                    break
            await asyncio.sleep(RETRY_PAUSE_S)
        raise GivenUpError(f"vLLM: {why}")


def _text(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["text"]).strip()
    except (ValueError, KeyError, TypeError):
        raise GivenUpError(f"vLLM's answer holds no text: {answer.text[:200]!r}") from None


def _wave(utterance: Utterance) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(SAMPLE_RATE)
        sound.writeframes(utterance.samples().tobytes())
    return file.getvalue()
