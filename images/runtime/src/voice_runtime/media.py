"""What a session's packets hold, as its record and SDP (RFC 8866) say it."""

from dataclasses import dataclass
from typing import Self

from blueprint.contract.media import (
    CODECS,
    COMFORT_NOISE,
    DYNAMIC,
    MOST_PAYLOAD_BYTES,
    PACKET_MS,
    TELEPHONE_EVENT,
    TELEPHONE_HZ,
    Codec,
)


@dataclass(frozen=True)
class Media:
    """Codec and packets of a session."""

    codec: Codec = Codec.L16
    rate: int = 16_000
    channels: int = 1
    packet_ms: int = 20
    payload_type: int = 96

    def __str__(self) -> str:
        return f"{self.payload_type} {self.codec}/{self.rate}/{self.channels} {self.packet_ms}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Read what ``str`` writes.

        Raises:
            ValueError: It is something else.
        """
        payload_type, format_, packet_ms = text.split(" ")
        codec, rate, channels = format_.split("/")
        return cls(Codec(codec), int(rate), int(channels), int(packet_ms), int(payload_type))

    @property
    def problem(self) -> str:
        """Why the VAD tier does not take it; empty: it does."""
        form = CODECS[self.codec]
        if self.rate not in form.rates:
            return f"{self.codec} at {self.rate} Hz is not taken; {_listed(form.rates)} are"
        if self.channels not in form.channels:
            return f"{self.codec} with {self.channels} channels is not taken; {_listed(form.channels)} are"
        if self.packet_ms not in PACKET_MS or self.rate * self.packet_ms % 1000:
            return f"packets of {self.packet_ms} ms at {self.rate} Hz are not taken: whole samples in 10 to 60 ms are"
        size = self.rate * self.packet_ms // 1000 * self.channels * form.sample_bytes
        if size > MOST_PAYLOAD_BYTES:
            return f"a packet would have {size} bytes, and holds {MOST_PAYLOAD_BYTES}; name a smaller packet_ms"
        if self.payload_type == TELEPHONE_EVENT or self.payload_type not in (*DYNAMIC, *form.payload_types):
            return f"payload type {self.payload_type} is not taken; 96 to 127 are, but for {TELEPHONE_EVENT}"
        return ""

    def sdp(self, host: str, port: int, *, ssrc: int, suite: str, key: str) -> str:
        """Describe the stream as its sender does: where it goes, what it holds, and the key it is encrypted with."""
        others = [(TELEPHONE_EVENT, f"telephone-event/{self.rate}")]
        if self.rate == TELEPHONE_HZ:
            others.append((COMFORT_NOISE, f"CN/{self.rate}"))
        channels = f"/{self.channels}" if self.channels > 1 else ""
        maps = [(self.payload_type, f"{self.codec}/{self.rate}{channels}"), *others]
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


OF_GATEWAYS = Media()
"""What plain RTP holds, and a record without a word about it."""


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, sorted(numbers)))
