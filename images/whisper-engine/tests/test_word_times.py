"""Words have the times of their sound: no pauses, and always a duration."""

import itertools

import numpy as np
import pytest
from engine_host import sound
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.features import FeatureRows, LogMelExtractor
from voice_whisper.backends.base import Word
from voice_whisper.word_times import MAX_PAUSE_ROWS, MIN_WORD_DURATION_S, adjust_word_times

RATE = 16_000


def rows_of(*parts: np.ndarray) -> FeatureRows:
    extractor = LogMelExtractor()
    audio = np.concatenate(parts).astype(np.int16)
    return np.concatenate([extractor.push(audio), extractor.flush()])


def silence(seconds: float, level: float) -> np.ndarray:
    return np.random.default_rng(3).normal(0, level, round(seconds * RATE))


SPEECH = sound()[round(0.04 * RATE) : round(0.74 * RATE)].astype(float)
"""Of 0.7 s, without a pause."""


@pytest.mark.parametrize("level", [0.0, 3.0, 60.0], ids=["digital silence", "quiet room", "noisy line"])
def test_word_times_exclude_pauses(level: float) -> None:
    """By attention alone, the last word before a pause lasts until the next one, which may begin in the pause."""
    rows = rows_of(SPEECH + silence(0.7, level), silence(1.4, level), SPEECH + silence(0.7, level))
    before, after = adjust_word_times([Word(" machine.", 0.3, 1.9, 0.9), Word(" We", 1.9, 2.8, 0.9)], rows)
    assert before.start == 0.3
    assert before.end == pytest.approx(0.7, abs=0.12)
    assert after.start == pytest.approx(2.1, abs=0.12)
    assert after.end == pytest.approx(2.8, abs=0.12)


def test_words_without_a_pause_keep_their_times() -> None:
    words = [Word(" a", 0.0, 0.3, 0.9), Word(" word", 0.3, 0.7, 0.9)]
    assert list(adjust_word_times(words, rows_of(SPEECH))) == words


@given(
    edges=st.lists(st.integers(0, 210), min_size=2, max_size=12),
    level=st.sampled_from([0.0, 20.0]),
)
def test_words_stay_in_order_and_have_a_duration(edges: list[int], level: float) -> None:
    rows = rows_of(SPEECH + silence(0.7, level), silence(0.7, level), SPEECH + silence(0.7, level))
    times = [edge / 100 for edge in sorted(edges)]
    words = [Word(" x", start, end, 0.5) for start, end in itertools.pairwise(times)]
    found = adjust_word_times(words, rows)
    assert len(found) == len(words)
    for word in found:
        assert 0 <= word.start <= word.end
    for before, after in itertools.pairwise(found):
        assert before.start <= after.start
        assert before.end <= after.start + 1e-9
    if len(words) == 1:
        assert found[0].end - found[0].start >= min(MIN_WORD_DURATION_S, MAX_PAUSE_ROWS) - 1e-9


def test_without_audio_no_words_are_reported() -> None:
    assert adjust_word_times([], np.empty((0, 80), np.float32)) == ()


LOUD, QUIET = 0.0, -5.0


def levels(*parts: tuple[float, int]) -> FeatureRows:
    """Return rows of 10 ms with these levels, each for a number of rows."""
    return np.concatenate([np.full((count, 80), level, np.float32) for level, count in parts])


@pytest.mark.parametrize(
    ("begin", "end", "start_s", "end_s"),
    [(16, 284, 0.0, 3.0), (17, 283, 0.13, 2.87), (50, 150, 0.46, 1.54), (0, 300, 0.0, 3.0)],
)
def test_a_word_keeps_quiet_edges_of_40_ms_and_loses_longer_pauses(
    begin: int, end: int, start_s: float, end_s: float
) -> None:
    """Corrections of less than 130 ms are not applied."""
    rows = levels((QUIET, begin), (LOUD, end - begin), (QUIET, 300 - end))
    (word,) = adjust_word_times([Word(" word", 0.0, 3.0, 0.9)], rows)
    assert (word.start, word.end) == (start_s, end_s)


@pytest.mark.parametrize(
    ("begin", "end", "start_s", "end_s"),
    [(36, 264, 0.2, 2.8), (37, 263, 0.33, 2.67), (66, 136, 0.62, 1.4), (100, 136, 0.96, 1.4)],
)
def test_pauses_are_counted_from_the_edges_of_the_word(begin: int, end: int, start_s: float, end_s: float) -> None:
    rows = levels((QUIET, begin), (LOUD, end - begin), (QUIET, 300 - end))
    (word,) = adjust_word_times([Word(" word", 0.2, 2.8, 0.9)], rows)
    assert (word.start, word.end) == (start_s, end_s)


@pytest.mark.parametrize(("quiet", "end_s"), [(24, 2.5), (25, 1.54)])
def test_a_word_is_the_longest_sound_between_pauses_of_a_quarter_of_a_second(quiet: int, end_s: float) -> None:
    rows = levels((LOUD, 150), (QUIET, quiet), (LOUD, 100 - quiet), (QUIET, 50))
    (word,) = adjust_word_times([Word(" word", 0.0, 2.5, 0.9)], rows)
    assert (word.start, word.end) == (0.0, end_s)


