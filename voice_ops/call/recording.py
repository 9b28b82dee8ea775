"""Reads recordings, and converts them to 16 kHz."""

import wave
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
SAMPLES_PER_FRAME = 320
"""Number of samples in a packet of 20 ms."""
FRAME_S = SAMPLES_PER_FRAME / SAMPLE_RATE_HZ

MAX_DURATION_S = 3600
_INT16_SCALE = 1 << 15


class RecordingError(ValueError):
    """The recording cannot be read, or its format or length is not supported."""


def read_samples(file: Path) -> NDArray[np.int16]:
    """Return a recording as mono samples at 16 kHz, padded to whole frames.

    Raises:
        RecordingError: The file is not a PCM WAV file, is empty, or is longer than an hour.
    """
    try:
        with wave.open(str(file), "rb") as source:
            rate, channels, width = source.getframerate(), source.getnchannels(), source.getsampwidth()
            seconds = source.getnframes() / rate
            if seconds > MAX_DURATION_S:
                raise RecordingError(f"{file} is {seconds:.0f} s long; the maximum is {MAX_DURATION_S} s")
            data = source.readframes(source.getnframes())
    except OSError as error:
        raise RecordingError(f"{file}: {error.strerror}") from None
    except (wave.Error, EOFError, ZeroDivisionError) as error:
        raise RecordingError(f"{file} is not a PCM WAV file: {str(error) or 'it is truncated'}") from None
    samples = _decode_pcm(data, width).reshape(-1, channels).mean(axis=1)
    if not samples.size:
        raise RecordingError(f"{file} contains no audio")
    if rate != SAMPLE_RATE_HZ:
        samples = soxr.resample(samples, rate, SAMPLE_RATE_HZ)
    padded_samples = np.zeros(-(-samples.size // SAMPLES_PER_FRAME) * SAMPLES_PER_FRAME)
    padded_samples[: samples.size] = samples
    return np.clip(np.rint(padded_samples), -_INT16_SCALE, _INT16_SCALE - 1).astype(np.int16)


def _decode_pcm(data: bytes, width: int) -> NDArray[np.float64]:
    """Convert PCM samples of 8 to 32 bits to the range of 16 bits."""
    if width == 1:  # the only unsigned format
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) * 256
    padded_samples = np.frombuffer(data, np.uint8)[: len(data) // width * width].reshape(-1, width)
    padded = np.zeros((len(padded_samples), 4), np.uint8)
    padded[:, 4 - width :] = padded_samples
    return padded.view("<i4")[:, 0].astype(np.float64) / (1 << 16)
