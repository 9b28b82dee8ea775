"""``AudioChunk``: the datagram with speech that the VAD tier sends to the ASR tier."""

import struct
from enum import IntEnum, IntFlag

CHUNK_HEADER = struct.Struct("<IIIBBH")
"""session u32, number u32, sequence u32, kind u8, flags u8, count u16; little-endian, 16 bytes.

An older engine reads ``number`` as part of the session id; update the ASR tier of a running deployment first.
"""

CHUNK_PAYLOAD_BYTES = 3200
"""100 ms of audio: 80 x 10 float32 log-mel values, or 1600 PCM16 samples."""

IP_UDP_HEADER_BYTES = 28
"""IPv4 (20, no options) and UDP (8) headers."""

CHUNK_DATAGRAM_BYTES = CHUNK_HEADER.size + CHUNK_PAYLOAD_BYTES + IP_UDP_HEADER_BYTES
"""Size of a chunk on the link, 3244 bytes, which the MTU must allow."""


CHUNK_MEL_BINS = 80
CHUNK_MEL_FRAMES = 10
CHUNK_SAMPLES = 1600
"""Samples of a full payload: 100 ms at 16 kHz."""

CHUNK_FRAME_SAMPLES = 320
"""20 ms: the unit of ``sequence``, which is the position of a chunk's first frame in its session."""


class ChunkKind(IntEnum):
    """Kind of payload in an ``AudioChunk``. ``count`` is the number of log-mel frames or samples."""

    LOG_MEL = 1
    PCM16 = 2


class ChunkFlag(IntFlag):
    """Bits of ``flags``."""

    END_OF_SPEECH = 1
    CONCEALED = 2
    """Parts of the chunk are concealed, because packets were lost."""
    START_OF_SPEECH = 4
    SILENCE = 8
    """No part of the chunk was classified as speech (pre-roll or hangover). Such chunks are shed first."""
    COMMIT = 16
    """The sender requests the transcript up to this point. During silence, a separate chunk has this flag; that chunk
    neither starts nor ends an utterance."""
    LAST = 32
    """As ``COMMIT``. In addition, the sender has ended the session, so no further chunks follow."""
