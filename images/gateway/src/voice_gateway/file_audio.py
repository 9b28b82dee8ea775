"""A file's audio, decoded on demand and split at pauses."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from voice_gateway import decoder_process
from voice_gateway.audio import RATE, AudioError
from voice_gateway.refusals import Refusal

MAX_DURATION_S = 3660
"""An hour, and a minute for encoders that round up."""
MAX_LENGTH_S = 13
"""With the silence that Whisper needs at the end, it fits a window of 15 s. A window of 30 s costs three times as much
per second of audio, and live callers wait for its end."""
MIN_LENGTH_S = 6
"""Minimum length before a split."""
PAUSE_FRAMES = 10
"""Number of consecutive quiet frames of 20 ms in whose middle a split is made."""
PADDING_FRAMES = 10
"""Silence that is kept around speech."""
SILENCE_LEVEL = 33.0
"""Maximum root mean square of a silent frame: -60 dB."""
FRAME = RATE // 50

Samples = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class SpeechSegment:
    """A segment of a file with speech.

    Attributes:
        start_s: Start in the file.
    """

    start_s: float
    samples: Samples

    @property
    def end_s(self) -> float:
        return self.start_s + len(self.samples) / RATE


class AudioSplitter:
    """Splits audio at the quietest positions, and omits silence.

    Attributes:
        length_s: Total duration of its input.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.int16)
        self._position = 0

    @property
    def length_s(self) -> float:
        return (self._position + len(self._buffer)) / RATE

    def push(self, samples: Samples) -> Iterator[SpeechSegment]:
        """Add samples, and yield complete segments."""
        self._buffer = np.concatenate([self._buffer, samples])
        while len(self._buffer) >= MAX_LENGTH_S * RATE:
            yield from self._take_segment(FRAME * _find_split(_frame_levels(self._buffer[: MAX_LENGTH_S * RATE])))

    def flush(self) -> Iterator[SpeechSegment]:
        """Yield the remaining segment."""
        yield from self._take_segment(len(self._buffer))

    def _take_segment(self, length: int) -> Iterator[SpeechSegment]:
        samples, start = self._buffer[:length], self._position
        self._buffer, self._position = self._buffer[length:], self._position + length
        active_frames = np.flatnonzero(_frame_levels(samples) > SILENCE_LEVEL)
        if active_frames.size:
            begin = max(0, int(active_frames[0]) - PADDING_FRAMES) * FRAME
            yield SpeechSegment(
                (start + begin) / RATE, samples[begin : (int(active_frames[-1]) + 1 + PADDING_FRAMES) * FRAME]
            )


def _frame_levels(samples: Samples) -> NDArray[np.float64]:
    """Compute the root mean square of the samples of each frame; the last one is padded with zeros."""
    padded = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    return np.asarray(np.sqrt((padded.astype(np.float64) ** 2).mean(axis=1)))


def _find_split(levels: NDArray[np.float64]) -> int:
    """Return the frame for a split: late, and in a pause."""
    pauses = np.convolve(levels, np.ones(PAUSE_FRAMES) / PAUSE_FRAMES, "valid")
    first = MIN_LENGTH_S * RATE // FRAME
    max_pause_level = max(SILENCE_LEVEL, 1.2 * pauses[first:].min())
    return first + int(np.flatnonzero(pauses[first:] <= max_pause_level)[-1]) + PAUSE_FRAMES // 2


async def split_file(
    file: IO[bytes], splitter: AudioSplitter, channel: int | None = None
) -> AsyncGenerator[SpeechSegment]:
    """Decode a file, no faster than its segments are consumed.

    Args:
        channel: Channel to decode, from 0; ``None`` to mix all.

    Raises:
        Refusal: It cannot be decoded, or is longer than an hour.
        NoChannelError: It does not have the channel.
    """
    process = await decoder_process.start(MAX_DURATION_S, file, channel)
    try:
        async for samples in decoder_process.read_samples(process):
            for segment in splitter.push(np.frombuffer(samples, "<i2")):
                yield segment
        for segment in splitter.flush():
            yield segment
    except AudioError as error:
        raise Refusal(400, "bad file", f"file: {error}") from None
    finally:
        await decoder_process.stop(process)
