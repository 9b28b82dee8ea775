"""Converts callers' audio to 20 ms frames of 16 kHz PCM16 in network byte order."""

from enum import StrEnum
from typing import Protocol, Self

import numpy as np
import opuslib_next
import soxr
from numpy.typing import NDArray
from opuslib_next.exceptions import OpusError
from pydantic import BaseModel, ConfigDict, Field, model_validator

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES

SAMPLE_RATE_HZ = 16_000
FRAME_BYTES = 2 * CHUNK_FRAME_SAMPLES
SILENT_FRAME = bytes(FRAME_BYTES)
BYTES_PER_SAMPLE = 2

MIN_RATE, MAX_RATE = 8_000, 192_000
"""Range of sample rates for sound cards."""
MAX_CHANNELS = 2

MAX_OPUS_PACKET_SAMPLES = SAMPLE_RATE_HZ * 120 // 1000
"""Maximum number of samples in a packet, which is 120 ms of audio (RFC 6716, section 3.2.5)."""

Samples = NDArray[np.int16]


class Encoding(StrEnum):
    """Encoding of a socket's binary messages.

    Attributes:
        PCM16: Samples, little-endian; messages may end anywhere, even within a sample.
        MULAW: One byte per sample, mu-law (ITU-T G.711), as in telephony.
        ALAW: One byte per sample, A-law.
        OPUS: One packet per message (RFC 6716), as in RTP and WebCodecs, without Ogg or WebM.
        CONTAINER: A growing file, such as the WebM of a browser's MediaRecorder.
    """

    PCM16 = "pcm16"
    MULAW = "mulaw"
    ALAW = "alaw"
    OPUS = "opus"
    CONTAINER = "container"


class AudioFormat(BaseModel):
    """Audio format of a socket.

    Attributes:
        encoding: Encoding of its binary messages.
        rate: Samples per second, except for Opus and containers.
        channels: Number of interleaved channels, which are mixed; Opus packets and containers specify their own.
    """

    model_config = ConfigDict(frozen=True)

    encoding: Encoding = Encoding.PCM16
    rate: int = Field(default=SAMPLE_RATE_HZ, ge=MIN_RATE, le=MAX_RATE)
    channels: int = Field(default=1, ge=1, le=MAX_CHANNELS)

    @model_validator(mode="after")
    def _check_raw_parameters(self) -> Self:
        self_describing = {Encoding.OPUS: "an Opus packet", Encoding.CONTAINER: "a container"}
        if self.encoding in self_describing and self.model_fields_set & {"rate", "channels"}:
            raise ValueError(f"{self_describing[self.encoding]} names both: leave rate and channels away")
        return self


class InvalidAudioError(ValueError):
    """The bytes are not valid audio in the format."""


class Decoder(Protocol):
    """Converts messages to samples at 16 kHz."""

    def decode(self, message: bytes) -> Samples:
        """Return the samples in a message.

        Raises:
            InvalidAudioError: The message is not valid audio.
        """

    def flush(self) -> Samples:
        """Return the samples that are still buffered."""


class Pcm16Decoder:
    """Decodes PCM16: mixes the channels, and resamples to 16 kHz if necessary."""

    def __init__(self, rate: int, channels: int) -> None:
        self._resampler = (
            soxr.ResampleStream(rate, SAMPLE_RATE_HZ, 1, dtype="int16") if rate != SAMPLE_RATE_HZ else None
        )
        self._channels = channels
        self._remainder = b""

    def decode(self, message: bytes) -> Samples:
        """Return the samples in a message, except those that the resampler buffers."""
        if not message:
            raise InvalidAudioError("0 bytes are no audio")
        audio = self._remainder + message
        complete_bytes = len(audio) - len(audio) % (BYTES_PER_SAMPLE * self._channels)
        self._remainder = audio[complete_bytes:]
        samples = np.frombuffer(audio[:complete_bytes], "<i2")
        if self._channels > 1:
            samples = samples.reshape(-1, self._channels).mean(axis=1).astype("<i2")
        return self._resampler.resample_chunk(samples) if self._resampler else samples

    def flush(self) -> Samples:
        """Return the samples that the resampler has buffered."""
        empty = np.empty(0, np.int16)
        return self._resampler.resample_chunk(empty, last=True) if self._resampler else empty


