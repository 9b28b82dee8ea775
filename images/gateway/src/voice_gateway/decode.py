"""Turns an audio file into PCM16 at 16 kHz, one channel: ``python -m voice_gateway.decode <FILE >SAMPLES``.

A process of its own with little to lose: it has no secrets in its environment and opens nothing, its memory and its
time are bounded, and whatever a hostile file does to it, calls go on beside it. It ends with 1 and a sentence where the
file is at fault.
"""

import os
import resource
import sys
from collections.abc import Iterator

import av
from av.audio.frame import AudioFrame
from av.container import InputContainer

RATE = 16_000
MOST_S = 3660
"""An hour, and a minute for encoders that round it up."""
MEMORY_BYTES = 1 << 30
CPU_S = 180
"""An hour of AAC takes five of x86."""
NICE = 10
FORMATS = "aac,flac,matroska,mov,mp3,ogg,wav"
"""Demuxers that read one file: others open what the file names."""


class BadFileError(Exception):
    """The file is at fault; the message says how."""


def main() -> int:
    """Decode until the end; return 1 where the file cannot be read."""
    os.nice(NICE)
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))
    try:
        # No protocol is allowed: what a container refers to stays where it is.
        options = {"format_whitelist": FORMATS, "protocol_whitelist": "none"}
        with av.open(sys.stdin.buffer, mode="r", options=options) as container:
            _write(container)
    except BadFileError as error:
        sys.stderr.write(str(error))
        return 1
    except (av.FFmpegError, MemoryError):
        sys.stderr.write("it is no audio file that can be read here: wav, mp3, flac, ogg, m4a, mp4 and webm can")
        return 1
    return 0


def _write(container: InputContainer) -> None:
    if not container.streams.audio:
        raise BadFileError("there is no audio in it")
    if container.duration and container.duration / av.time_base > MOST_S:
        raise BadFileError(f"it lasts {container.duration / av.time_base:.0f} s, and an hour is the most")
    written = 0
    for frame in _resampled(container):
        written += frame.samples
        if written > MOST_S * RATE:
            raise BadFileError("it lasts longer than it says, and an hour is the most")
        sys.stdout.buffer.write(bytes(frame.planes[0])[: 2 * frame.samples])
    sys.stdout.buffer.flush()
    if not written:
        raise BadFileError("there is no audio in it that can be decoded")


def _resampled(container: InputContainer) -> Iterator[AudioFrame]:
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    for packet in container.demux(container.streams.audio[0]):
        try:
            frames = packet.decode()
        except av.InvalidDataError:
            continue  # as players do
        for frame in frames:
            yield from resampler.resample(frame)
    yield from resampler.resample(None)


if __name__ == "__main__":
    sys.exit(main())
