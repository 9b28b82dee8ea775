"""Transcription of a file as a stream of events, sent when each piece is transcribed.

A simulated host answers through the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np
import pytest
from openai import AsyncOpenAI
from redis.asyncio import Redis

from images.gateway.tests.running import GatewayProcess
from images.gateway.tests.test_transcriptions import client_of, noise, wav
from voice_gateway.audio import SAMPLE_RATE_HZ
from voice_runtime.file_pieces import FilePieceQueue, PieceTranscript


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(gateway) as client:
        yield client


@contextlib.asynccontextmanager
async def host(store: Redis, *answers: PieceTranscript) -> AsyncIterator[None]:
    """Answer the pieces in order."""

    async def hear() -> None:
        pieces = FilePieceQueue(store)
        for each in answers:
            while (piece := await pieces.claim("host")) is None:
                await asyncio.sleep(0.02)
            await pieces.complete(piece.name, each)

    hearing = asyncio.create_task(hear())
    yield
    await hearing


def two_pieces() -> tuple[str, bytes]:
    pause = np.zeros(SAMPLE_RATE_HZ // 2, np.int16)
    return wav(np.concatenate([noise(8), pause, noise(8)]))


async def test_deltas_concatenate_to_the_text(client: AsyncOpenAI, store: Redis) -> None:
    async with host(store, PieceTranscript(text="One."), PieceTranscript(text="Two.")):
        stream = await client.audio.transcriptions.create(file=two_pieces(), model="any", stream=True)
        events = [event.to_dict() async for event in stream]
    assert [event["delta"] for event in events[:-1]] == ["One.", " Two."]
    assert {event["type"] for event in events[:-1]} == {"transcript.text.delta"}
    assert (events[-1]["type"], events[-1]["text"]) == ("transcript.text.done", "One. Two.")


async def test_an_untranscribable_segment_ends_the_event_stream(gateway: GatewayProcess, store: Redis) -> None:
    async with host(store, PieceTranscript(text="One."), PieceTranscript(failed=True)), gateway.client() as client:
        answer = await client.post(
            f"http://127.0.0.1:{gateway.media_port}/v1/audio/transcriptions",
            files={"file": two_pieces()},
            data={"model": "any", "stream": "true"},
        )
    first, last, rest = answer.text.split("\n\n")
    assert '"delta": "One."' in first
    assert "an engine failed on a part of this file" in last
    assert rest == ""
