"""Streaming features against the data plane's golden file, which faster-whisper's own extractor wrote."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from voice_runtime.features import FeatureRows, LogMelExtractor

GOLDEN = Path(__file__).parents[2] / "vad-dataplane/tests/features/golden.bin"
Signal = tuple[NDArray[np.int16], FeatureRows]


def signals() -> Iterator[Signal]:
    wire, at = GOLDEN.read_bytes(), 0
    while at < len(wire):
        samples, rows = struct.unpack_from("<II", wire, at)
        sound = np.frombuffer(wire, "<i2", samples, at + 8)
        features = np.frombuffer(wire, "<f4", rows * 80, at + 8 + 2 * samples).reshape(rows, 80)
        yield sound, features
        at += 8 + 2 * samples + features.nbytes


SIGNALS = list(signals())

ORDER_OF_ADDITION = 2e-5
"""A row sums 201 positive products, and the order in which BLAS adds them depends on the number of rows. Each sum has a
relative error of at most 201 * 2**-24, its logarithm an error of 201 * 2**-24 / ln 10 plus up to 4 * 2**-20 from NumPy,
so two results differ by 1.8e-5 at most."""


def streamed(sound: NDArray[np.int16], pieces: list[int]) -> FeatureRows:
    extractor = LogMelExtractor()
    rows = [extractor.push(sound[start:end]) for start, end in pairwise([0, *pieces, len(sound)])]
    return np.concatenate([*rows, extractor.flush()])


@pytest.mark.parametrize("signal", SIGNALS, ids=[f"{len(sound)} samples" for sound, _ in SIGNALS])
def test_features_match_the_reference_extractor(signal: Signal) -> None:
    sound, features = signal
    np.testing.assert_allclose(streamed(sound, []), features, atol=1e-3)


@pytest.mark.parametrize("step", [1, 7, 160, 320, 1600])
def test_chunk_sizes_do_not_change_features(step: int) -> None:
    sound, _ = SIGNALS[0]
    whole = streamed(sound, [])
    pieces = streamed(sound, list(range(step, len(sound), step)))
    np.testing.assert_allclose(pieces, whole, rtol=0, atol=ORDER_OF_ADDITION)


def test_row_is_returned_with_its_last_sample() -> None:
    extractor = LogMelExtractor()
    assert len(extractor.push(np.ones(199, np.int16))) == 0
    assert len(extractor.push(np.ones(1, np.int16))) == 1
    assert [len(extractor.push(np.ones(1600, np.int16))) for _ in range(3)] == [10, 10, 10]


def test_flush_resets_the_extractor() -> None:
    extractor = LogMelExtractor()
    sound, _ = SIGNALS[0]
    first = np.concatenate([extractor.push(sound), extractor.flush()])
    np.testing.assert_array_equal(np.concatenate([extractor.push(sound), extractor.flush()]), first)
    assert len(extractor.flush()) == 0
