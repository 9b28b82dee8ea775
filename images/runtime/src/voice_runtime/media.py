"""Packet format of a session, as in its record and in SDP (RFC 8866)."""

from dataclasses import dataclass
from typing import Self

from voice_blueprint.contract.media import (
    CODECS,
    COMFORT_NOISE,
    DYNAMIC_PAYLOAD_TYPES,
    MAX_PAYLOAD_BYTES,
    MAX_TELEPHONE_EVENTS,
    PACKET_MS_RANGE,
    TELEPHONE_EVENT,
    TELEPHONE_SAMPLE_RATE_HZ,
    Codec,
)


@dataclass(frozen=True)
class MediaFormat:
    """Codec and packet format of a session.

    Attributes:
        telephone_events: Payload types of DTMF digits (RFC 4733), which are ignored.
    """

    codec: Codec = Codec.L16
    rate: int = 16_000
    channels: int = 1
    packet_ms: int = 20
    payload_type: int = 96
    telephone_events: tuple[int, ...] = (TELEPHONE_EVENT,)

    def __str__(self) -> str:
        events = "" if self.telephone_events == (TELEPHONE_EVENT,) else f" {_join_numbers(self.telephone_events)}"
        return f"{self.payload_type} {self.codec}/{self.rate}/{self.channels} {self.packet_ms}{events}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that ``str`` returns.

        Raises:
            ValueError: The text is invalid.
        """
        payload_type, format_, packet_ms, *events = text.split(" ")
        if len(events) > 1:
            raise ValueError(f"{text} has more than the payload types of telephone events at its end")
        codec, rate, channels = format_.split("/")
        numbers = tuple(int(number) for number in events[0].split(",")) if events else (TELEPHONE_EVENT,)
        return cls(Codec(codec), int(rate), int(channels), int(packet_ms), int(payload_type), numbers)

    @property
    def unsupported_reason(self) -> str:
        """Reason why the VAD tier does not support the format; empty if it is supported."""
        spec = CODECS[self.codec]
        if self.rate not in spec.rates:
            return f"{self.codec} at {self.rate} Hz is not taken; {_format_sorted_numbers(spec.rates)} are"
        if self.channels not in spec.channels:
            return (
                f"{self.codec} with {self.channels} channels is not taken; {_format_sorted_numbers(spec.channels)} are"
            )
        if self.packet_ms not in PACKET_MS_RANGE or self.rate * self.packet_ms % 1000:
            return f"packets of {self.packet_ms} ms at {self.rate} Hz are not taken: whole samples in 10 to 60 ms are"
        size = self.rate * self.packet_ms // 1000 * self.channels * spec.sample_bytes
        if size > MAX_PAYLOAD_BYTES:
            return f"a packet would have {size} bytes, and holds {MAX_PAYLOAD_BYTES}; name a smaller packet_ms"
        if any(number not in DYNAMIC_PAYLOAD_TYPES for number in self.telephone_events):
            types = _format_sorted_numbers(self.telephone_events)
            return f"telephone events of payload type {types} are not supported: use 96 to 127"
        if not 0 < len(self.telephone_events) <= MAX_TELEPHONE_EVENTS:
            return f"{len(self.telephone_events)} payload types of telephone events: name 1 to {MAX_TELEPHONE_EVENTS}"
        if self.payload_type in self.telephone_events or self.payload_type not in (
            *DYNAMIC_PAYLOAD_TYPES,
            spec.payload_type,
        ):
            events = _format_sorted_numbers(self.telephone_events)
            return f"payload type {self.payload_type} is not taken; 96 to 127 are, but for {events} of telephone events"
        return ""

    def to_sdp(self, host: str, port: int, *, ssrc: int, suite: str, key: str) -> str:
        """Return the SDP with which a stream's sender describes the destination, format and encryption key."""
        extra_formats = [(number, f"telephone-event/{self.rate}") for number in self.telephone_events]
        if self.rate == TELEPHONE_SAMPLE_RATE_HZ:
            extra_formats.append((COMFORT_NOISE, f"CN/{self.rate}"))
        channels = f"/{self.channels}" if self.channels > 1 else ""
        maps = [(self.payload_type, f"{self.codec}/{self.rate}{channels}"), *extra_formats]
        lines = (
            "v=0",
            f"o=- {ssrc} 1 IN IP4 {host}",
            "s=-",
            f"c=IN IP4 {host}",
            "t=0 0",
            f"m=audio {port} RTP/SAVP {' '.join(str(number) for number, _ in maps)}",
            *(f"a=rtpmap:{number} {name}" for number, name in maps),
            f"a=ptime:{self.packet_ms}",
            "a=sendonly",
            "a=rtcp-mux",
            f"a=ssrc:{ssrc} cname:{ssrc}",
            f"a=crypto:1 {suite} inline:{key}",
        )
        return "".join(f"{line}\r\n" for line in lines)


DEFAULT_MEDIA_FORMAT = MediaFormat()
"""Format of plain RTP, which is also the default of a session's record."""


def _join_numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _format_sorted_numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, sorted(numbers)))
