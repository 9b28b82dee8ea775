"""The reference VAD stage of the demos says what the data plane says."""

import pytest

from blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, ChunkFlag
from ops.call.recording import read
from ops.demo.command import SAMPLE
from ops.demo.utterances import FRAMES_IN_CHUNK, Utterances

ENDED = ChunkFlag.COMMIT | ChunkFlag.END_OF_SPEECH
SENTENCE = slice(46 * CHUNK_FRAME_SAMPLES, None)
"""Of the sample: four seconds without a pause follow."""
SPOKEN_FRAMES = 50


@pytest.mark.parametrize("more", range(2 * FRAMES_IN_CHUNK))
def test_a_mark_is_never_lost(more: int) -> None:
    """Also where it comes with a chunk's last frame, and nothing is left to send."""
    samples = read(SAMPLE)[SENTENCE]
    utterances = Utterances(1, 0)
    chunks = []
    for frame in range(SPOKEN_FRAMES + more):
        spoken = samples[frame * CHUNK_FRAME_SAMPLES :][:CHUNK_FRAME_SAMPLES]
        chunks += utterances.take(spoken, concealed=False)
    assert chunks
    assert chunks[-1].flags & ENDED == ChunkFlag(0), "the sample is still spoken there"
    chunks += utterances.close(ChunkFlag.COMMIT)
    assert [chunk.flags & ENDED for chunk in chunks[:-1]] == [ChunkFlag(0)] * (len(chunks) - 1)
    assert chunks[-1].flags & ENDED == ENDED
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
