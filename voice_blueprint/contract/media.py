"""Media formats that the VAD tier and the gateway accept (media/description.cpp)."""

from dataclasses import dataclass
from enum import StrEnum


class Codec(StrEnum):
    """Codec by its name in SDP (RFC 8866)."""

    L16 = "L16"
    PCMU = "PCMU"
    PCMA = "PCMA"
    OPUS = "opus"


@dataclass(frozen=True)
class CodecFormat:
    """Formats of a codec. The first rate and number of channels are the defaults."""

    rates: tuple[int, ...]
    channels: tuple[int, ...]
    payload_type: int
    """Default payload type; sessions may use any dynamic type instead."""
    sample_bytes: int
    """0 if the size of packets varies."""


MAX_AUDIO_INPUTS = 5
"""Maximum number of audio inputs in a request to a multimodal language model: the limit of Voxtral in vLLM, regardless
of vLLM's flag (``get_supported_mm_limits``)."""

DYNAMIC_PAYLOAD_TYPES = range(96, 128)
"""Dynamic payload types, which a session may assign to any codec (RFC 3551)."""
COMFORT_NOISE, TELEPHONE_EVENT = 13, 101
"""Payload types without audio, which are not counted as losses. The type of telephone events (DTMF, RFC 4733) applies
unless a session configures others."""
MAX_TELEPHONE_EVENTS = 8
"""Maximum number of payload types for telephone events in a session; a browser offers four, one for each clock rate."""
PACKET_MS_RANGE = range(10, 61)
MAX_PAYLOAD_BYTES = 1440
"""Maximum size of a payload: an Ethernet frame without the headers of IPv4, UDP and RTP, and without SRTP additions."""

TELEPHONE_SAMPLE_RATE_HZ = 8 * 1000

CODECS: dict[Codec, CodecFormat] = {
    Codec.L16: CodecFormat(
        (16_000, TELEPHONE_SAMPLE_RATE_HZ, 11_025, 12_000, 22_050, 24_000, 32_000, 44_100, 48_000), (1, 2), 96, 2
    ),
    Codec.PCMU: CodecFormat((TELEPHONE_SAMPLE_RATE_HZ,), (1,), 0, 1),
    Codec.PCMA: CodecFormat((TELEPHONE_SAMPLE_RATE_HZ,), (1,), 8, 1),
    Codec.OPUS: CodecFormat((48_000,), (2,), 111, 0),  # independent of a packet's content (RFC 7587)
}
