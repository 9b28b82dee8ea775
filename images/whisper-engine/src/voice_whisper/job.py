"""One window of speech on its way through prefill and decode."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from voice_whisper.backends.base import Decoded, Word
from voice_whisper.messages import States

MOST_ATTEMPTS = 3
"""A window that three workers have died of is given up."""


STALE_S = 3.0
"""A partial that no worker has taken within that time is left out: the next one hears more."""


class Wanted(IntEnum):
    """What a transcript is wanted for; who is wanted sooner goes first."""

    FINAL = 0
    """The last word on an utterance."""
    PARTIAL = 1
    """What is heard of it so far."""
    FILE = 2
    """A piece of a file: nobody speaks meanwhile."""


class StaleError(Exception):
    """A partial has waited for too long."""


class GivenUpError(Exception):
    """Workers die of this window, or the engine beside ours refuses it."""


@dataclass(frozen=True)
class Heard:
    """What a window says.

    Attributes:
        stages_ms: How long each stage took it, waiting as ``queue``.
        words: Where its words are; none: the engine does not tell.
        processing_s: Its share of what the workers did, which do several windows at a time.
    """

    text: str
    language: str | None
    stages_ms: dict[str, float]
    processing_s: float
    words: tuple[Word, ...] = ()


@dataclass(eq=False)
class Job:
    """A window to be transcribed.

    Attributes:
        window: Features of shape (bins, rows).
        audio_rows: How many of them hold audio.
        heard: The answer. Whoever asked may have cancelled it.
        slot: Its place in shared memory, once it has one.
        states: Its hidden states there, once it has them.
        attempts: Workers that died of it, or of what was in the batch with it.
        asked_at: When it was made.
    """

    window: NDArray[np.float32]
    audio_rows: int
    wanted: Wanted
    language: str | None
    heard: asyncio.Future[Heard]
    slot: int | None = None
    states: States | None = None
    attempts: int = 0
    asked_at: float = field(default_factory=time.monotonic)
    stages_ms: dict[str, float] = field(default_factory=dict)
    processing_s: float = 0.0

    def took(self, stages_ms: dict[str, float], batch: int) -> None:
        """Take note of stages that it has been through, in a batch of so many."""
        self.stages_ms |= stages_ms
        self.processing_s += sum(stages_ms.values()) / 1000 / batch

    def answer(self, said: Decoded) -> None:
        """Tell whoever still waits for it."""
        total_ms = 1000 * (time.monotonic() - self.asked_at)
        stages_ms = {"queue": total_ms - sum(self.stages_ms.values()), **self.stages_ms}
        if not self.heard.done():
            self.heard.set_result(Heard(said.text, said.language, stages_ms, self.processing_s, said.words))


class JobQueue:
    """Jobs that wait for one stage, in the order in which they are wanted."""

    def __init__(self) -> None:
        self._queues: dict[Wanted, deque[Job]] = {wanted: deque() for wanted in Wanted}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, job: Job) -> None:
        """Add a job at the end."""
        self._queues[job.wanted].append(job)

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Add jobs whose worker has died at the front."""
        for job in jobs:
            self._queues[job.wanted].appendleft(job)

    def remove(self, job: Job) -> bool:
        """Take a job out, and return whether it was there."""
        queue = self._queues[job.wanted]
        if job not in queue:
            return False
        queue.remove(job)
        return True

    def take(self, most: int) -> list[Job]:
        """Take the first job, and others of the same length with it, up to a number.

        A job that a worker may have died of goes alone: it must not take others with it again.
        """
        batch: list[Job] = []
        self.add_to(batch, most)
        return batch

    def add_to(self, batch: list[Job], most: int) -> None:
        """Take what goes with a batch into it, until it has so many."""
        for queue in self._queues.values():
            for job in list(queue):
                if len(batch) < most and (not batch or _goes_with(batch[0], job)):
                    queue.remove(job)
                    batch.append(job)


def _goes_with(first: Job, job: Job) -> bool:
    # What somebody waits for on the telephone does not wait for a file.
    alike = (first.wanted is Wanted.FILE) == (job.wanted is Wanted.FILE)
    return alike and first.attempts == job.attempts == 0 and first.window.shape == job.window.shape
