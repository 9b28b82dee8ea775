"""Chunks that may still arrive: the audio that a streaming engine receives for a partial."""

from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
from engine_host import FRAME, chunks_of

from voice_blueprint.contract.chunk import ChunkKind
from voice_whisper.job import Priority
from voice_whisper.streaming import StreamingTranscriber
from voice_whisper.utterance import Utterance

FIRST, FRAMES = 10, 45
"""Position and length of the audio so far, in frames; nine chunks of five frames."""


@pytest.mark.parametrize(
    ("missing", "wanted", "frames"),
    [
        ((), Priority.PARTIAL, FRAMES),
        ((45,), Priority.PARTIAL, 35),
        ((40,), Priority.PARTIAL, FRAMES),
        ((25, 45), Priority.PARTIAL, 35),
        ((45,), Priority.FINAL, FRAMES),
    ],
)
async def test_a_partial_stops_before_a_chunk_that_was_due_in_the_last_200_ms(
    missing: tuple[int, ...], wanted: Priority, frames: int
) -> None:
    """Its place is sent once, so audio that arrives later could not be added."""
    utterance = Utterance(FIRST, ChunkKind.PCM16, opened=True)
    for chunk in chunks_of(1, np.ones(FRAMES * FRAME, np.int16), first=FIRST, kind=ChunkKind.PCM16):
        if chunk.sequence not in missing:
            utterance.add(chunk, 0.0)
    stream = AsyncMock(text="words")
    stream.finish.return_value = "words"
    recognizer = SimpleNamespace(max_stream_s=60.0, is_stuck=False, run=Mock(), wait_until_ready=Mock())
    recognizer.open_stream = AsyncMock(return_value=stream)
    heard = await StreamingTranscriber(recognizer).transcribe(utterance, None, wanted)
    assert heard.text == "words"
    assert sum(len(call.args[0]) for call in stream.send.await_args_list) == frames * FRAME
