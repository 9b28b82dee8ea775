"""Decodes an audio file to PCM16 at 16 kHz, one channel: ``python -m voice_gateway.decode S [CHANNEL] <FILE >SAMPLES``.

``S`` is the maximum duration of the audio in seconds. The file may still be growing, as with audio from a socket.
Samples are written as soon as their bytes have arrived. Channels are numbered from 0; without ``CHANNEL``, all channels
are mixed.

The decoder is a separate process with few privileges. It has no secrets in its environment, opens no files, and its
memory and time are limited, so that a hostile file cannot affect calls. The exit code is 1, with a message on stderr,
if the file is invalid, and 2 if the file does not have the channel.
"""

import os
import resource
import stat
import sys
from collections.abc import Iterator

import av
from av.audio.frame import AudioFrame
from av.container import InputContainer

SAMPLE_RATE_HZ = 16_000
MAX_MEMORY_BYTES = 1 << 30
MAX_CPU_S = 180
"""Maximum CPU time: five times the CPU time for decoding an hour of AAC on x86."""
NICENESS = 10
STREAMING_OPTIONS = {"formatprobesize": "65536", "probesize": "4096", "analyzeduration": "1"}
"""Options for a growing file, whose format must be detected from its start. By default, FFmpeg would wait for 5 s of
audio."""
FORMAT_WHITELIST = "aac,flac,matroska,mov,mp3,ogg,wav"
"""Demuxers that read only one file. Other demuxers also open the files that this file references."""


CHANNEL_NOT_FOUND_EXIT_CODE = 2


class ChannelNotFoundError(Exception):
    """The file does not have the requested channel."""


class InvalidFileError(Exception):
    """The file is invalid. The message contains the reason."""


def main() -> int:
    """Decode the file on stdin, and return the exit code."""
    os.nice(NICENESS)
    for resource_kind, limit in (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(resource_kind, (limit, limit))
    try:
        # No protocol is allowed, so references in a container are not followed.
        options = {"format_whitelist": FORMAT_WHITELIST, "protocol_whitelist": "none"}
        if not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            options |= STREAMING_OPTIONS
        with (
            # Unbuffered, since a buffered read waits until the buffer is full.
            open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as file,
            av.open(file, mode="r", options=options) as container,
        ):
            max_duration_s, *channels = map(int, sys.argv[1:])
            _write_samples(container, max_duration_s, next(iter(channels), None))
    except ChannelNotFoundError:
        return CHANNEL_NOT_FOUND_EXIT_CODE
    except InvalidFileError as error:
        sys.stderr.write(str(error))
        return 1
    except (av.FFmpegError, MemoryError):
        sys.stderr.write("it is no audio file that can be read here: wav, mp3, flac, ogg, m4a, mp4 and webm can")
        return 1
    return 0


def _write_samples(container: InputContainer, max_duration_s: int, channel: int | None) -> None:
    if not container.streams.audio:
        raise InvalidFileError("there is no audio in it")
    if container.duration and container.duration / av.time_base > max_duration_s:
        raise InvalidFileError(
            f"it lasts {container.duration / av.time_base:.0f} s, and the limit is {max_duration_s} s"
        )
    layout = container.streams.audio[0].layout
    if channel is not None and channel >= layout.nb_channels:
        raise ChannelNotFoundError
    written = 0
    for frame in _resample_frames(container, "mono" if channel is None else layout.name):
        written += frame.samples
        if written > max_duration_s * SAMPLE_RATE_HZ:
            raise InvalidFileError(f"it lasts longer than it says, and the limit is {max_duration_s} s")
        sys.stdout.buffer.write(bytes(frame.planes[channel or 0])[: 2 * frame.samples])
        sys.stdout.buffer.flush()
    if not written:
        raise InvalidFileError("there is no audio in it that can be decoded")


def _resample_frames(container: InputContainer, layout: str) -> Iterator[AudioFrame]:
    resampler = av.AudioResampler(format="s16p", layout=layout, rate=SAMPLE_RATE_HZ)
    for packet in container.demux(container.streams.audio[0]):
        try:
            frames = packet.decode()
        except av.InvalidDataError:
            continue  # skipped, as players do
        for frame in frames:
            if isinstance(frame, AudioFrame):  # true for all frames of an audio stream
                yield from resampler.resample(frame)
    yield from resampler.resample(None)


if __name__ == "__main__":
    sys.exit(main())
