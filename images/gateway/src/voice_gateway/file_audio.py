"""A file's audio, decoded on demand and split at pauses."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from voice_gateway import decoder_process
from voice_gateway.audio import RATE, AudioError
from voice_gateway.refusals import Refusal

MAX_S = 3660
"""An hour, and a minute for encoders that round up."""
MAX_LENGTH_S = 13
"""With the silence that Whisper needs at the end, it fits a window of 15 s. A window of 30 s costs three times as much
per second of audio, and live callers wait for its end."""
SHORTEST_S = 6
"""Minimum length before a split."""
PAUSE_FRAMES = 10
"""Number of consecutive quiet frames of 20 ms in whose middle a split is made."""
LEFT_FRAMES = 10
"""Silence that is kept around speech."""
SILENT = 33.0
"""Maximum root mean square of a silent frame: -60 dB."""
FRAME = RATE // 50

Samples = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Cut:
    """A segment of a file with speech.

    Attributes:
        start_s: Start in the file.
    """

    start_s: float
    samples: Samples

    @property
    def end_s(self) -> float:
        return self.start_s + len(self.samples) / RATE


class Cutter:
    """Splits audio at the quietest positions, and omits silence.

    Attributes:
        length_s: Total duration of its input.
    """

    def __init__(self) -> None:
        self._held = np.empty(0, np.int16)
        self._at = 0

    @property
    def length_s(self) -> float:
        return (self._at + len(self._held)) / RATE

    def take(self, samples: Samples) -> Iterator[Cut]:
        """Add samples, and yield complete segments."""
        self._held = np.concatenate([self._held, samples])
        while len(self._held) >= MAX_LENGTH_S * RATE:
            yield from self._cut(FRAME * _quietest(_levels(self._held[: MAX_LENGTH_S * RATE])))

    def end(self) -> Iterator[Cut]:
        """Yield the remaining segment."""
        yield from self._cut(len(self._held))

    def _cut(self, length: int) -> Iterator[Cut]:
        samples, start = self._held[:length], self._at
        self._held, self._at = self._held[length:], self._at + length
        loud = np.flatnonzero(_levels(samples) > SILENT)
        if loud.size:
            begin = max(0, int(loud[0]) - LEFT_FRAMES) * FRAME
            yield Cut((start + begin) / RATE, samples[begin : (int(loud[-1]) + 1 + LEFT_FRAMES) * FRAME])


def _levels(samples: Samples) -> NDArray[np.float64]:
    """Return the level of each frame."""
    padded = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    return np.asarray(np.sqrt((padded.astype(np.float64) ** 2).mean(axis=1)))


def _quietest(levels: NDArray[np.float64]) -> int:
    """Return the frame for a split: late, and in a pause."""
    pauses = np.convolve(levels, np.ones(PAUSE_FRAMES) / PAUSE_FRAMES, "valid")
    first = SHORTEST_S * RATE // FRAME
    quiet = max(SILENT, 1.2 * pauses[first:].min())
    return first + int(np.flatnonzero(pauses[first:] <= quiet)[-1]) + PAUSE_FRAMES // 2


async def cuts(file: IO[bytes], cutter: Cutter, channel: int | None = None) -> AsyncGenerator[Cut]:
    """Decode a file, no faster than its segments are consumed.

    Args:
        channel: Channel to decode, from 0; ``None`` to mix all.

    Raises:
        Refusal: It cannot be decoded, or is longer than an hour.
        NoChannelError: It does not have the channel.
    """
    process = await decoder_process.start(MAX_S, file, channel)
    try:
        async for samples in decoder_process.samples_of(process):
            for cut in cutter.take(np.frombuffer(samples, "<i2")):
                yield cut
        for cut in cutter.end():
            yield cut
    except AudioError as error:
        raise Refusal(400, "bad file", f"file: {error}") from None
    finally:
        await decoder_process.stop(process)
