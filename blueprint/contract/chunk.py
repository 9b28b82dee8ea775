"""``AudioChunk``: the datagram that carries speech from the VAD tier to the ASR tier."""

import struct
from enum import IntEnum, IntFlag

CHUNK_HEADER = struct.Struct("<IIIBBH")
"""session u32, number u32, sequence u32, kind u8, flags u8, count u16; little-endian, 16 bytes.

An engine of before ``number`` takes it for half of the session: of a deployment that runs, the ASR tier goes first."""

CHUNK_PAYLOAD_BYTES = 3200
"""100 ms of audio: 80 x 10 float32 log-mel values, or 1600 PCM16 samples."""

IP_UDP_HEADER_BYTES = 28
"""IPv4 (20, no options) and UDP (8) headers."""

CHUNK_DATAGRAM_BYTES = CHUNK_HEADER.size + CHUNK_PAYLOAD_BYTES + IP_UDP_HEADER_BYTES
"""3244: what one chunk takes of a link's MTU."""


CHUNK_MEL_BINS = 80
CHUNK_MEL_FRAMES = 10
CHUNK_SAMPLES = 1600
"""What a full payload holds: 100 ms at 16 kHz."""

CHUNK_FRAME_SAMPLES = 320
"""20 ms: the unit of ``sequence``, which is the place of a chunk's first frame in its session."""


class ChunkKind(IntEnum):
    """What the payload of an ``AudioChunk`` holds. ``count`` says how much of it: log-mel frames or samples."""

    LOG_MEL = 1
    PCM16 = 2


class ChunkFlag(IntFlag):
    """Bits of ``flags``."""

    END_OF_SPEECH = 1
    CONCEALED = 2
    """Some of it is made up: packets were lost."""
    START_OF_SPEECH = 4
    SILENCE = 8
    """None of it was judged speech: pre-roll or hangover; the first to be shed."""
    COMMIT = 16
    """Its sender wants to know what was said up to here. Where nobody was speaking it is a chunk of its own, the
    start and the end of nothing."""
    LAST = 32
    """Likewise: its sender has said goodbye, and nothing comes behind it."""
