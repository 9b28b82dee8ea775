"""Recordings in any supported format are decoded to the same audio."""

import wave
from pathlib import Path

import numpy as np
import pytest

from voice_ops.call.recording import SAMPLE_RATE_HZ, SAMPLES_PER_FRAME, RecordingError, read_samples

TONE_HZ, AMPLITUDE = 440, 0.5


def write(file: Path, *, rate: int = SAMPLE_RATE_HZ, channels: int = 1, width: int = 2, seconds: float = 1.0) -> Path:
    sound = AMPLITUDE * np.sin(2 * np.pi * TONE_HZ * np.arange(int(rate * seconds)) / rate)
    full = 2 ** (8 * width - 1) - 1
    whole = np.repeat(np.rint(sound * full).astype("<i8")[:, None], channels, axis=1)
    if width == 1:
        whole = whole + 128
    data = whole.reshape(-1, 1).view(np.uint8)[:, :width].tobytes()
    with wave.open(str(file), "wb") as out:
        out.setparams((channels, width, rate, 0, "NONE", ""))
        out.writeframes(data)
    return file


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize(("channels", "width"), [(1, 1), (1, 2), (2, 2), (1, 3), (2, 4)])
def test_every_format_decodes_to_the_same_audio(tmp_path: Path, rate: int, channels: int, width: int) -> None:
    heard = read_samples(write(tmp_path / "a.wav", rate=rate, channels=channels, width=width))
    assert heard.dtype == np.int16
    assert heard.size == SAMPLE_RATE_HZ
    middle = heard[4000:12_000].astype(float)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(middle.size)))
    assert np.argmax(spectrum) * SAMPLE_RATE_HZ / middle.size == pytest.approx(TONE_HZ, abs=2)
    assert np.abs(middle).max() == pytest.approx(AMPLITUDE * 2**15, rel=0.02)


def test_last_frame_is_padded(tmp_path: Path) -> None:
    heard = read_samples(write(tmp_path / "a.wav", seconds=0.03))
    assert heard.size == 2 * SAMPLES_PER_FRAME
    assert not heard[480:].any()


def test_unusable_recordings_are_refused(tmp_path: Path) -> None:
    text, empty, short = tmp_path / "a.txt", tmp_path / "b.wav", tmp_path / "c.wav"
    text.write_text("no sound")
    write(empty, seconds=0)
    short.write_bytes(write(tmp_path / "d.wav").read_bytes()[:20])
    for file, message in (
        (tmp_path / "gone.wav", "No such file"),
        (tmp_path, "Is a directory"),
        (text, "is not a PCM WAV file"),
        (short, "is not a PCM WAV file: it is truncated"),
        (empty, "contains no audio"),
    ):
        with pytest.raises(RecordingError, match=message):
            read_samples(file)


def test_recordings_longer_than_an_hour_are_refused_before_reading(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="the maximum is 3600 s"):
        read_samples(write(tmp_path / "a.wav", rate=1, seconds=4000))
