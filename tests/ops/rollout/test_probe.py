"""A probe compares a release with the previous one."""

import pytest

from voice_ops.rollout.probe import CallMeasurement, word_error_rate


@pytest.mark.parametrize(
    ("reference", "transcript", "wrong"),
    [
        ("Go on, please.", "go on please", 0.0),
        ("one two three four", "one two four", 0.25),
        ("one two three four", "one too three three four", 0.5),
        ("one two", "", 1.0),
        ("one two", "three four five", 1.5),
    ],
)
def test_words_are_counted_regardless_of_case_and_punctuation(reference: str, transcript: str, wrong: float) -> None:
    assert word_error_rate(reference, transcript) == wrong


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (CallMeasurement(0.10, 1.0), ""),
        (CallMeasurement(0.16, 1.0), "16% of the words are wrong, 10% before"),
        (CallMeasurement(0.10, 2.0), ""),
        (CallMeasurement(0.10, 2.1), "takes 2.10 s, compared with 1.00 s before"),
    ],
)
def test_a_release_is_compared_with_the_previous_one(now: CallMeasurement, reason: str) -> None:
    assert reason in now.regression_from(CallMeasurement(0.10, 1.0))
    assert bool(reason) == bool(now.regression_from(CallMeasurement(0.10, 1.0)))
