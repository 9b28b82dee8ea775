"""Audio as callers send it, made into 20 ms frames of 16 kHz PCM16 in network byte order."""

from enum import StrEnum
from typing import Protocol, Self

import numpy as np
import opuslib_next
import soxr
from numpy.typing import NDArray
from opuslib_next.exceptions import OpusError
from pydantic import BaseModel, ConfigDict, Field, model_validator

from blueprint.contract.chunk import CHUNK_FRAME_SAMPLES

RATE = 16_000
FRAME_BYTES = 2 * CHUNK_FRAME_SAMPLES
SILENT_FRAME = bytes(FRAME_BYTES)
SAMPLE_BYTES = 2

MIN_RATE, MAX_RATE = 8_000, 192_000
"""What sound cards offer."""


OPUS_PACKET_SAMPLES = RATE * 120 // 1000
"""Most that a packet can hold (RFC 6716, section 3.2.5)."""

Samples = NDArray[np.int16]


class Encoding(StrEnum):
    """How a socket's binary messages are to be read.

    Attributes:
        PCM16: Samples, little-endian, one channel; messages may end anywhere between samples.
        MULAW: A byte a sample, mu-law (ITU-T G.711), as telephones have them.
        ALAW: The same by A-law.
        OPUS: A packet each (RFC 6716), as RTP and WebCodecs have them; no Ogg or WebM around them.
    """

    PCM16 = "pcm16"
    MULAW = "mulaw"
    ALAW = "alaw"
    OPUS = "opus"


class AudioFormat(BaseModel):
    """What a socket carries.

    Attributes:
        encoding: Of its binary messages.
        rate: Samples a second, of all but Opus.
    """

    model_config = ConfigDict(frozen=True)

    encoding: Encoding = Encoding.PCM16
    rate: int = Field(default=RATE, ge=MIN_RATE, le=MAX_RATE)

    @model_validator(mode="after")
    def _opus_has_no_rate(self) -> Self:
        if self.encoding is Encoding.OPUS and "rate" in self.model_fields_set:
            raise ValueError("an Opus packet is decoded at any rate: leave rate away")
        return self


class AudioError(ValueError):
    """Bytes that are no audio of the format."""


class Decoder(Protocol):
    """Makes messages into samples of 16 kHz."""

    def take(self, message: bytes) -> Samples:
        """Return what a message adds.

        Raises:
            AudioError: It is no audio.
        """

    def end(self) -> Samples:
        """Return what was held back."""


class Pcm16:
    """Resamples where the rate is another."""

    def __init__(self, rate: int) -> None:
        self._resampler = soxr.ResampleStream(rate, RATE, 1, dtype="int16") if rate != RATE else None

    def take(self, message: bytes) -> Samples:
        """Return what a message adds, less what the resampler needs of the next."""
        if not message or len(message) % SAMPLE_BYTES:
            raise AudioError(f"{len(message)} bytes are no whole number of 16-bit samples")
        samples = np.frombuffer(message, "<i2")
        return self._resampler.resample_chunk(samples) if self._resampler else samples

    def end(self) -> Samples:
        """Return what the resampler held back."""
        nothing = np.empty(0, np.int16)
        return self._resampler.resample_chunk(nothing, last=True) if self._resampler else nothing


class G711:
    """Reads logarithmic bytes as 16-bit samples, and goes on as PCM16 does."""

    def __init__(self, encoding: Encoding, rate: int) -> None:
        self._linear = MULAW if encoding is Encoding.MULAW else ALAW
        self._pcm16 = Pcm16(rate)

    def take(self, message: bytes) -> Samples:
        """Return what a message adds, less what the resampler needs of the next."""
        return self._pcm16.take(self._linear[np.frombuffer(message, np.uint8)].tobytes())

    def end(self) -> Samples:
        """Return what the resampler held back."""
        return self._pcm16.end()


def _mulaw() -> Samples:
    """Return the sample of each byte (ITU-T G.711, table 2a)."""
    byte = ~np.arange(256, dtype=np.uint8)
    size = ((((byte & 15).astype(int) << 3) + MULAW_BIAS) << (byte >> 4 & 7)) - MULAW_BIAS
    return np.where(byte & 128, -size, size).astype("<i2")


def _alaw() -> Samples:
    """Return the sample of each byte (ITU-T G.711, table 1a)."""
    byte = np.arange(256, dtype=np.uint8) ^ 0x55
    segment = (byte >> 4 & 7).astype(int)
    step = ((byte & 15).astype(int) << 4) + 8
    size = np.where(segment, step + 256 << np.maximum(segment - 1, 0), step)
    return np.where(byte & 128, size, -size).astype("<i2")


MULAW_BIAS = 132
MULAW, ALAW = _mulaw(), _alaw()


class Opus:
    """Decodes to 16 kHz at once, as every Opus decoder can, and mixes stereo down."""

    def __init__(self) -> None:
        self._decoder = opuslib_next.Decoder(RATE, 1)

    def take(self, message: bytes) -> Samples:
        """Return a packet's 2.5 to 120 ms."""
        # To the decoder no bytes are a lost packet, to be made up.
        if not message:
            raise AudioError("0 bytes are no Opus packet")
        try:
            return np.frombuffer(self._decoder.decode(message, OPUS_PACKET_SAMPLES), np.int16)
        except OpusError as error:
            raise AudioError(f"{len(message)} bytes are no Opus packet: {error}") from error

    def end(self) -> Samples:
        """Return nothing: a decoder holds nothing back."""
        return np.empty(0, np.int16)


class Framer:
    """Cuts a stream of messages of any size into frames."""

    def __init__(self, audio: AudioFormat) -> None:
        self._decoder = _decoder(audio)
        self._left = b""

    def take(self, message: bytes) -> list[bytes]:
        """Return the frames that a message completes.

        Raises:
            AudioError: It is no audio of the format.
        """
        return self._cut(self._decoder.take(message))

    def end(self) -> list[bytes]:
        """Return what is left; its last frame is filled up with silence."""
        frames = self._cut(self._decoder.end())
        if self._left:
            frames.append(self._left.ljust(FRAME_BYTES, b"\0"))
            self._left = b""
        return frames

    def _cut(self, samples: Samples) -> list[bytes]:
        audio = self._left + samples.astype(">i2").tobytes()
        whole = len(audio) - len(audio) % FRAME_BYTES
        self._left = audio[whole:]
        return [audio[begin : begin + FRAME_BYTES] for begin in range(0, whole, FRAME_BYTES)]


def _decoder(audio: AudioFormat) -> Decoder:
    if audio.encoding is Encoding.OPUS:
        return Opus()
    if audio.encoding is Encoding.PCM16:
        return Pcm16(audio.rate)
    return G711(audio.encoding, audio.rate)