@pytest.mark.parametrize(
    ("quiet", "level", "loud", "is_sound"),
    [
        (-5.0, -2.9, 0.0, True),
        (-5.0, -3.0, 0.0, False),
        (-5.0, -3.1, 0.0, False),
        (-5.0, -2.5, 1.0, True),
        (-5.0, -2.7, 1.0, False),
    ],
)
def test_sound_is_two_fifths_above_the_quietest_tenth(
    quiet: float, level: float, loud: float, *, is_sound: bool
) -> None:
    rows = levels((level, 50), (loud, 100), (quiet, 50))
    (word,) = adjust_word_times([Word(" word", 0.0, 2.0, 0.9)], rows)
    assert word.start == (0.0 if is_sound else 0.46)
    assert word.end == 1.54


@pytest.mark.parametrize(("quiet", "end_s"), [(-0.9, 3.0), (-1.0, 1.54), (-1.1, 1.54)])
def test_levels_within_a_tenth_of_each_other_are_no_pause(quiet: float, end_s: float) -> None:
    (word,) = adjust_word_times([Word(" word", 0.0, 3.0, 0.9)], levels((LOUD, 150), (quiet, 150)))
    assert word.end == end_s


@pytest.mark.parametrize("nothing", [-10.0, -9.0])
def test_audio_that_was_not_sent_is_a_pause(nothing: float) -> None:
    (word,) = adjust_word_times([Word(" word", 0.0, 3.0, 0.9)], levels((LOUD, 150), (nothing, 150)))
    assert word.end == 1.54


@pytest.mark.parametrize(("level", "end_s"), [(-9.5, 1.54), (-9.0, 1.54), (-8.75, 2.04)])
def test_audio_that_was_not_sent_does_not_count_as_the_quietest_tenth(level: float, end_s: float) -> None:
    rows = levels((LOUD, 150), (-2.0, 50), (level, 100))
    (word,) = adjust_word_times([Word(" word", 0.0, 3.0, 0.9)], rows)
    assert word.end == end_s


def test_words_keep_their_times_if_no_audio_was_sent() -> None:
    word = Word(" word", 0.0, 3.0, 0.9)
    assert adjust_word_times([word], levels((-10.0, 300))) == (word,)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([(0.0, 0.5), (0.5, 0.5), (0.8, 1.0)], [(0.0, 0.5), (0.5, 0.56), (0.8, 1.0)]),
        ([(0.0, 0.4), (0.5, 0.5), (0.52, 1.0)], [(0.0, 0.4), (0.46, 0.52), (0.52, 1.0)]),
        ([(0.0, 0.5), (0.5, 0.5), (0.5, 1.0)], [(0.0, 0.44), (0.44, 0.5), (0.5, 1.0)]),
        ([(0.0, 0.11), (0.11, 0.11), (0.11, 1.0)], [(0.0, 0.11), (0.11, 0.11), (0.11, 1.0)]),
        ([(0.0, 0.5), (0.9, 0.9)], [(0.0, 0.5), (0.9, 0.96)]),
        ([(0.0, 0.5), (1.0, 1.0)], [(0.0, 0.5), (0.94, 1.0)]),
        ([(0.0, 0.0), (0.3, 0.5)], [(0.0, 0.06), (0.3, 0.5)]),
        ([(0.3, 0.3), (0.3, 0.5)], [(0.24, 0.3), (0.3, 0.5)]),
        ([(0.0, 0.06), (0.1, 0.5)], [(0.0, 0.06), (0.1, 0.5)]),
        ([(0.0, 0.12), (0.12, 0.12), (0.12, 1.0)], [(0.0, 0.06), (0.06, 0.12), (0.12, 1.0)]),
        ([(0.5, 0.6), (0.6, 0.6), (0.6, 1.0)], [(0.5, 0.6), (0.6, 0.6), (0.6, 1.0)]),
        ([(0.0, 0.1), (0.2, 0.2), (0.2, 1.0)], [(0.0, 0.1), (0.14, 0.2), (0.2, 1.0)]),
        ([(0.02, 0.02), (0.02, 0.5)], [(0.0, 0.02), (0.02, 0.5)]),
        ([(0.0, 0.0), (0.0, 0.5)], [(0.0, 0.0), (0.0, 0.5)]),
        ([(0.0, 1.0), (1.0, 1.0)], [(0.0, 0.94), (0.94, 1.0)]),
        ([(0.0, 0.5), (0.5, 1.0), (1.0, 1.0)], [(0.0, 0.5), (0.5, 0.94), (0.94, 1.0)]),
    ],
)
def test_words_without_a_duration_use_free_time_after_and_before_them(
    edges: list[tuple[float, float]], expected: list[tuple[float, float]]
) -> None:
    """If there is none, the preceding word is shortened, unless it is short itself."""
    found = adjust_word_times([Word(" x", start, end, 0.5) for start, end in edges], levels((LOUD, 100)))
    assert [(round(word.start, 6), round(word.end, 6)) for word in found] == expected
