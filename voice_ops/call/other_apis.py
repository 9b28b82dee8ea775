"""Makes calls with the client protocols of other services, which use one WebSocket for audio and transcripts."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import websockets

from voice_ops.call.dialects import DIALECTS, Api, Dialect
from voice_ops.call.recording import FRAME_S, SAMPLES_PER_FRAME
from voice_ops.call.senders import Samples
from voice_ops.call.session import CallError, TranscriptEvent

IDLE_TIMEOUT_S = 5.0
"""Time without messages after which a call ends, since OpenAI's protocol has no message that ends a call."""


async def stream_to_server(api: Api, server: str, key: str, samples: Samples) -> AsyncIterator[TranscriptEvent]:
    """Stream a recording in real time, and yield the transcripts.

    Args:
        server: URL of the media host, or of a gateway.
        key: Key for the header ``Authorization: Bearer``.

    Raises:
        CallError: The server is unreachable, rejects the call, or closes the connection.
    """
    dialect = DIALECTS[api]
    url = server.rstrip("/").replace("http", "ws", 1) + dialect.path
    try:
        async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {key}"}) as connection:
            send_task = asyncio.create_task(_send_audio(connection, dialect, samples))
            try:
                async for message in _receive_messages(connection, send_task, dialect):
                    if event := dialect.parse_transcripts(message):
                        yield event
                await send_task
            finally:
                send_task.cancel()
    except (websockets.WebSocketException, OSError) as error:
        raise CallError(f"{url}: {error}") from None


async def _send_audio(connection: websockets.ClientConnection, dialect: Dialect, samples: Samples) -> None:
    if dialect.first_message:
        await connection.send(dialect.first_message)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number, frame in enumerate(np.split(samples, samples.size // SAMPLES_PER_FRAME)):
        await asyncio.sleep(begin + number * FRAME_S - loop.time())
        await connection.send(dialect.encode_audio(frame.astype("<i2").tobytes()))
    await connection.send(dialect.last_message)


async def _receive_messages(
    connection: websockets.ClientConnection, send_task: asyncio.Task[None], dialect: Dialect
) -> AsyncIterator[dict[str, Any]]:
    while True:
        try:
            async with asyncio.timeout(None if dialect.closes_at_end else IDLE_TIMEOUT_S):
                message = await connection.recv()
        except websockets.ConnectionClosedOK:
            return
        except TimeoutError:
            if send_task.done():
                return
        else:
            yield json.loads(message)
