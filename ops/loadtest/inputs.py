"""What is sent: texts and recordings."""

import base64
import io
import wave
from dataclasses import dataclass
from pathlib import Path

_PASSAGE = """
The harbour office opens at seven, long before the first ferry, and by then the night's messages are already sorted.
Most of them are short: a berth is free, a crane is late, somebody has left a bicycle on the quay. The clerk reads
each one twice, once for the words and once for the voice behind them, because a tired pilot and a worried one can use
the same sentence. Then she answers, slowly and plainly, so that nobody on a windy deck has to ask again what she said
over the noise of the engines.
"""
PASSAGE = " ".join(_PASSAGE.split())


class InputFileError(ValueError):
    """A text or recording cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Recording:
    """A WAV file of 16-bit mono PCM."""

    name: str
    wav: bytes
    pcm: bytes
    sample_rate_hz: int

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return len(self.pcm) / (2 * self.sample_rate_hz)

    @property
    def data_url(self) -> str:
        """The file as a data URL, as vLLM-Omni takes a reference voice."""
        return f"data:audio/wav;base64,{base64.b64encode(self.wav).decode()}"


def read_recording(file: Path) -> Recording:
    """Read a WAV file.

    Raises:
        InputFileError: It is missing, empty, or no 16-bit mono PCM.
    """
    try:
        content = file.read_bytes()
        with wave.open(io.BytesIO(content)) as wav:
            channels, width, rate = wav.getnchannels(), wav.getsampwidth(), wav.getframerate()
            pcm = wav.readframes(wav.getnframes())
    except OSError as error:
        raise InputFileError(f"{file}: {error.strerror}") from None
    except (wave.Error, EOFError) as error:
        raise InputFileError(f"{file} is no PCM WAV file ({error}); {_conversion(file)}") from None
    if (channels, width) != (1, 2):
        raise InputFileError(f"{file} has {channels} channels of {8 * width} bits, not 1 of 16; {_conversion(file)}")
    if not pcm:
        raise InputFileError(f"{file} holds no audio")
    return Recording(file.name, content, pcm, rate)


def read_text(file: Path) -> str:
    """Read a text.

    Raises:
        InputFileError: It is missing, empty, or not UTF-8.
    """
    try:
        text = " ".join(file.read_text(encoding="utf-8").split())
    except OSError as error:
        raise InputFileError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputFileError(f"{file} is not UTF-8 text") from None
    if not text:
        raise InputFileError(f"{file} is empty")
    return text


def rotated(text: str, index: int) -> str:
    """Return the text begun at another word: as long, but no prefix that an earlier request left in a cache."""
    words = text.split()
    start = index % len(words)
    return " ".join(words[start:] + words[:start])


def _conversion(file: Path) -> str:
    return f"convert it: ffmpeg -i {file.name} -ac 1 -ar 16000 -c:a pcm_s16le out.wav"
