"""Splits of a file's audio, and omitted silence."""

import numpy as np
import pytest

from voice_gateway.file_audio import AudioSplitter, Samples

RATE = 16_000
FRAME = 320


def sound(seconds: float, level: int = 1000) -> Samples:
    return np.full(round(seconds * RATE), level, np.int16)


def split_file(*parts: Samples) -> list[tuple[float, float]]:
    """Return start and length of each segment, in seconds."""
    splitter = AudioSplitter()
    found = [*splitter.push(np.concatenate(parts)), *splitter.flush()]
    assert splitter.total_duration_s == pytest.approx(sum(map(len, parts)) / RATE)
    assert all(each.end_s == pytest.approx(each.start_s + len(each.samples) / RATE) for each in found)
    return [(round(each.start_s, 3), len(each.samples) / RATE) for each in found]


def test_silence_is_sixty_decibels_below_full_scale() -> None:
    assert split_file(sound(1, 33)) == []
    assert split_file(sound(1, 34)) == [(0.0, 1.0)]


def test_segments_keep_200_ms_around_speech() -> None:
    assert split_file(sound(1, 0), sound(1), sound(1, 0)) == [(0.8, 1.4)]
    assert split_file(sound(0.1, 0), sound(1), sound(0.1, 0)) == [(0.0, 1.2)]


def test_speech_without_a_pause_is_split_within_13_s() -> None:
    assert split_file(sound(13 - FRAME / RATE)) == [(0.0, 12.98)]
    assert split_file(sound(13)) == [(0.0, 12.9), (12.9, 0.1)]


def test_speech_is_split_at_its_last_pause() -> None:
    assert split_file(sound(7), sound(0.4, 0), sound(1), sound(0.4, 0), sound(5)) == [(0.0, 8.6), (8.7, 5.1)]
    quieter = split_file(sound(8), sound(0.4, 200), sound(2), sound(0.4, 241), sound(3))
    assert quieter[0] == (0.0, 8.3), "a pause is within a fifth of the quietest"
    assert split_file(sound(8), sound(0.4, 200), sound(2), sound(0.4, 239), sound(3))[0] == (0.0, 10.7)
    assert split_file(sound(8), sound(0.4, 0), sound(2), sound(0.4, 33), sound(3))[0][1] == 10.6, "silence is as good"


def test_pauses_in_the_first_six_seconds_do_not_split_speech() -> None:
    assert split_file(sound(5.4), sound(0.4, 0), sound(7.2))[0] == (0.0, 12.9)
    assert split_file(sound(6), sound(0.2, 0), sound(6.8))[0][1] == pytest.approx(6.1)
