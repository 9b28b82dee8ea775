"""Audio as callers send it, made into 20 ms frames of 16 kHz PCM16 in network byte order."""

import numpy as np
import soxr
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from blueprint.contract import CHUNK_FRAME_SAMPLES

RATE = 16_000
FRAME_BYTES = 2 * CHUNK_FRAME_SAMPLES
SILENT_FRAME = bytes(FRAME_BYTES)
SAMPLE_BYTES = 2

MIN_RATE, MAX_RATE = 8_000, 192_000
"""What sound cards offer."""


class AudioFormat(BaseModel):
    """What a socket carries: PCM16, little-endian, one channel.

    Attributes:
        rate: Samples a second.
    """

    model_config = ConfigDict(frozen=True)

    rate: int = Field(default=RATE, ge=MIN_RATE, le=MAX_RATE)


class AudioError(ValueError):
    """Bytes that are no audio of the format."""


class Framer:
    """Cuts a stream of messages of any size into frames; resamples it where its rate is another."""

    def __init__(self, audio: AudioFormat) -> None:
        self._resampler = soxr.ResampleStream(audio.rate, RATE, 1, dtype="int16") if audio.rate != RATE else None
        self._left = b""

    def take(self, message: bytes) -> list[bytes]:
        """Return the frames that a message completes.

        Raises:
            AudioError: It is empty, or ends within a sample.
        """
        if not message or len(message) % SAMPLE_BYTES:
            raise AudioError(f"{len(message)} bytes are no whole number of 16-bit samples")
        samples = np.frombuffer(message, "<i2")
        return self._cut(self._resampler.resample_chunk(samples) if self._resampler else samples)

    def end(self) -> list[bytes]:
        """Return what is left; its last frame is filled up with silence."""
        frames = []
        if self._resampler:
            frames = self._cut(self._resampler.resample_chunk(np.empty(0, np.int16), last=True))
        if self._left:
            frames.append(self._left.ljust(FRAME_BYTES, b"\0"))
            self._left = b""
        return frames

    def _cut(self, samples: NDArray[np.int16]) -> list[bytes]:
        audio = self._left + samples.astype(">i2").tobytes()
        whole = len(audio) - len(audio) % FRAME_BYTES
        self._left = audio[whole:]
        return [audio[begin : begin + FRAME_BYTES] for begin in range(0, whole, FRAME_BYTES)]
