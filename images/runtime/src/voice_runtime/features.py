"""Log-mel features of streaming speech, with the same values as the data plane's extractor.

The values equal those of faster-whisper's feature extractor before its last step, which clamps them to the utterance's
maximum minus 8 and scales them. The last step needs the whole utterance, so the engine performs it.
"""

import functools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import CHUNK_MEL_BINS

SAMPLE_RATE_HZ = 16000
WINDOW_SAMPLES = 400
HOP_SAMPLES = 160
PADDING_SAMPLES = WINDOW_SAMPLES // 2
MIN_ENERGY = 1e-10

FeatureRows = NDArray[np.float32]
"""Features of shape (rows, bins), one row every 10 ms."""


class LogMelExtractor:
    """Extracts features from an utterance whose samples arrive in pieces of any length.

    A row is centred on every 160th sample and extends 200 samples to both sides. Before the utterance, the signal is
    reflected. After it, the signal is silence.
    """

    def __init__(self, bins: int = CHUNK_MEL_BINS) -> None:
        self._bins = bins
        self._buffer: NDArray[np.float32] = np.empty(0, np.float32)
        self._reflected = False

    def push(self, samples: NDArray[np.int16]) -> FeatureRows:
        """Return the rows that these samples complete."""
        self._buffer = np.concatenate([self._buffer, samples.astype(np.float32) / 32768])
        if not self._reflected:
            if len(self._buffer) < PADDING_SAMPLES:
                return np.empty((0, self._bins), np.float32)
            self._prepend_reflection()
        return self._extract_rows()

    def flush(self) -> FeatureRows:
        """Return the last rows of the utterance, and reset the state for the next one."""
        if not len(self._buffer):
            return np.empty((0, self._bins), np.float32)
        self._buffer = np.pad(self._buffer, (0, PADDING_SAMPLES))
        if not self._reflected:
            self._prepend_reflection()
        rows = self._extract_rows()
        self._buffer, self._reflected = self._buffer[:0], False
        return rows

    def _prepend_reflection(self) -> None:
        # The window's first sample has weight 0.
        before = np.concatenate([np.zeros(1, np.float32), self._buffer[PADDING_SAMPLES - 1 : 0 : -1]])
        self._buffer = np.concatenate([before, self._buffer])
        self._reflected = True

    def _extract_rows(self) -> FeatureRows:
        if len(self._buffer) < WINDOW_SAMPLES:
            return np.empty((0, self._bins), np.float32)
        windows = sliding_window_view(self._buffer, WINDOW_SAMPLES)[::HOP_SAMPLES]
        self._buffer = self._buffer[len(windows) * HOP_SAMPLES :]
        power = np.abs(np.fft.rfft(windows * _build_hann_window())) ** 2
        energy = power.astype(np.float32) @ build_mel_filters(self._bins).T
        rows: FeatureRows = np.log10(np.maximum(energy, MIN_ENERGY)).astype(np.float32)
        return rows


@functools.cache
def _build_hann_window() -> NDArray[np.float32]:
    return np.hanning(WINDOW_SAMPLES + 1)[:-1].astype(np.float32)


@functools.cache
def build_mel_filters(bins: int) -> NDArray[np.float32]:
    """Return Slaney's filters, of shape (bins, 201): triangles at equal mel steps from 0 Hz to 8 kHz, of equal area.

    Source: librosa's default mel scale, on which Whisper's models were trained.
    """
    hz = _mel_to_hz(np.linspace(0, _MAX_MEL, bins + 2))
    at = np.linspace(0, SAMPLE_RATE_HZ / 2, WINDOW_SAMPLES // 2 + 1)
    low, centre, high = hz[:-2, None], hz[1:-1, None], hz[2:, None]
    heights = np.minimum((at - low) / (centre - low), (high - at) / (high - centre))
    weights: NDArray[np.float32] = (np.maximum(0, heights) * 2 / (high - low)).astype(np.float32)
    return weights


# Up to 1 kHz, 3 mel are 200 Hz. Above, 27 mel are a factor of 6.4.
_HZ_PER_MEL = 200 / 3
_MIN_LOG_HZ = 1000.0
_MIN_LOG_MEL = _MIN_LOG_HZ / _HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27
_MAX_MEL = _MIN_LOG_MEL + np.log(SAMPLE_RATE_HZ / 2 / _MIN_LOG_HZ) / _LOG_STEP


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _MIN_LOG_HZ * np.exp(_LOG_STEP * (mel - _MIN_LOG_MEL))
    return np.where(mel < _MIN_LOG_MEL, mel * _HZ_PER_MEL, above)
