"""Windows of features for Whisper.

Whisper was trained on windows of 30 s. A shorter window is cheaper, with quadratic cost of the encoder's attention, but
the model needs some silence after the words, or it repeats itself. README.md contains the measurements behind these
numbers, and the command for them.
"""

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES
from voice_runtime.features import HOP_MS, SAMPLE_RATE, Rows

WINDOWS_S = (10, 15, 20, 30)
SLACK_S = 2
MAX_LENGTH_S = WINDOWS_S[-1] - SLACK_S
"""Maximum length of an utterance."""

FRAME_MS = 1000 * CHUNK_FRAME_SAMPLES // SAMPLE_RATE
MAX_FRAMES = MAX_LENGTH_S * 1000 // FRAME_MS
ROWS_PER_S = 1000 // HOP_MS
MAX_WINDOW_ROWS = WINDOWS_S[-1] * ROWS_PER_S


def window_s(rows: int) -> int:
    """Return the length of the smallest window for a number of rows and the following silence, seconds."""
    return next((each for each in WINDOWS_S if rows <= (each - SLACK_S) * ROWS_PER_S), WINDOWS_S[-1])


def window_of(rows: Rows) -> NDArray[np.float32]:
    """Return the model's input, of shape (bins, rows): clamped, scaled, and padded with zeros.

    The steps are those of faster-whisper's feature extractor and of its padding.
    """
    window = np.zeros((rows.shape[1], window_s(len(rows)) * ROWS_PER_S), np.float32)
    window_rows = rows[: window.shape[1]]
    if len(window_rows):
        window[:, : len(window_rows)] = ((np.maximum(window_rows, window_rows.max() - 8) + 4) / 4).T
    return window
