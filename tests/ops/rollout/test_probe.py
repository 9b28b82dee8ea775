"""What a probe takes for worse than the release before."""

import pytest

from ops.rollout.probe import Measured, words_wrong


@pytest.mark.parametrize(
    ("said", "heard", "wrong"),
    [
        ("Go on, please.", "go on please", 0.0),
        ("one two three four", "one two four", 0.25),
        ("one two three four", "one too three three four", 0.5),
        ("one two", "", 1.0),
        ("one two", "three four five", 1.5),
    ],
)
def test_words_are_counted_whatever_their_case_and_punctuation(said: str, heard: str, wrong: float) -> None:
    assert words_wrong(said, heard) == wrong


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (Measured(0.10, 1.0), ""),
        (Measured(0.16, 1.0), "16% of the words are wrong, 10% before"),
        (Measured(0.10, 2.0), ""),
        (Measured(0.10, 2.1), "after 2.10 s, after 1.00 s before"),
    ],
)
def test_a_release_is_judged_by_the_one_before(now: Measured, why: str) -> None:
    assert why in now.is_worse_than(Measured(0.10, 1.0))
    assert bool(why) == bool(now.is_worse_than(Measured(0.10, 1.0)))
