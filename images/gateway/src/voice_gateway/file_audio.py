"""Decodes a file's audio on demand, and splits it at pauses."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from voice_gateway import decoder_process
from voice_gateway.audio import SAMPLE_RATE_HZ, InvalidAudioError
from voice_gateway.refusals import Refusal

MAX_DURATION_S = 3660
"""Maximum duration of a file: an hour, plus a minute for encoders that round up."""
MAX_SEGMENT_S = 13
"""Maximum length of a segment. With the silence that Whisper needs at the end, the segment fits into a window of 15 s.
A window of 30 s costs three times as much per second of audio, and live calls wait until it is transcribed."""
MIN_SEGMENT_S = 6
"""Minimum length of a segment that is split from the following audio."""
PAUSE_FRAMES = 10
"""Number of consecutive quiet 20 ms frames in a pause. Audio is split in the middle of the pause."""
PADDING_FRAMES = 10
"""Number of silent frames that are kept before and after speech."""
MAX_SILENCE_LEVEL = 33.0
"""Maximum root mean square of a silent frame, which is -60 dB."""
SAMPLES_PER_FRAME = SAMPLE_RATE_HZ // 50

Samples = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class SpeechSegment:
    """A file segment that contains speech.

    Attributes:
        start_s: Start of the segment in the file.
    """

    start_s: float
    samples: Samples

    @property
    def end_s(self) -> float:
        return self.start_s + len(self.samples) / SAMPLE_RATE_HZ


class AudioSplitter:
    """Splits audio at the quietest positions, and omits silence.

    Attributes:
        total_duration_s: Total duration of the input.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.int16)
        self._position = 0

    @property
    def total_duration_s(self) -> float:
        return (self._position + len(self._buffer)) / SAMPLE_RATE_HZ

    def push(self, samples: Samples) -> Iterator[SpeechSegment]:
        """Add samples, and yield complete segments."""
        self._buffer = np.concatenate([self._buffer, samples])
        while len(self._buffer) >= MAX_SEGMENT_S * SAMPLE_RATE_HZ:
            yield from self._extract_segment(
                SAMPLES_PER_FRAME
                * _find_split_frame(_compute_frame_levels(self._buffer[: MAX_SEGMENT_S * SAMPLE_RATE_HZ]))
            )

    def flush(self) -> Iterator[SpeechSegment]:
        """Yield the remaining segment."""
        yield from self._extract_segment(len(self._buffer))

    def _extract_segment(self, length: int) -> Iterator[SpeechSegment]:
        samples, start = self._buffer[:length], self._position
        self._buffer, self._position = self._buffer[length:], self._position + length
        active_frames = np.flatnonzero(_compute_frame_levels(samples) > MAX_SILENCE_LEVEL)
        if active_frames.size:
            begin = max(0, int(active_frames[0]) - PADDING_FRAMES) * SAMPLES_PER_FRAME
            yield SpeechSegment(
                (start + begin) / SAMPLE_RATE_HZ,
                samples[begin : (int(active_frames[-1]) + 1 + PADDING_FRAMES) * SAMPLES_PER_FRAME],
            )


def _compute_frame_levels(samples: Samples) -> NDArray[np.float64]:
    """Compute the root mean square of each frame's samples. The last frame is padded with zeros."""
    padded = np.pad(samples, (0, -len(samples) % SAMPLES_PER_FRAME)).reshape(-1, SAMPLES_PER_FRAME)
    return np.asarray(np.sqrt((padded.astype(np.float64) ** 2).mean(axis=1)))


def _find_split_frame(levels: NDArray[np.float64]) -> int:
    """Return the frame at which audio is split: the middle of the last pause."""
    pauses = np.convolve(levels, np.ones(PAUSE_FRAMES) / PAUSE_FRAMES, "valid")
    first = MIN_SEGMENT_S * SAMPLE_RATE_HZ // SAMPLES_PER_FRAME
    max_pause_level = max(MAX_SILENCE_LEVEL, 1.2 * pauses[first:].min())
    return first + int(np.flatnonzero(pauses[first:] <= max_pause_level)[-1]) + PAUSE_FRAMES // 2


async def split_file(
    file: IO[bytes], splitter: AudioSplitter, channel: int | None = None
) -> AsyncGenerator[SpeechSegment]:
    """Decode a file, and yield its segments with speech. Decoding is no faster than the segments are consumed.

    Args:
        channel: Channel to decode, from 0; ``None`` to mix all.

    Raises:
        Refusal: The file cannot be decoded, or is longer than an hour.
        ChannelNotFoundError: The file does not have the channel.
    """
    process = await decoder_process.start_decoder(MAX_DURATION_S, file, channel)
    try:
        async for samples in decoder_process.read_samples(process):
            for segment in splitter.push(np.frombuffer(samples, "<i2")):
                yield segment
        for segment in splitter.flush():
            yield segment
    except InvalidAudioError as error:
        raise Refusal(400, "bad file", f"file: {error}") from None
    finally:
        await decoder_process.stop_decoder(process)
