"""The stretch of features that Whisper is given.

Whisper was trained on windows of 30 s. A shorter one costs less, the encoder's attention by the square, but the model
needs some silence behind the words, or it repeats itself. README.md has the measurements behind these numbers, and the
command that prints them.
"""

import numpy as np
from numpy.typing import NDArray

from blueprint.contract.chunk import CHUNK_FRAME_SAMPLES
from voice_runtime.features import HOP_MS, SAMPLE_RATE, Rows

WINDOWS_S = (10, 15, 20, 30)
SLACK_S = 2
LONGEST_S = WINDOWS_S[-1] - SLACK_S
"""Utterances are cut there."""

FRAME_MS = 1000 * CHUNK_FRAME_SAMPLES // SAMPLE_RATE
LONGEST_FRAMES = LONGEST_S * 1000 // FRAME_MS
ROWS_PER_S = 1000 // HOP_MS
LONGEST_WINDOW_ROWS = WINDOWS_S[-1] * ROWS_PER_S


def window_s(rows: int) -> int:
    """Return the length of the smallest window that holds so many rows and the silence behind them, seconds."""
    return next((each for each in WINDOWS_S if rows <= (each - SLACK_S) * ROWS_PER_S), WINDOWS_S[-1])


def window_of(rows: Rows) -> NDArray[np.float32]:
    """Return what the model is given, of shape (bins, rows): clamped, scaled, and filled up with zeros.

    The steps are those of faster-whisper's feature extractor and of its padding.
    """
    window = np.zeros((rows.shape[1], window_s(len(rows)) * ROWS_PER_S), np.float32)
    taken = rows[: window.shape[1]]
    if len(taken):
        window[:, : len(taken)] = ((np.maximum(taken, taken.max() - 8) + 4) / 4).T
    return window
