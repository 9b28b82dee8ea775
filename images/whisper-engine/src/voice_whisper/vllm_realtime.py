"""vLLM's ``/v1/realtime``, for models that take audio as it comes: Voxtral Realtime.

Messages as vLLM's ``entrypoints/openai/realtime`` has them: the first commit begins the work, a final one ends it. It
takes no language.
"""

import asyncio
import base64
import contextlib
import json

import httpx2
import numpy as np
import websockets
from numpy.typing import NDArray

from voice_whisper.streaming import StreamError

TOKENS_PER_S = 12.5
"""Of Voxtral's audio, each with a token of text beside it (its model card)."""
USED = 0.8
"""Of a context: what a stream begins with, and what it says at its end, have room in the rest."""
LONGEST_S = 60.0
"""A stream that lasts for longer pays for what was said long ago."""
TIMEOUT_S = 60.0
RETRY_PAUSE_S = 1.0
BROKEN = (OSError, websockets.WebSocketException, TimeoutError, ValueError, KeyError)


class VllmRealtime:
    """A vLLM that serves such a model.

    Args:
        address: Of its HTTP server.
        model: Name of the model; empty: the only one there.
    """

    def __init__(self, address: str, model: str = "") -> None:
        self.longest_s = LONGEST_S
        self._address, self._model = address, model
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Wait for vLLM, and ask it for its model and how long a context that has."""
        async with httpx2.AsyncClient(base_url=self._address, timeout=TIMEOUT_S) as client:
            while not self._ready.is_set():
                try:
                    found = (await client.get("/v1/models")).raise_for_status().json()["data"]
                    card = next(each for each in found if self._model in ("", each["id"]))
                    self.longest_s = min(LONGEST_S, USED * card["max_model_len"] / TOKENS_PER_S)
                    self._model = card["id"]
                    self._ready.set()
                except (httpx2.HTTPError, KeyError, StopIteration, TypeError, ValueError):
                    await asyncio.sleep(RETRY_PAUSE_S)
        await asyncio.Event().wait()

    async def ready(self) -> None:
        """Return when vLLM answers."""
        await self._ready.wait()

    async def open(self) -> "VllmStream":
        """Begin a stream.

        Raises:
            StreamError: vLLM takes none.
        """
        url = f"{self._address.replace('http', 'ws', 1)}/v1/realtime"
        try:
            connection = await websockets.connect(url, compression=None, proxy=None, open_timeout=TIMEOUT_S)
            await connection.send(json.dumps({"type": "session.update", "model": self._model}))
            await connection.send(json.dumps({"type": "input_audio_buffer.commit", "final": False}))
        except BROKEN as error:
            raise StreamError(f"vLLM: {error or type(error).__name__}") from None
        return VllmStream(connection)


class VllmStream:
    """A socket of it."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self.text = ""
        self._connection = connection
        self._reading = asyncio.create_task(self._read())

    async def send(self, samples: NDArray[np.int16]) -> None:
        audio = base64.b64encode(samples.astype("<i2").tobytes()).decode()
        await self._say({"type": "input_audio_buffer.append", "audio": audio})

    async def finish(self) -> str:
        await self._say({"type": "input_audio_buffer.commit", "final": True})
        try:
            return await asyncio.wait_for(asyncio.shield(self._reading), TIMEOUT_S)
        except BROKEN as error:
            raise StreamError(f"vLLM: {error or type(error).__name__}") from None

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, StreamError, *BROKEN):
            await self._reading
        await self._connection.close()

    async def _say(self, message: dict[str, object]) -> None:
        if self._reading.done():
            raise self._reading.exception() or StreamError("vLLM ended a stream before its audio did")
        try:
            await self._connection.send(json.dumps(message))
        except BROKEN as error:
            raise StreamError(f"vLLM: {error or type(error).__name__}") from None

    async def _read(self) -> str:
        try:
            while True:
                event = json.loads(await self._connection.recv())
                match event["type"]:
                    case "transcription.delta":
                        self.text += event["delta"]
                    case "transcription.done":
                        return str(event["text"]).strip()
                    case "error":
                        raise StreamError(f"vLLM: {event['error']}")
        except BROKEN as error:
            raise StreamError(f"vLLM: {error or type(error).__name__}") from None
