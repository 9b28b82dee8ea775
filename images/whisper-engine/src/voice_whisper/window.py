"""Windows of features for Whisper.

Whisper was trained on windows of 30 s. A shorter window is cheaper, since the cost of the encoder's attention is
quadratic. However, the model needs some silence after the words, or it repeats itself. README.md contains the
measurements for these lengths, and the command that repeats the measurements.
"""

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES
from voice_runtime.features import HOP_SAMPLES, SAMPLE_RATE_HZ, FeatureRows

WINDOW_LENGTHS_S = (10, 15, 20, 30)
MIN_SILENCE_S = 2
MAX_UTTERANCE_S = WINDOW_LENGTHS_S[-1] - MIN_SILENCE_S
"""Maximum length of an utterance."""

FRAMES_PER_S = SAMPLE_RATE_HZ // CHUNK_FRAME_SAMPLES
FRAME_MS = 1000 // FRAMES_PER_S
MAX_UTTERANCE_FRAMES = MAX_UTTERANCE_S * FRAMES_PER_S
ROWS_PER_S = SAMPLE_RATE_HZ // HOP_SAMPLES
MAX_WINDOW_ROWS = WINDOW_LENGTHS_S[-1] * ROWS_PER_S


def select_window_length_s(rows: int) -> int:
    """Return the length of the smallest window for a number of rows and the following silence, seconds."""
    return next(
        (each for each in WINDOW_LENGTHS_S if rows <= (each - MIN_SILENCE_S) * ROWS_PER_S), WINDOW_LENGTHS_S[-1]
    )


def create_window(rows: FeatureRows) -> NDArray[np.float32]:
    """Return the model's input, of shape (bins, rows): clamped, scaled, and padded with zeros.

    The steps are those of faster-whisper's feature extractor and of its padding.
    """
    window = np.zeros((rows.shape[1], select_window_length_s(len(rows)) * ROWS_PER_S), np.float32)
    window_rows = rows[: window.shape[1]]
    if len(window_rows):
        window[:, : len(window_rows)] = ((np.maximum(window_rows, window_rows.max() - 8) + 4) / 4).T
    return window
