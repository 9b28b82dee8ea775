"""The same call by the protocols of other services' clients, audio and transcripts on one socket."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import websockets

from blueprint.contract.session_api import LISTEN_PATH, REALTIME_PATH
from ops.call.recording import FRAME_S, FRAME_SAMPLES, RATE
from ops.call.senders import Samples
from ops.call.session import CallError, Heard

QUIET_S = 5.0
"""OpenAI's protocol has no end: nothing more comes once nothing has come for so long."""


class Api(StrEnum):
    """Protocol of a call."""

    SESSIONS = "sessions"
    OPENAI = "openai"
    DEEPGRAM = "deepgram"


@dataclass(frozen=True)
class Dialect:
    """How a protocol says what a call has to say.

    Attributes:
        path: With its query.
        first: Message ahead of the audio.
        audio: Makes a message of samples.
        last: Message behind the audio.
        heard: Reads what is heard out of a message.
        says_end: Whether the other side closes behind the last final.
    """

    path: str
    first: str | None
    audio: Callable[[bytes], str | bytes]
    last: str
    heard: Callable[[dict[str, Any]], Heard | None]
    says_end: bool


class _OpenAi:
    """Remembers where each item began: a transcript does not say."""

    def __init__(self) -> None:
        self._begins: dict[str, int] = {}

    def __call__(self, event: dict[str, Any]) -> Heard | None:
        kind = str(event["type"])
        if kind == "error":
            raise CallError(event["error"]["message"])
        if kind.endswith("speech_started"):
            self._begins[event["item_id"]] = event["audio_start_ms"]
        if not kind.endswith("transcription.completed"):
            return None
        start_ms = self._begins.pop(event["item_id"], 0)
        end_ms = start_ms + round(1000 * event["usage"]["seconds"])
        return Heard(kind="final", text=event["transcript"], start_ms=start_ms, end_ms=end_ms)


def _deepgram(message: dict[str, Any]) -> Heard | None:
    if message["type"] != "Results":
        return None
    start_ms = round(1000 * message["start"])
    return Heard(
        kind="final" if message["is_final"] else "partial",
        text=message["channel"]["alternatives"][0]["transcript"],
        start_ms=start_ms,
        end_ms=start_ms + round(1000 * message["duration"]),
    )


_INPUT = {"format": {"type": "audio/pcm", "rate": RATE}, "turn_detection": {"type": "server_vad"}}
_UPDATE = {"type": "session.update", "session": {"type": "transcription", "audio": {"input": _INPUT}}}

DIALECTS = {
    Api.OPENAI: Dialect(
        f"{REALTIME_PATH}?intent=transcription",
        json.dumps(_UPDATE),
        lambda audio: json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()}),
        json.dumps({"type": "input_audio_buffer.commit"}),
        _OpenAi(),
        says_end=False,
    ),
    Api.DEEPGRAM: Dialect(
        f"{LISTEN_PATH}?encoding=linear16&sample_rate={RATE}&interim_results=true",
        None,
        lambda audio: audio,
        json.dumps({"type": "CloseStream"}),
        _deepgram,
        says_end=True,
    ),
}


async def speak(api: Api, server: str, key: str, samples: Samples) -> AsyncIterator[Heard]:
    """Speak a recording in real time, and yield what is heard.

    Args:
        server: URL of the media host, or of a gateway.
        key: What is sent as ``Authorization: Bearer``.

    Raises:
        CallError: The other side cannot be reached, refuses, or hangs up.
    """
    dialect = DIALECTS[api]
    url = server.rstrip("/").replace("http", "ws", 1) + dialect.path
    try:
        async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {key}"}) as connection:
            sending = asyncio.create_task(_send(connection, dialect, samples))
            try:
                async for message in _messages(connection, sending, dialect):
                    if heard := dialect.heard(message):
                        yield heard
                await sending
            finally:
                sending.cancel()
    except (websockets.WebSocketException, OSError) as error:
        raise CallError(f"{url}: {error}") from None


async def _send(connection: websockets.ClientConnection, dialect: Dialect, samples: Samples) -> None:
    if dialect.first:
        await connection.send(dialect.first)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number, frame in enumerate(np.split(samples, samples.size // FRAME_SAMPLES)):
        await asyncio.sleep(begin + number * FRAME_S - loop.time())
        await connection.send(dialect.audio(frame.astype("<i2").tobytes()))
    await connection.send(dialect.last)


async def _messages(
    connection: websockets.ClientConnection, sending: asyncio.Task[None], dialect: Dialect
) -> AsyncIterator[dict[str, Any]]:
    while True:
        try:
            async with asyncio.timeout(None if dialect.says_end else QUIET_S):
                message = await connection.recv()
        except websockets.ConnectionClosedOK:
            return
        except TimeoutError:
            if sending.done():
                return
        else:
            yield json.loads(message)
