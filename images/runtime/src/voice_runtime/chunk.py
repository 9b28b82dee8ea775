"""``AudioChunk``: a datagram from the VAD tier with 100 ms of a session's audio."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import (
    CHUNK_HEADER,
    CHUNK_MEL_BINS,
    CHUNK_MEL_FRAMES,
    CHUNK_PAYLOAD_BYTES,
    CHUNK_SAMPLES,
    ChunkFlag,
    ChunkKind,
)

DATAGRAM_BYTES = CHUNK_HEADER.size + CHUNK_PAYLOAD_BYTES
ALL_FLAGS = sum(ChunkFlag)
MAX_COUNT_BY_KIND = {ChunkKind.LOG_MEL: CHUNK_MEL_FRAMES, ChunkKind.PCM16: CHUNK_SAMPLES}
"""Maximum ``count`` for each kind."""


class MalformedChunkReason(StrEnum):
    """Reason for an invalid datagram, which is also the name of a counter."""

    LENGTH = "wrong-length"
    KIND = "unknown-kind"
    FLAGS = "unknown-flags"
    COUNT = "wrong-count"
    VALUES = "not-finite"


class MalformedChunkError(Exception):
    """A datagram that is not a valid chunk.

    Attributes:
        reason: Counter of the reason.
    """

    def __init__(self, reason: MalformedChunkReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A chunk of speech.

    Attributes:
        session: SSRC of the session.
        sequence: Position of the chunk's first 20 ms frame in the session.
        number: Number of earlier chunks of the session, sent or lost.
        values: Log-mel as float32 of shape (frames, 80), or samples as int16 of shape (samples,), 16 kHz.
    """

    session: int
    sequence: int
    flags: ChunkFlag
    values: NDArray[np.float32] | NDArray[np.int16]
    number: int = 0

    @property
    def kind(self) -> ChunkKind:
        """Kind of ``values``."""
        return ChunkKind.LOG_MEL if self.values.dtype == np.float32 else ChunkKind.PCM16

    @classmethod
    def parse(cls, datagram: bytes | memoryview) -> "AudioChunk":
        """Parse a datagram without copying it.

        Raises:
            MalformedChunkError: The datagram is not a valid chunk.
        """
        if len(datagram) != DATAGRAM_BYTES:
            raise MalformedChunkError(MalformedChunkReason.LENGTH)
        session, number, sequence, kind, flags, count = CHUNK_HEADER.unpack_from(datagram)
        if kind not in MAX_COUNT_BY_KIND:
            raise MalformedChunkError(MalformedChunkReason.KIND)
        if flags & ~ALL_FLAGS:
            raise MalformedChunkError(MalformedChunkReason.FLAGS)
        if count > MAX_COUNT_BY_KIND[kind]:
            raise MalformedChunkError(MalformedChunkReason.COUNT)
        return cls(session, sequence, ChunkFlag(flags), _read_values(datagram, ChunkKind(kind), count), number)

    def to_datagram(self) -> bytes:
        """Return the chunk in wire format. The unused part of ``values`` is zero."""
        header = CHUNK_HEADER.pack(self.session, self.number, self.sequence, self.kind, self.flags, len(self.values))
        return (header + self.values.tobytes()).ljust(DATAGRAM_BYTES, b"\0")


def _read_values(datagram: bytes | memoryview, kind: ChunkKind, count: int) -> NDArray[np.float32] | NDArray[np.int16]:
    if kind is ChunkKind.PCM16:
        return np.frombuffer(datagram, "<i2", count, CHUNK_HEADER.size)
    mel = np.frombuffer(datagram, "<f4", count * CHUNK_MEL_BINS, CHUNK_HEADER.size).reshape(count, CHUNK_MEL_BINS)
    # A single NaN or infinity would corrupt a whole batch with features of other sessions.
    if not np.isfinite(mel).all():
        raise MalformedChunkError(MalformedChunkReason.VALUES)
    return mel
