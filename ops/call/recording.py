"""Recordings, as the 16 kHz samples that callers send."""

import wave
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

RATE = 16_000
FRAME_SAMPLES = 320
"""20 ms: what a packet holds."""
FRAME_S = FRAME_SAMPLES / RATE

LONGEST_S = 3600
_INT16 = 1 << 15


class RecordingError(ValueError):
    """A file that cannot be spoken."""


def read(file: Path) -> NDArray[np.int16]:
    """Return a recording's samples: its channels' mean, at 16 kHz, filled up to whole frames.

    Raises:
        RecordingError: It is no PCM WAV file, is empty, or takes longer than an hour.
    """
    try:
        with wave.open(str(file), "rb") as source:
            rate, channels, width = source.getframerate(), source.getnchannels(), source.getsampwidth()
            seconds = source.getnframes() / rate
            if seconds > LONGEST_S:
                raise RecordingError(f"{file} takes {seconds:.0f} s; at most {LONGEST_S} s can be spoken")
            data = source.readframes(source.getnframes())
    except OSError as error:
        raise RecordingError(f"{file}: {error.strerror}") from None
    except (wave.Error, EOFError, ZeroDivisionError) as error:
        raise RecordingError(f"{file} is no WAV file with PCM: {error or 'it ends early'}") from None
    samples = _samples(data, width).reshape(-1, channels).mean(axis=1)
    if not samples.size:
        raise RecordingError(f"{file} holds no sound")
    if rate != RATE:
        samples = soxr.resample(samples, rate, RATE)
    whole = np.zeros(-(-samples.size // FRAME_SAMPLES) * FRAME_SAMPLES)
    whole[: samples.size] = samples
    return np.clip(np.rint(whole), -_INT16, _INT16 - 1).astype(np.int16)


def _samples(data: bytes, width: int) -> NDArray[np.float64]:
    """Return PCM of 8 to 32 bits on the scale of 16 bits."""
    if width == 1:  # the only unsigned one
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) * 256
    whole = np.frombuffer(data, np.uint8)[: len(data) // width * width].reshape(-1, width)
    padded = np.zeros((len(whole), 4), np.uint8)
    padded[:, 4 - width :] = whole
    return padded.view("<i4")[:, 0].astype(np.float64) / (1 << 16)
