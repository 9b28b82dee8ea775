"""Writes ``golden.bin``: signals and their features from faster-whisper's own extractor.

Needs the packages without their dependencies::

    uv venv --python 3.11 build/golden
    uv pip install --python build/golden --no-deps faster-whisper==1.2.1 numpy==2.4.6
    build/golden/bin/python images/vad-dataplane/tests/features/make_golden.py

For each signal the file holds: the number of samples and the number of frames (u32 each), the samples (i16), the
frames (80 f32 each). Little-endian. The same on every run: the signals come from seeded generators.
"""

import importlib
import importlib.metadata
import runpy
import struct
from pathlib import Path
from typing import Any

RATE = 16000
HOP = 160
GOLDEN = Path(__file__).with_name("golden.bin")

Array = Any
"""numpy is not a dependency of the project, so its types are unknown here."""

np: Any = importlib.import_module("numpy")
# Loads only this file: the package itself imports everything that a transcription needs.
_SOURCE = importlib.metadata.distribution("faster-whisper").locate_file("faster_whisper/feature_extractor.py")
extractor: Any = runpy.run_path(str(_SOURCE))["FeatureExtractor"]()


def speech_like(samples: int) -> Array:
    """Return a gliding voice with two resonances, in syllables, over faint noise."""
    random = np.random.default_rng(1)
    time = np.arange(samples) / RATE
    pitch = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 1.5 * time)) / RATE
    voice = np.zeros(samples)
    for harmonic in range(1, 40):
        hz = 120 * harmonic
        gain = np.exp(-(((hz - 600) / 400) ** 2)) + 0.3 * np.exp(-(((hz - 2400) / 600) ** 2)) + 0.01
        voice += gain * np.sin(harmonic * pitch)
    syllables = np.clip(np.sin(2 * np.pi * 3.3 * time), 0, None) ** 2
    return 0.08 * voice * syllables + 0.001 * random.standard_normal(samples)


def signals() -> list[Array]:
    """Return the signals, as fractions of full scale: speech, all boundary lengths, and extremes."""
    random = np.random.default_rng(2)
    speech = speech_like(RATE)
    lengths = (40, 41, 159, 160, 199, 200, 201, 319, 320, 359, 360, 361, 640, 1599, 1600, 1640)
    return [
        speech,
        *(0.1 * random.standard_normal(length) for length in lengths),
        np.zeros(800),
        1e-4 * random.standard_normal(1600),
        np.sign(np.sin(2 * np.pi * 437 * np.arange(1600) / RATE)),
        4 * random.standard_normal(1600),
    ]


def frames_of(samples: Array) -> Array:
    """Return the log-mel frames of 16-bit samples, before the extractor's final clamp and scale."""
    waveform = samples.astype(np.float32) / 32768
    window = np.hanning(extractor.n_fft + 1)[:-1].astype(np.float32)
    padded = np.pad(waveform, (0, HOP))
    spectrum = extractor.stft(padded, extractor.n_fft, HOP, window=window, return_complex=True).astype("complex64")
    energies = extractor.mel_filters @ np.abs(spectrum[..., :-1]) ** 2
    frames = np.log10(np.clip(energies, 1e-10, None))
    whole = (np.maximum(frames, frames.max() - 8) + 4) / 4
    if not np.array_equal(whole, extractor(waveform)):
        msg = "the steps above are not those of the extractor any more"
        raise RuntimeError(msg)
    return frames.T


def main() -> None:
    """Write the file."""
    with GOLDEN.open("wb") as file:
        for signal in signals():
            samples = np.clip(np.round(signal * 32768), -32768, 32767).astype("<i2")
            frames = frames_of(samples).astype("<f4")
            file.write(struct.pack("<II", len(samples), len(frames)))
            file.write(samples.tobytes() + frames.tobytes())


if __name__ == "__main__":
    main()
