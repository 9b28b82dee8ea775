"""Decodes untrusted containers in a separate process (``voice_gateway.decode``)."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import IO

from voice_gateway.audio import InvalidAudioError

READ_SIZE_BYTES = 1 << 17
QUIET_PERIOD_S = 0.1
"""Time without output after which a decoder is assumed to have processed all of its input."""
SETTLE_TIMEOUT_S = 1.0


CHANNEL_NOT_FOUND_EXIT_CODE = 2
"""Exit code of a decoder for a missing channel. The value is repeated here, since the decoder's module imports
FFmpeg."""


class ChannelNotFoundError(Exception):
    """The file does not have the requested channel."""


async def start_decoder(max_duration_s: int, stdin: IO[bytes] | int, channel: int | None = None) -> Process:
    """Start a decoder.

    Args:
        max_duration_s: Maximum duration of the audio, seconds.
        stdin: File or pipe that contains the container.
        channel: Channel to decode, from 0; ``None`` to mix all.
    """
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "voice_gateway.decode",
            str(max_duration_s),
            *([] if channel is None else [str(channel)]),
        ),
        stdin=stdin,
        stdout=PIPE,
        stderr=PIPE,
        limit=READ_SIZE_BYTES,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
    )


async def read_samples(process: Process) -> AsyncGenerator[bytes]:
    """Yield the decoded PCM16 in whole samples, as soon as the decoder writes them.

    Raises:
        InvalidAudioError: The container cannot be decoded.
        ChannelNotFoundError: The container does not have the channel.
    """
    assert process.stdout  # noqa: S101  a pipe was requested
    assert process.stderr  # noqa: S101
    remainder = b""
    while data := await process.stdout.read(READ_SIZE_BYTES):
        samples = remainder + data
        remainder = samples[len(samples) & ~1 :]
        yield samples[: len(samples) & ~1]
    message = (await process.stderr.read()).decode(errors="replace")
    if await process.wait() == CHANNEL_NOT_FOUND_EXIT_CODE:
        raise ChannelNotFoundError(message)
    if process.returncode:
        raise InvalidAudioError(message if process.returncode == 1 else "its decoder gave up on it")


async def stop_decoder(process: Process) -> None:
    """Terminate a decoder in any state."""
    if process.returncode is None:
        process.kill()
        await process.wait()


class IncrementalDecoder:
    """A container that arrives in pieces and is decoded incrementally.

    Args:
        max_duration_s: Maximum duration of the audio, seconds.
        on_samples: Callback that receives decoded PCM16; the decoder waits until the callback returns.
    """

    def __init__(self, max_duration_s: int, on_samples: Callable[[bytes], Awaitable[None]]) -> None:
        self._max_duration_s = max_duration_s
        self._on_samples = on_samples
        self._process: Process | None = None
        self._read_task: asyncio.Task[None] | None = None
        self._read_at = 0.0

    async def add(self, piece: bytes) -> None:
        """Decode a piece, and wait while the decoder is busy.

        Raises:
            InvalidAudioError: The data so far is not a decodable container.
        """
        if self._process is None:
            self._process = await start_decoder(self._max_duration_s, PIPE)
            self._read_task = asyncio.create_task(self._read(self._process))
        await self._raise_if_ended()
        assert self._process.stdin  # noqa: S101  a pipe was requested
        with contextlib.suppress(ConnectionError):  # the next piece reports the reason
            self._process.stdin.write(piece)
            await self._process.stdin.drain()

    async def wait_until_read(self) -> None:
        """Wait until the decoder has read all data that was written to it."""
        loop = asyncio.get_running_loop()
        end, begin = loop.time() + SETTLE_TIMEOUT_S, loop.time()
        while self._read_task and not self._read_task.done() and loop.time() < end:
            if loop.time() - max(begin, self._read_at) >= QUIET_PERIOD_S:
                return
            await asyncio.sleep(QUIET_PERIOD_S / 4)

    async def finish(self) -> None:
        """Decode the remaining data.

        Raises:
            InvalidAudioError: The data is not a decodable container.
        """
        if self._process and self._read_task:
            assert self._process.stdin  # noqa: S101
            self._process.stdin.close()
            await self._read_task

    async def stop(self) -> None:
        """Terminate the decoder."""
        if self._read_task:
            self._read_task.cancel()
        if self._process:
            await stop_decoder(self._process)

    async def _raise_if_ended(self) -> None:
        if self._read_task and self._read_task.done():
            await self._read_task
            raise InvalidAudioError("the container has ended")

    async def _read(self, process: Process) -> None:
        async for samples in read_samples(process):
            self._read_at = asyncio.get_running_loop().time()
            await self._on_samples(samples)
