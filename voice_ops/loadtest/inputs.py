"""Inputs of requests: texts and recordings."""

import base64
from dataclasses import dataclass
from pathlib import Path

from voice_ops.call.recording import SAMPLE_RATE_HZ, read_samples

_PASSAGE = """
The harbour office opens at seven, long before the first ferry, and by then the night's messages are already sorted.
Most of them are short: a berth is free, a crane is late, somebody has left a bicycle on the quay. The clerk reads
each one twice, once for the words and once for the voice behind them, because a tired pilot and a worried one can use
the same sentence. Then she answers, slowly and plainly, so that nobody on a windy deck has to ask again what she said
over the noise of the engines.
"""
PASSAGE = " ".join(_PASSAGE.split())


@dataclass(frozen=True)
class Recording:
    """A recording as the original file, and as 16-bit PCM at 16 kHz."""

    name: str
    wav: bytes
    pcm: bytes

    @property
    def duration_s(self) -> float:
        """Duration of the recording, in seconds."""
        return len(self.pcm) / (2 * SAMPLE_RATE_HZ)

    @property
    def data_url(self) -> str:
        """The file as a data URL, as vLLM-Omni requires for a reference voice."""
        return f"data:audio/wav;base64,{base64.b64encode(self.wav).decode()}"


def read_recording(file: Path) -> Recording:
    """Read a WAV file.

    Raises:
        RecordingError: The file cannot be read, or contains no audio.
    """
    pcm = read_samples(file).astype("<i2").tobytes()
    return Recording(file.name, file.read_bytes(), pcm)


def rotate_words(text: str, index: int) -> str:
    """Rotate a text so that it starts with another word.

    The result has the same length, but shares no prefix with an earlier request that a cache may contain.
    """
    words = text.split()
    start = index % len(words)
    return " ".join(words[start:] + words[:start])
