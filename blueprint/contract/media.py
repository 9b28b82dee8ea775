"""What the packets of a session may hold; the VAD tier and the gateway take the same (media/description.cpp)."""

from dataclasses import dataclass
from enum import StrEnum


class Codec(StrEnum):
    """By its name in SDP (RFC 8866)."""

    L16 = "L16"
    PCMU = "PCMU"
    PCMA = "PCMA"
    OPUS = "opus"


@dataclass(frozen=True)
class Form:
    """What a codec comes in, the first of each unless a caller names another."""

    rates: tuple[int, ...]
    channels: tuple[int, ...]
    payload_types: tuple[int, ...]
    sample_bytes: int
    """0: a packet's size varies."""


DYNAMIC = range(96, 128)
"""Payload types that a session may give to any codec (RFC 3551)."""
COMFORT_NOISE, TELEPHONE_EVENT = 13, 101
"""Payload types that hold no audio, and are no losses."""
PACKET_MS = range(10, 61)
MOST_PAYLOAD_BYTES = 1440
"""An Ethernet frame, less the headers of IPv4, UDP, RTP and what SRTP adds."""

TELEPHONE_HZ = 8 * 1000

CODECS: dict[Codec, Form] = {
    Codec.L16: Form((16_000, TELEPHONE_HZ, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 48_000), (1, 2), (96,), 2),
    Codec.PCMU: Form((TELEPHONE_HZ,), (1,), (0,), 1),
    Codec.PCMA: Form((TELEPHONE_HZ,), (1,), (8,), 1),
    Codec.OPUS: Form((48_000,), (2,), (111,), 0),  # whatever a packet holds (RFC 7587)
}
