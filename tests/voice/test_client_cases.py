"""Unmodified clients that send faster than real time, or finalize inside words."""

import asyncio
from typing import Any

import pytest
from deepgram.core.events import EventType

from tests.voice.callers import SENTENCES, speech
from tests.voice.test_clients import ENDED_WITHIN_S, DeepgramCaller, in_real_time, started
from voice_ops.call.recording import SAMPLE_RATE_HZ, read_samples
from voice_ops.demo.command import SAMPLE_FILE, SAMPLE_TEXT_FILE, calculate_word_error_rate
from voice_ops.demo.services import Gateway, VoicePath

SPOKEN_TEXT = SAMPLE_TEXT_FILE.read_text(encoding="utf-8")
MAX_ERROR_RATE = 0.15
MAX_ERROR_RATE_WITH_CUTS = 0.25
"""Maximum word error rate if pauses of 25 ms and commits split words."""


@pytest.fixture
def gateway(whole_path: VoicePath) -> Gateway:
    return started(whole_path)


class FastUploader(DeepgramCaller):
    """Sends a recording as fast as the socket accepts it, like a script."""

    async def send(self) -> None:
        options: dict[str, Any] = {
            "model": "nova-3",
            "encoding": "linear16",
            "sample_rate": SAMPLE_RATE_HZ,
            "language": "en",
        }
        async with self._client.listen.v1.connect(**options) as connection:
            connection.on(EventType.MESSAGE, self.messages.append)
            listening = asyncio.create_task(connection.start_listening())
            audio = read_samples(SAMPLE_FILE).tobytes()
            for begin in range(0, len(audio), 32_000):
                await connection.send_media(audio[begin : begin + 32_000])
            await connection.send_close_stream()
            await listening


class EarlyCommitter(DeepgramCaller):
    """Ends an utterance at each pause of 25 ms, as LiveKit's plugin requests, and finalizes inside words."""

    async def speak(self) -> None:
        options: dict[str, Any] = {
            "model": "nova-3", "encoding": "linear16", "sample_rate": SAMPLE_RATE_HZ, "language": "en",
            "endpointing": 25,
        }  # fmt: skip
        async with self._client.listen.v1.connect(**options) as connection:
            connection.on(EventType.MESSAGE, self.messages.append)
            listening = asyncio.create_task(connection.start_listening())
            number = 0
            async for piece in in_real_time(speech(SENTENCES[:3], 1.5), SAMPLE_RATE_HZ):
                await connection.send_media(piece)
                number += 1
                if number % 33 == 0:
                    await connection.send_finalize()
            await connection.send_close_stream()
            await listening


async def test_fast_uploads_and_commits_inside_words_lose_nothing(gateway: Gateway) -> None:
    at_once, impatient = FastUploader(gateway), EarlyCommitter(gateway)
    async with asyncio.timeout(ENDED_WITHIN_S):
        await asyncio.gather(at_once.send(), impatient.speak())
    assert calculate_word_error_rate(SPOKEN_TEXT, at_once.transcript) <= MAX_ERROR_RATE, at_once.transcript
    assert calculate_word_error_rate(" ".join(SENTENCES[:3]), impatient.transcript) <= MAX_ERROR_RATE_WITH_CUTS, (
        impatient.transcript
    )
    assert any(result.from_finalize for result in impatient.events_of_type("Results"))
    words = [word for final in impatient.finals for word in final.words]
    assert all(word.end > word.start for word in words)
    assert [word.start for word in words] == sorted(word.start for word in words)
