"""vLLM's ``/v1/realtime``, for models with streaming audio input: Voxtral Realtime.

Messages follow vLLM's ``entrypoints/openai/realtime``. The first commit starts the processing, and a final commit ends
it. A language cannot be specified.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable

import httpx2
import numpy as np
import websockets
from numpy.typing import NDArray

from voice_runtime.features import SAMPLE_RATE_HZ
from voice_whisper.streaming import StreamError
from voice_whisper.vllm_watch import VllmMonitor

TOKENS_PER_S = 12.5
"""Voxtral's audio tokens per second, each with a text token (see its model card)."""
USABLE_CONTEXT_FRACTION = 0.8
"""Usable share of a context. The rest is reserved for the start of a stream, and for the text at its end."""
MAX_STREAM_S = 60.0
"""Maximum duration of a stream, since a longer one still processes old audio."""
RESPONSE_TIMEOUT_S = 60.0
RETRY_PAUSE_S = 1.0
SILENCE_SAMPLES = np.zeros(SAMPLE_RATE_HZ, np.int16)
CONNECTION_ERRORS = (OSError, websockets.WebSocketException, TimeoutError, ValueError, KeyError)


class VllmRealtimeRecognizer:
    """A vLLM server with a model that has streaming audio input.

    Args:
        address: Address of the HTTP server.
        model: Name of the model; empty if there is only one model.
    """

    def __init__(self, address: str, model: str = "") -> None:
        self.max_stream_s = MAX_STREAM_S
        self._address, self._model = address, model
        self._ready = asyncio.Event()
        self._watch = VllmMonitor(self._probe, (StreamError,), address)

    @property
    def is_stuck(self) -> bool:
        """Whether vLLM no longer responds."""
        return self._watch.is_stuck

    async def run(self) -> None:
        """Wait for vLLM, query its model and context length, and monitor it until cancelled."""
        async with httpx2.AsyncClient(base_url=self._address, timeout=RESPONSE_TIMEOUT_S) as client:
            while not self._ready.is_set():
                try:
                    models = (await client.get("/v1/models")).raise_for_status().json()["data"]
                    card = next(each for each in models if self._model in ("", each["id"]))
                    self.max_stream_s = min(
                        MAX_STREAM_S, USABLE_CONTEXT_FRACTION * card["max_model_len"] / TOKENS_PER_S
                    )
                    self._model = card["id"]
                    self._ready.set()
                except (httpx2.HTTPError, KeyError, StopIteration, TypeError, ValueError):
                    await asyncio.sleep(RETRY_PAUSE_S)
        await self._watch.run()
        await asyncio.Event().wait()

    async def wait_until_ready(self) -> None:
        """Return once vLLM responds."""
        await self._ready.wait()

    async def open_stream(self) -> "VllmStream":
        """Open a stream.

        Raises:
            StreamError: vLLM accepts no stream.
        """
        url = f"{self._address.replace('http', 'ws', 1)}/v1/realtime"
        try:
            connection = await websockets.connect(url, compression=None, proxy=None, open_timeout=RESPONSE_TIMEOUT_S)
            await connection.send(json.dumps({"type": "session.update", "model": self._model}))
            await connection.send(json.dumps({"type": "input_audio_buffer.commit", "final": False}))
        except CONNECTION_ERRORS as error:
            raise StreamError(f"vLLM: {str(error) or type(error).__name__}") from None
        return VllmStream(connection, self._watch.record_response)

    async def _probe(self) -> None:
        stream = await self.open_stream()
        try:
            await stream.send(SILENCE_SAMPLES)
            await stream.finish()
        finally:
            await stream.close()


class VllmStream:
    """A WebSocket for a stream."""

    def __init__(self, connection: websockets.ClientConnection, answered: Callable[[], None]) -> None:
        self.text = ""
        self._answered = answered
        self._connection = connection
        self._reading = asyncio.create_task(self._read())

    async def send(self, samples: NDArray[np.int16]) -> None:
        audio = base64.b64encode(samples.astype("<i2").tobytes()).decode()
        await self._send({"type": "input_audio_buffer.append", "audio": audio})

    async def finish(self) -> str:
        await self._send({"type": "input_audio_buffer.commit", "final": True})
        try:
            return await asyncio.wait_for(asyncio.shield(self._reading), RESPONSE_TIMEOUT_S)
        except CONNECTION_ERRORS as error:
            raise StreamError(f"vLLM: {str(error) or type(error).__name__}") from None

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, StreamError, *CONNECTION_ERRORS):
            await self._reading
        await self._connection.close()

    async def _send(self, message: dict[str, object]) -> None:
        if self._reading.done():
            raise self._reading.exception() or StreamError("vLLM ended a stream before its audio did")
        try:
            await self._connection.send(json.dumps(message))
        except CONNECTION_ERRORS as error:
            raise StreamError(f"vLLM: {str(error) or type(error).__name__}") from None

    async def _read(self) -> str:
        try:
            while True:
                event = json.loads(await self._connection.recv())
                # Session events come from the HTTP server, which outlives the engine core.
                if event["type"].startswith("transcription."):
                    self._answered()
                match event["type"]:
                    case "transcription.delta":
                        self.text += event["delta"]
                    case "transcription.done":
                        return str(event["text"]).strip()
                    case "error":
                        raise StreamError(f"vLLM: {event['error']}")
        except CONNECTION_ERRORS as error:
            raise StreamError(f"vLLM: {str(error) or type(error).__name__}") from None
