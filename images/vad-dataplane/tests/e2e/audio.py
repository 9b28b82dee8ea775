"""Audio for tests: synthesized speech, and near-silence."""

import array
import functools
import io
import random
import subprocess
import wave

RATE = 16_000


@functools.cache
def speech(text: str = "good morning, how can I help you today") -> bytes:
    """Return 16 kHz samples of a sentence spoken by espeak-ng."""
    spoken = subprocess.run(["espeak-ng", "--stdout", "-a", "150", text], capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(spoken)) as file:
        rate = file.getframerate()
        samples = array.array("h", file.readframes(file.getnframes()))
    count = len(samples) * RATE // rate
    at = (n * rate / RATE for n in range(count))
    resampled = array.array("h", (_between(samples, position) for position in at))
    return resampled.tobytes()


def _between(samples: "array.array[int]", position: float) -> int:
    left = int(position)
    right = min(left + 1, len(samples) - 1)
    share = position - left
    return int(samples[left] * (1 - share) + samples[right] * share)


def silence(seconds: float, seed: int = 1) -> bytes:
    """Return the background noise of a room, at about -66 dBFS."""
    chance = random.Random(seed)
    return array.array("h", (int(chance.gauss(0, 16)) for _ in range(int(seconds * RATE)))).tobytes()
