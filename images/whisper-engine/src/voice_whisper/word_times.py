"""Word times, refined by the energy of the audio.

Whisper's cross-attention shows the start of a word, and a word is assumed to last until the next one: before a pause it
contains the pause, and after a pause it may start too early.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from voice_runtime.features import Rows
from voice_whisper.backends.base import Word
from voice_whisper.window import ROWS_PER_S

LOUD = 0.4
"""Threshold of sound, relative to the quietest tenth of a window (0) and its maximum (1), in log10 of energy."""
RANGE = 1.0
"""Minimum range between these two, log10; with less, there are no pauses to find."""
NOTHING = -9.0
"""Level below which there was no audio: a pause that was not sent, or a loss."""
PAUSE_ROWS = 25
"""Number of quiet rows that no word contains."""
AROUND_ROWS = 4
"""Quiet rows that remain at a word's edges, since consonants are quiet."""
SHORTEST_S = 0.06
"""Minimum duration of a word."""


def tightened(words: Sequence[Word], rows: Rows) -> tuple[Word, ...]:
    """Return words without adjacent pauses, none shorter than the minimum.

    Args:
        words: Times in seconds from the first row.
        rows: Log-mel features, log10.
    """
    loud = _loud(rows)
    length_s = len(rows) / ROWS_PER_S
    return tuple(_lengthened([_without_pauses(word, loud) for word in words], length_s))


def _loud(rows: Rows) -> NDArray[np.bool_]:
    if not len(rows):
        return np.empty(0, np.bool_)
    levels = rows.max(axis=1)
    came = levels[levels > NOTHING]
    quiet, peak = np.quantile(came, (0.1, 0.9)) if came.size else (0.0, 0.0)
    if peak - quiet < RANGE:
        return np.asarray(levels > NOTHING)
    return np.asarray(levels > quiet + LOUD * (peak - quiet))


def _without_pauses(word: Word, loud: NDArray[np.bool_]) -> Word:
    first, behind = round(word.start * ROWS_PER_S), round(word.end * ROWS_PER_S)
    places = np.flatnonzero(loud[first:behind])
    if not places.size:
        return word
    runs = np.split(places, np.flatnonzero(np.diff(places) > PAUSE_ROWS) + 1)
    longest = max(runs, key=len)
    start = first + max(0, int(longest[0]) - AROUND_ROWS)
    end = min(behind, first + int(longest[-1]) + 1 + AROUND_ROWS)
    # Attention locates a word within a tenth of a second, so smaller corrections are not applied.
    return replace(
        word,
        start=start / ROWS_PER_S if start - first > PAUSE_ROWS // 2 else word.start,
        end=end / ROWS_PER_S if behind - end > PAUSE_ROWS // 2 else word.end,
    )


def _lengthened(words: Sequence[Word], length_s: float) -> list[Word]:
    """Extend words without a duration into free time around them."""
    found = list(words)
    for place, word in enumerate(found):
        if word.end - word.start >= SHORTEST_S:
            continue
        after = found[place + 1].start if place + 1 < len(found) else max(length_s, word.end)
        end = max(word.end, min(word.start + SHORTEST_S, after))
        free_from = found[place - 1].end if place else 0.0
        start = min(word.start, max(end - SHORTEST_S, free_from))
        found[place] = replace(word, start=start, end=end)
    for place in range(len(found) - 1, 0, -1):  # if there was none, the preceding word is shortened
        before, word = found[place - 1], found[place]
        if word.end - word.start < SHORTEST_S and before.end - before.start >= 2 * SHORTEST_S:
            start = word.end - SHORTEST_S
            found[place] = replace(word, start=min(start, word.start))
            found[place - 1] = replace(before, end=min(before.end, found[place].start))
    return found
