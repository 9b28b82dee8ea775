"""A stage for prefill or decode, with its queue and worker processes."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from voice_whisper.backends.base import Role
from voice_whisper.job import MAX_ATTEMPTS, Job, JobFailedError, JobQueue
from voice_whisper.process import WorkerDiedError, WorkerProcess, WorkerStartError

RESTART_PAUSE_S = 1.0
"""Pause before a worker that could not start is restarted."""

MAX_BATCH_WAIT_S = 0.03
"""Time for which a decoder waits for windows of the preceding stage. With four windows at a time, a token takes half as
long as with one."""

log = logging.getLogger(__name__)

WorkerFactory = Callable[[int], Awaitable[WorkerProcess]]
BatchHandler = Callable[[WorkerProcess, list[Job]], Awaitable[None]]
DropHandler = Callable[[Job], None]


class Stage:
    """A stage that keeps its workers running, and sends them batches.

    Args:
        follows: Preceding stage. Without a preceding stage, jobs may arrive at any time.

    Attributes:
        queue: Waiting jobs.
        restarts: Number of restarted workers.
        pids: Process ids of the running workers.
        completed_batches: Number of completed batches.
    """

    def __init__(
        self,
        role: Role,
        batch: int,
        start: WorkerFactory,
        work: BatchHandler,
        drop: DropHandler,
        *,
        follows: "Stage | None" = None,
    ) -> None:
        self.queue = JobQueue()
        self.restarts = 0
        self.completed_batches = 0
        self.pids: set[int] = set()
        self._role = role
        self._batch = batch
        self._start = start
        self._work = work
        self._drop = drop
        self._follows = follows
        self._active_batches = 0
        self._changed = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether jobs are waiting or in progress."""
        return bool(len(self.queue) or self._active_batches)

    def put(self, job: Job) -> None:
        self.queue.put(job)
        self._changed.set()

    async def run_worker(self, number: int, ready: Callable[[WorkerProcess], None]) -> None:
        """Keep one worker running indefinitely.

        Args:
            number: Index of the worker, from 0.
            ready: Callback for a worker that has loaded its model.

        Raises:
            WorkerStartError: The worker's first start failed.
        """
        started = False
        while True:
            try:
                process = await self._start(number)
            except (WorkerStartError, WorkerDiedError) as error:
                if not started:
                    raise WorkerStartError(str(error)) from error
                log.warning("%s does not start: %s", self._role, error)
                await asyncio.sleep(RESTART_PAUSE_S)
                continue
            started = True
            ready(process)
            self.pids.add(process.pid)
            try:
                await self._send_jobs(process)
            except WorkerDiedError as error:
                self.restarts += 1
                log.warning("%s starts again: %s", self._role, error)
            finally:
                self.pids.discard(process.pid)
                await process.stop()

    async def _send_jobs(self, process: WorkerProcess) -> None:
        is_unbatched = self._role is Role.ENCODER and not process.model.supports_batch_encoding
        max_jobs = 1 if is_unbatched else self._batch
        while True:
            while not (batch := self.queue.pop_batch(max_jobs)):
                self._changed.clear()
                await process.wait_while_alive(self._changed.wait())
            self._active_batches += 1
            try:
                if self._role is not Role.ENCODER:
                    await self._extend_batch(process, batch, max_jobs)
                await self._work(process, batch)
                self.completed_batches += 1
            except WorkerDiedError:
                self._retry_batch(batch)
                raise
            finally:
                self._active_batches -= 1

    async def _extend_batch(self, process: WorkerProcess, batch: list[Job], max_jobs: int) -> None:
        """Add the jobs that arrive within a moment to a batch."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_BATCH_WAIT_S):
                while len(batch) < max_jobs and (self._follows is None or self._follows.is_busy):
                    self._changed.clear()
                    await process.wait_while_alive(self._changed.wait())
                    self.queue.extend_batch(batch, max_jobs)

    def _retry_batch(self, batch: list[Job]) -> None:
        for job in batch:
            job.failed_attempt_count += 1
            if job.failed_attempt_count >= MAX_ATTEMPTS and not job.result.done():
                job.result.set_exception(
                    JobFailedError(f"{job.failed_attempt_count} workers exited while they processed it")
                )
            if job.result.done():
                self._drop(job)
        self.queue.requeue(job for job in reversed(batch) if not job.result.done())
        self._changed.set()
