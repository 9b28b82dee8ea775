"""A window of speech during prefill and decode."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from voice_whisper.backends.base import DecodedText, Word
from voice_whisper.messages import StatesLayout

MAX_ATTEMPTS = 3
"""Number of crashed workers after which a window is abandoned."""


MAX_PARTIAL_WAIT_S = 3.0
"""Maximum time for which a partial waits for a worker. After that, the partial is skipped, since the next one covers
more audio."""


class Priority(IntEnum):
    """Purpose of a transcript, in order of priority."""

    FINAL = 0
    """The final transcript of an utterance."""
    PARTIAL = 1
    """The transcript of an utterance so far."""
    FILE = 2
    """A piece of a file, without a waiting speaker."""


class StaleJobError(Exception):
    """A partial has waited for too long."""


class JobFailedError(Exception):
    """Workers crash on this window, or the other engine rejects it."""


@dataclass(frozen=True)
class WindowTranscript:
    """Transcript of a window.

    Attributes:
        stages_ms: Duration of each stage; the waiting time is ``queue``.
        words: Words with times; empty if the engine does not report them.
        processing_s: The window's share of the workers' processing time, since workers process batches.
    """

    text: str
    language: str | None
    stages_ms: dict[str, float]
    processing_s: float
    words: tuple[Word, ...] = ()


@dataclass(eq=False)
class Job:
    """A window to transcribe.

    Attributes:
        window: Features of shape (bins, rows).
        audio_rows: Number of rows that contain audio.
        result: Future of the transcript, which may be cancelled.
        slot: Its slot in shared memory, once assigned.
        states: Its hidden states in the slot, once available.
        failed_attempt_count: Number of workers that crashed on the window or its batch.
        requested_at: Time of creation.
        prompt: Words that are likely to occur.
    """

    window: NDArray[np.float32]
    audio_rows: int
    priority: Priority
    language: str | None
    result: asyncio.Future[WindowTranscript]
    slot: int | None = None
    states: StatesLayout | None = None
    failed_attempt_count: int = 0
    requested_at: float = field(default_factory=time.monotonic)
    stages_ms: dict[str, float] = field(default_factory=dict)
    processing_s: float = 0.0
    prompt: str = ""

    def add_durations(self, stages_ms: dict[str, float], batch: int) -> None:
        """Record the stage durations for a batch of this size."""
        self.stages_ms |= stages_ms
        self.processing_s += sum(stages_ms.values()) / 1000 / batch

    def set_result(self, decoded: DecodedText) -> None:
        """Set the result, unless it was cancelled."""
        total_ms = 1000 * (time.monotonic() - self.requested_at)
        stages_ms = {"queue": total_ms - sum(self.stages_ms.values()), **self.stages_ms}
        if not self.result.done():
            self.result.set_result(
                WindowTranscript(decoded.text, decoded.language, stages_ms, self.processing_s, decoded.words)
            )


class JobQueue:
    """Queue for a stage, ordered by priority."""

    def __init__(self) -> None:
        self._queues: dict[Priority, deque[Job]] = {wanted: deque() for wanted in Priority}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, job: Job) -> None:
        """Append a job."""
        self._queues[job.priority].append(job)

    def requeue(self, jobs: Iterable[Job]) -> None:
        """Insert jobs from a crashed worker at the front of the queue."""
        for job in jobs:
            self._queues[job.priority].appendleft(job)

    def remove(self, job: Job) -> bool:
        """Remove a job, and return True if it was queued."""
        queue = self._queues[job.priority]
        if job not in queue:
            return False
        queue.remove(job)
        return True

    def pop_batch(self, max_jobs: int) -> list[Job]:
        """Remove and return the first job and further jobs of the same length, up to ``max_jobs`` in total.

        A job that may have crashed a worker is processed alone, so that it cannot affect others again.
        """
        batch: list[Job] = []
        self.extend_batch(batch, max_jobs)
        return batch

    def extend_batch(self, batch: list[Job], max_jobs: int) -> None:
        """Move matching jobs from the queue to a batch, up to a total of ``max_jobs``."""
        for queue in self._queues.values():
            for job in list(queue):
                if len(batch) < max_jobs and (not batch or _can_share_batch(batch[0], job)):
                    queue.remove(job)
                    batch.append(job)


def _can_share_batch(first: Job, job: Job) -> bool:
    # A live transcript does not wait for a file.
    can_share = (first.priority is Priority.FILE) == (job.priority is Priority.FILE)
    can_share = can_share and first.prompt == job.prompt
    return (
        can_share
        and first.failed_attempt_count == job.failed_attempt_count == 0
        and first.window.shape == job.window.shape
    )
