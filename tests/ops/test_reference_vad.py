"""The reference VAD stage of the demos sends the same chunks as the data plane."""

import pytest

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, ChunkFlag
from voice_ops.call.recording import read_samples
from voice_ops.demo.command import SAMPLE_FILE
from voice_ops.demo.utterances import FRAMES_PER_CHUNK, UtteranceSplitter

END_FLAGS = ChunkFlag.COMMIT | ChunkFlag.END_OF_SPEECH
SENTENCE = slice(46 * CHUNK_FRAME_SAMPLES, None)
"""Part of the sample, followed by four seconds without a pause."""
SPOKEN_FRAMES = 50


@pytest.mark.parametrize("more", range(2 * FRAMES_PER_CHUNK))
def test_a_mark_is_never_lost(more: int) -> None:
    """Also if the mark follows the last frame of a chunk, and no audio remains to be sent."""
    samples = read_samples(SAMPLE_FILE)[SENTENCE]
    utterances = UtteranceSplitter(1, 0)
    chunks = []
    for frame in range(SPOKEN_FRAMES + more):
        spoken = samples[frame * CHUNK_FRAME_SAMPLES :][:CHUNK_FRAME_SAMPLES]
        chunks += utterances.process_frame(spoken, is_concealed=False)
    assert chunks
    assert chunks[-1].flags & END_FLAGS == ChunkFlag(0), "the sample is still spoken there"
    chunks += utterances.close(ChunkFlag.COMMIT)
    assert [chunk.flags & END_FLAGS for chunk in chunks[:-1]] == [ChunkFlag(0)] * (len(chunks) - 1)
    assert chunks[-1].flags & END_FLAGS == END_FLAGS
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
