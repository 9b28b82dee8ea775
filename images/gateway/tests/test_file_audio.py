"""Splits of a file's audio, and omitted silence."""

import io
from collections.abc import AsyncIterator
from typing import IO

import numpy as np
import pytest

from voice_gateway import decoder_process, file_audio
from voice_gateway.audio import InvalidAudioError
from voice_gateway.file_audio import AudioSplitter, Samples, SpeechSegment
from voice_gateway.refusals import Refusal

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


class FakeDecoder:
    """A decoder process that writes samples, and may then fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *parts: Samples, error: str = "") -> None:
        self.parts = parts
        self.error = error
        self.arguments: tuple[object, ...] = ()
        self.is_stopped = False
        monkeypatch.setattr(decoder_process, "start_decoder", self._start)
        monkeypatch.setattr(decoder_process, "read_samples", self._read)
        monkeypatch.setattr(decoder_process, "stop_decoder", self._stop)

    async def _start(self, max_duration_s: int, file: IO[bytes], channel: int | None) -> object:
        self.arguments = (max_duration_s, file, channel)
        return self

    async def _read(self, process: object) -> AsyncIterator[bytes]:
        assert process is self
        for part in self.parts:
            yield part.astype("<i2").tobytes()
        if self.error:
            raise InvalidAudioError(self.error)

    async def _stop(self, process: object) -> None:
        self.is_stopped = process is self


async def test_a_file_is_decoded_for_an_hour_and_a_minute_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders round the duration of an hour up."""
    decoder, file, splitter = FakeDecoder(monkeypatch, sound(12), sound(2)), io.BytesIO(), AudioSplitter()
    found: list[SpeechSegment] = [each async for each in file_audio.split_file(file, splitter, 1)]
    assert [(each.start_s, round(each.end_s, 2)) for each in found] == [(0.0, 12.9), (12.9, 14.0)]
    assert (decoder.arguments, splitter.total_duration_s, decoder.is_stopped) == ((3660, file, 1), 14.0, True)


async def test_a_file_that_cannot_be_decoded_is_the_clients_error(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = FakeDecoder(monkeypatch, sound(1), error="it is no audio file")
    with pytest.raises(Refusal) as caught:
        _ = [each async for each in file_audio.split_file(io.BytesIO(), AudioSplitter())]
    assert (caught.value.status_code, caught.value.detail) == (400, "file: it is no audio file")
    assert decoder.is_stopped