class G711Decoder:
    """Decodes G.711: expands each byte to a 16-bit sample, and then mixes and resamples like PCM16."""

    def __init__(self, encoding: Encoding, rate: int, channels: int) -> None:
        self._table = MULAW_TABLE if encoding is Encoding.MULAW else ALAW_TABLE
        self._pcm16 = Pcm16Decoder(rate, channels)

    def decode(self, message: bytes) -> Samples:
        """Return the samples in a message, except those that the resampler buffers."""
        return self._pcm16.decode(self._table[np.frombuffer(message, np.uint8)].tobytes())

    def flush(self) -> Samples:
        """Return the samples that the resampler has buffered."""
        return self._pcm16.flush()


def _build_mulaw_table() -> Samples:
    """Return the decoding table: the sample for each byte (ITU-T G.711, table 2a)."""
    byte = ~np.arange(256, dtype=np.uint8)
    size = ((((byte & 15).astype(int) << 3) + MULAW_BIAS) << (byte >> 4 & 7)) - MULAW_BIAS
    return np.where(byte & 128, -size, size).astype("<i2")


def _build_alaw_table() -> Samples:
    """Return the decoding table: the sample for each byte (ITU-T G.711, table 1a)."""
    byte = np.arange(256, dtype=np.uint8) ^ 0x55
    segment = (byte >> 4 & 7).astype(int)
    step = ((byte & 15).astype(int) << 4) + 8
    size = np.where(segment, step + 256 << np.maximum(segment - 1, 0), step)
    return np.where(byte & 128, size, -size).astype("<i2")


MULAW_BIAS = 132
MULAW_TABLE, ALAW_TABLE = _build_mulaw_table(), _build_alaw_table()


class OpusDecoder:
    """Decodes Opus packets directly to 16 kHz, which every Opus decoder supports, and mixes stereo to mono."""

    def __init__(self) -> None:
        self._decoder = opuslib_next.Decoder(SAMPLE_RATE_HZ, 1)

    def decode(self, message: bytes) -> Samples:
        """Return the samples of a packet, which lasts 2.5 to 120 ms."""
        # The decoder would treat an empty packet as lost, and conceal it.
        if not message:
            raise InvalidAudioError("0 bytes are no Opus packet")
        try:
            return np.frombuffer(self._decoder.decode(message, MAX_OPUS_PACKET_SAMPLES), np.int16)
        except OpusError as error:
            raise InvalidAudioError(f"{len(message)} bytes are no Opus packet: {error}") from error

    def flush(self) -> Samples:
        """Return an empty array, since the decoder buffers nothing."""
        return np.empty(0, np.int16)


class Framer:
    """Splits a stream of messages of any size into frames."""

    def __init__(self, audio_format: AudioFormat) -> None:
        self._decoder = _create_decoder(audio_format)
        self._remainder = b""

    def push(self, message: bytes) -> list[bytes]:
        """Return the frames that a message completes.

        Raises:
            InvalidAudioError: The message is not audio of the format.
        """
        return self._split_frames(self._decoder.decode(message))

    def flush(self) -> list[bytes]:
        """Return the frames of the remaining samples. The last frame is padded with silence."""
        frames = self._split_frames(self._decoder.flush())
        if self._remainder:
            frames.append(self._remainder.ljust(FRAME_BYTES, b"\0"))
            self._remainder = b""
        return frames

    def _split_frames(self, samples: Samples) -> list[bytes]:
        audio = self._remainder + samples.astype(">i2").tobytes()
        complete_bytes = len(audio) - len(audio) % FRAME_BYTES
        self._remainder = audio[complete_bytes:]
        return [audio[begin : begin + FRAME_BYTES] for begin in range(0, complete_bytes, FRAME_BYTES)]


def _create_decoder(audio_format: AudioFormat) -> Decoder:
    if audio_format.encoding is Encoding.OPUS:
        return OpusDecoder()
    if audio_format.encoding in {
        Encoding.PCM16,
        Encoding.CONTAINER,
    }:  # a container's decoder converts it to the usual PCM16
        return Pcm16Decoder(audio_format.rate, audio_format.channels)
    return G711Decoder(audio_format.encoding, audio_format.rate, audio_format.channels)
