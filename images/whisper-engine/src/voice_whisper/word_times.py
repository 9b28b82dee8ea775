"""Word times, refined by the energy of the audio.

Whisper's cross-attention shows the start of a word, and a word is assumed to last until the next one. A word before a
pause therefore includes the pause, and a word after a pause may start too early.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from voice_runtime.features import FeatureRows
from voice_whisper.backends.base import Word
from voice_whisper.window import ROWS_PER_S

SOUND_THRESHOLD = 0.4
"""Threshold for sound, in log10 of energy, where 0 is the quietest tenth of a window and 1 its loudest tenth."""
MIN_LEVEL_RANGE = 1.0
"""Minimum range between these two levels, log10. With a smaller range, there are no pauses to find."""
MIN_AUDIO_LEVEL = -9.0
"""Level below which there was no audio, because a pause was not sent or a chunk was lost."""
MAX_PAUSE_ROWS = 25
"""Maximum number of consecutive quiet rows within a word."""
MIN_PAUSE_ROWS = 13
"""Minimum number of quiet rows that are removed from an edge of a word, since attention locates a word within a tenth
of a second."""
CONTEXT_ROWS = 4
"""Number of quiet rows that remain at the edges of a word, since consonants are quiet."""
MIN_WORD_DURATION_S = 0.06
"""Minimum duration of a word."""


def adjust_word_times(words: Sequence[Word], rows: FeatureRows) -> tuple[Word, ...]:
    """Return words without the pauses around them, and with the minimum duration.

    Args:
        words: Times in seconds from the first row.
        rows: Log-mel features, log10.
    """
    has_sound = _detect_sound(rows)
    length_s = len(rows) / ROWS_PER_S
    return tuple(_extend_words([_trim_pauses(word, has_sound) for word in words], length_s))


def _detect_sound(rows: FeatureRows) -> NDArray[np.bool_]:
    levels = rows.max(axis=1)
    audible = levels[levels > MIN_AUDIO_LEVEL]
    if not audible.size:
        return np.zeros(len(rows), np.bool_)
    floor, peak = np.quantile(audible, (0.1, 0.9))
    if peak - floor < MIN_LEVEL_RANGE:
        return np.asarray(levels > MIN_AUDIO_LEVEL)
    return np.asarray(levels > floor + SOUND_THRESHOLD * (peak - floor))


def _trim_pauses(word: Word, has_sound: NDArray[np.bool_]) -> Word:
    first, end_row = round(word.start * ROWS_PER_S), round(word.end * ROWS_PER_S)
    sound_rows = np.flatnonzero(has_sound[first:end_row])
    if not sound_rows.size:
        return word
    runs = np.split(sound_rows, np.flatnonzero(np.diff(sound_rows) > MAX_PAUSE_ROWS) + 1)
    longest = max(runs, key=len)
    start = first + int(longest[0]) - CONTEXT_ROWS
    end = first + int(longest[-1]) + 1 + CONTEXT_ROWS
    return replace(
        word,
        start=start / ROWS_PER_S if start - first >= MIN_PAUSE_ROWS else word.start,
        end=end / ROWS_PER_S if end_row - end >= MIN_PAUSE_ROWS else word.end,
    )


def _extend_words(words: Sequence[Word], length_s: float) -> list[Word]:
    """Extend words without a duration into free time around them."""
    extended = list(words)
    for index, word in enumerate(extended):
        after = extended[index + 1].start if index + 1 < len(extended) else max(length_s, word.end)
        end = max(word.end, min(word.start + MIN_WORD_DURATION_S, after))
        free_from = extended[index - 1].end if index else 0.0
        start = min(word.start, max(end - MIN_WORD_DURATION_S, free_from))
        extended[index] = replace(word, start=start, end=end)
    for index in range(len(extended) - 1, 0, -1):  # if there was no free time, the preceding word is shortened
        before, word = extended[index - 1], extended[index]
        if word.end - word.start < MIN_WORD_DURATION_S and before.end - before.start >= 2 * MIN_WORD_DURATION_S:
            start = word.end - MIN_WORD_DURATION_S
            extended[index] = replace(word, start=min(start, word.start))
            extended[index - 1] = replace(before, end=min(before.end, extended[index].start))
    return extended
