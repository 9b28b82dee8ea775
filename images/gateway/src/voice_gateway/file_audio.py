"""A file's audio, decoded as it is needed and cut where nobody speaks."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from voice_gateway.audio import RATE
from voice_gateway.refusals import Refusal

READ_BYTES = 1 << 17

LONGEST_S = 13
"""With the silence that Whisper needs behind it a window of 15 s: one of 30 s costs three times as much a second, and a
caller who speaks up meanwhile waits for its end."""
SHORTEST_S = 6
"""A cut is looked for behind that."""
PAUSE_FRAMES = 10
"""A cut is in the middle of so many frames, 20 ms each, that are quiet together."""
LEFT_FRAMES = 10
"""Silence that is left around speech."""
SILENT = 33.0
"""Root mean square of a frame in which nobody speaks: -60 dB."""
FRAME = RATE // 50

Samples = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Cut:
    """A stretch of a file in which something is heard.

    Attributes:
        start_s: Where it begins in the file.
    """

    start_s: float
    samples: Samples

    @property
    def end_s(self) -> float:
        return self.start_s + len(self.samples) / RATE


class Cutter:
    """Cuts audio where it is quietest, and leaves out what is silent.

    Attributes:
        length_s: Of all that it was given.
    """

    def __init__(self) -> None:
        self._held = np.empty(0, np.int16)
        self._at = 0

    @property
    def length_s(self) -> float:
        return (self._at + len(self._held)) / RATE

    def take(self, samples: Samples) -> Iterator[Cut]:
        """Add samples, and yield what is long enough."""
        self._held = np.concatenate([self._held, samples])
        while len(self._held) >= LONGEST_S * RATE:
            yield from self._cut(FRAME * _quietest(_levels(self._held[: LONGEST_S * RATE])))

    def end(self) -> Iterator[Cut]:
        """Yield what is left."""
        yield from self._cut(len(self._held))

    def _cut(self, length: int) -> Iterator[Cut]:
        samples, start = self._held[:length], self._at
        self._held, self._at = self._held[length:], self._at + length
        loud = np.flatnonzero(_levels(samples) > SILENT)
        if loud.size:
            begin = max(0, int(loud[0]) - LEFT_FRAMES) * FRAME
            yield Cut((start + begin) / RATE, samples[begin : (int(loud[-1]) + 1 + LEFT_FRAMES) * FRAME])


def _levels(samples: Samples) -> NDArray[np.float64]:
    """Return how loud each frame is."""
    padded = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    return np.asarray(np.sqrt((padded.astype(np.float64) ** 2).mean(axis=1)))


def _quietest(levels: NDArray[np.float64]) -> int:
    """Return the frame to cut at: late, and in a pause."""
    pauses = np.convolve(levels, np.ones(PAUSE_FRAMES) / PAUSE_FRAMES, "valid")
    first = SHORTEST_S * RATE // FRAME
    quiet = max(SILENT, 1.2 * pauses[first:].min())
    return first + int(np.flatnonzero(pauses[first:] <= quiet)[-1]) + PAUSE_FRAMES // 2


async def cuts(file: BinaryIO, cutter: Cutter) -> AsyncGenerator[Cut]:
    """Decode a file, no faster than its pieces are taken.

    Raises:
        Refusal: It cannot be decoded, or is longer than an hour.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voice_gateway.decode"),
        stdin=file,
        stdout=PIPE,
        stderr=PIPE,
        limit=READ_BYTES,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout  # noqa: S101  a pipe was asked for
    assert process.stderr  # noqa: S101
    half = b""
    try:
        while read := await process.stdout.read(READ_BYTES):
            samples = half + read
            half = samples[len(samples) & ~1 :]
            for cut in cutter.take(np.frombuffer(samples[: len(samples) & ~1], "<i2")):
                yield cut
        why = (await process.stderr.read()).decode(errors="replace")
        if await process.wait():
            raise Refusal(400, "bad file", f"file: {why if process.returncode == 1 else 'its decoder gave up on it'}")
        for cut in cutter.end():
            yield cut
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
