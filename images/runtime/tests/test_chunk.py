"""Datagrams of the VAD tier: decoded as encoded, or refused with a reason."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_blueprint.contract.chunk import CHUNK_HEADER, CHUNK_PAYLOAD_BYTES, ChunkFlag, ChunkKind
from voice_runtime.chunk import DATAGRAM_BYTES, AudioChunk, MalformedChunkError, MalformedChunkReason

SESSIONS = st.integers(0, 2**32 - 1)
SEQUENCES = st.integers(0, 2**32 - 1)
FLAGS = st.integers(0, 63).map(ChunkFlag)


def datagram(
    *,
    kind: int = ChunkKind.LOG_MEL,
    flags: int = 0,
    count: int = 10,
    payload: bytes = bytes(CHUNK_PAYLOAD_BYTES),
) -> bytes:
    return CHUNK_HEADER.pack(7, 0, 3, kind, flags, count) + payload


@settings(deadline=None)
@given(SESSIONS, SEQUENCES, FLAGS, st.integers(0, 10), st.integers(0, 2**32 - 1))
def test_log_mel_round_trips(session: int, sequence: int, flags: ChunkFlag, count: int, seed: int) -> None:
    mel = np.random.default_rng(seed).normal(size=(count, 80)).astype(np.float32)
    wire = AudioChunk(session, sequence, flags, mel).to_datagram()
    assert len(wire) == DATAGRAM_BYTES
    read = AudioChunk.parse(wire)
    assert (read.session, read.sequence, read.flags, read.kind) == (session, sequence, flags, ChunkKind.LOG_MEL)
    np.testing.assert_array_equal(read.values, mel)


@settings(deadline=None)
@given(st.integers(0, 1600), st.integers(0, 2**32 - 1))
def test_samples_round_trip(count: int, seed: int) -> None:
    pcm = np.random.default_rng(seed).integers(-(2**15), 2**15, count, dtype=np.int16)
    read = AudioChunk.parse(AudioChunk(1, 2, ChunkFlag.END_OF_SPEECH, pcm).to_datagram())
    assert read.kind is ChunkKind.PCM16
    np.testing.assert_array_equal(read.values, pcm)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"", MalformedChunkReason.LENGTH),
        (datagram()[:-1], MalformedChunkReason.LENGTH),
        (datagram() + b"\0", MalformedChunkReason.LENGTH),
        (datagram(kind=0), MalformedChunkReason.KIND),
        (datagram(kind=3), MalformedChunkReason.KIND),
        (datagram(flags=64), MalformedChunkReason.FLAGS),
        (datagram(count=11), MalformedChunkReason.COUNT),
        (datagram(kind=ChunkKind.PCM16, count=1601), MalformedChunkReason.COUNT),
        (datagram(payload=np.full(800, np.nan, np.float32).tobytes()), MalformedChunkReason.VALUES),
        (datagram(payload=np.full(800, np.inf, np.float32).tobytes()), MalformedChunkReason.VALUES),
    ],
)
def test_invalid_chunks_are_refused_with_a_reason(wire: bytes, why: MalformedChunkReason) -> None:
    with pytest.raises(MalformedChunkError) as refused:
        AudioChunk.parse(wire)
    assert refused.value.reason is why


@settings(deadline=None)
@given(st.binary(max_size=DATAGRAM_BYTES + 8))
def test_arbitrary_bytes_are_parsed_or_rejected(wire: bytes) -> None:
    try:
        chunk = AudioChunk.parse(wire)
    except MalformedChunkError:
        return
    assert AudioChunk.parse(chunk.to_datagram()).sequence == chunk.sequence


@pytest.mark.parametrize(("number", "wire"), [(0, "00000000"), (258, "02010000")])
def test_a_chunk_is_a_header_of_little_endian_numbers_before_its_samples(number: int, wire: str) -> None:
    """As ``CHUNK_HEADER`` describes it for both tiers."""
    samples = np.array([1, -2], np.int16)
    flags = ChunkFlag.END_OF_SPEECH | ChunkFlag.LAST
    header = bytes.fromhex(f"01000000 {wire} 03000000 02 21 0200")
    datagram = (header + bytes.fromhex("0100 feff")).ljust(16 + 3200, b"\0")
    assert AudioChunk(1, 3, flags, samples, number).to_datagram() == datagram
    assert AudioChunk(1, 3, flags, samples).to_datagram()[4:8] == bytes(4), "the first chunk"
    read = AudioChunk.parse(datagram)
    assert (read.session, read.number, read.sequence, read.flags) == (1, number, 3, flags)
    assert read.values.tolist() == [1, -2]


@pytest.mark.parametrize(("kind", "count", "shape"), [(1, 10, (10, 80)), (1, 0, (0, 80)), (2, 1600, (1600,))])
def test_the_largest_and_the_smallest_chunks_are_accepted(kind: int, count: int, shape: tuple[int, ...]) -> None:
    chunk = AudioChunk.parse(datagram(kind=kind, flags=63, count=count))
    assert (chunk.values.shape, chunk.flags) == (shape, ChunkFlag(63))
