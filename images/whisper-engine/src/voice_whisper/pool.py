"""Whisper's worker processes by stage, and the memory that they share with the main process."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from voice_blueprint.contract.chunk import CHUNK_MEL_BINS, ChunkKind
from voice_whisper.backends.base import Role
from voice_whisper.job import STALE_S, Job, Priority, StaleError, WindowTranscript
from voice_whisper.memory import SharedSlots
from voice_whisper.messages import Request
from voice_whisper.process import Process
from voice_whisper.settings import DECODER_BATCH, ENCODER_BATCH, EngineSettings, Layout, threads_per_worker
from voice_whisper.stage import Stage, Start
from voice_whisper.utterance import LONG_FRAMES, OVERLAP_FRAMES, Utterance
from voice_whisper.window import MAX_FRAMES, window_of
from voice_whisper.word_times import tighten_words

STALLED_S = 30
"""Time without a completed batch after which a stage with work is stuck. A batch takes seconds; a worker that hangs is
killed after a minute, and a restarted one takes as long as loading its model."""
POLL_INTERVAL_S = 1.0


@dataclass(frozen=True)
class StageWorkers:
    """The workers of one stage.

    Attributes:
        count: Number of processes.
        batch: Maximum utterances per batch.
    """

    role: Role
    count: int
    batch: int


def worker_crews(settings: EngineSettings) -> tuple[StageWorkers, ...]:
    """Return the workers of each stage for a layout.

    Both layouts have the same number of processes, and therefore use the same cores.
    """
    if settings.layout is Layout.COLOCATED:
        return (StageWorkers(Role.COLOCATED, settings.encoders + settings.decoders, ENCODER_BATCH),)
    return (
        StageWorkers(Role.ENCODER, settings.encoders, ENCODER_BATCH),
        StageWorkers(Role.DECODER, settings.decoders, DECODER_BATCH),
    )


class WorkerPool:
    """A pool of workers in stages, through which a window of speech passes in order.

    Each window has a slot in shared memory, to which the features are written. If prefill and decode have separate
    processes, an encoder replaces them by hidden states, which a decoder reads; if colocated, hidden states stay in the
    process.

    Attributes:
        stages: Stages by role, in order.
        languages: Supported languages, available once ready.
    """

    longest_frames = MAX_FRAMES
    overlap_frames = OVERLAP_FRAMES

    def __init__(self, settings: EngineSettings) -> None:
        crews = worker_crews(settings)
        self._threads = threads_per_worker(settings)
        # While every worker has a full batch, the next windows wait in as many slots.
        self._count = 2 * sum(crew.count * crew.batch for crew in crews)
        self._memory = SharedSlots(self._count)
        self._free = list(range(self._count))
        self._workers = {crew.role: crew.count for crew in crews}
        self.stages: dict[Role, Stage] = {}
        for crew in crews:
            start, work = self._starter(crew.role), partial(self._work, crew.role)
            before = next(reversed(self.stages.values()), None)
            self.stages[crew.role] = Stage(crew.role, crew.batch, start, work, self.release, follows=before)
        self._bins = 0
        self.languages: tuple[str, ...] = ()
        self._starting = sum(self._workers.values())
        self._ready = asyncio.Event()
        self._waiting_for_slot: list[Job] = []
        self._stalled_polls = dict.fromkeys(self.stages, 0)

    @property
    def is_stuck(self) -> bool:
        """Whether a stage that has work has completed nothing for too long."""
        return any(polls * POLL_INTERVAL_S >= STALLED_S for polls in self._stalled_polls.values())

    @property
    def depths(self) -> tuple[int, int]:
        """Number of utterances that wait for prefill, including those without a slot, and for decode."""
        first, *others = (len(stage.queue) for stage in self.stages.values())
        return first + len(self._waiting_for_slot), sum(others)

    @property
    def kinds(self) -> frozenset[ChunkKind]:
        """Supported kinds of chunks. Streamed features have 80 bins; other models need samples."""
        return frozenset(ChunkKind) if self._bins == CHUNK_MEL_BINS else frozenset({ChunkKind.PCM16})

    @property
    def restarts(self) -> dict[str, int]:
        """Number of restarted workers, by role."""
        return {role: stage.restarts for role, stage in self.stages.items()}

    async def run(self) -> None:
        """Keep the workers running until cancelled.

        Raises:
            CannotStartError: The model cannot be loaded.
        """
        async with asyncio.TaskGroup() as workers:
            for role, count in self._workers.items():
                for number in range(count):
                    workers.create_task(self.stages[role].run_worker(number, self._has_model))
            workers.create_task(self._watch())

    async def ready(self) -> None:
        """Return once every worker has its model."""
        await self._ready.wait()

    async def transcribe(
        self, utterance: Utterance, language: str | None, priority: Priority, prompt: str = ""
    ) -> WindowTranscript:
        """Return the transcript of an utterance.

        Raises:
            JobFailedError: Workers crash on the utterance.
            StaleError: A partial has waited too long.
        """
        rows = utterance.features(self._bins, until_end=priority is not Priority.PARTIAL)
        window = window_of(rows)
        audio_rows = min(len(rows), window.shape[1])
        job = Job(window, audio_rows, priority, language, asyncio.get_running_loop().create_future(), prompt=prompt)
        self._admit(job)
        try:
            # Partials of a long utterance allow its stable part to be split off. Without them, its windows grow, so
            # that all other utterances wait longer and lose their partials.
            if priority is Priority.PARTIAL and utterance.received_frames <= LONG_FRAMES:
                await asyncio.wait({job.result}, timeout=STALE_S)
                if self._withdraw(job):
                    raise StaleError
            result = await job.result
            return replace(result, words=tighten_words(result.words, rows))
        finally:
            self._withdraw(job)

    def release(self, job: Job) -> None:
        """Release a job's slot for the next waiting job."""
        if job.slot is not None:
            self._free.append(job.slot)
            job.slot = None
        while self._free and self._waiting_for_slot:
            next_job = min(self._waiting_for_slot, key=lambda waiting: waiting.priority)
            self._waiting_for_slot.remove(next_job)
            self._admit(next_job)

    async def _watch(self) -> None:
        """Count the polls in which a stage with work completes nothing.

        Polls are counted instead of seconds, since a suspended process has not waited for its workers.
        """
        done = {role: stage.done for role, stage in self.stages.items()}
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            for role, stage in self.stages.items():
                is_stalled = stage.is_busy and stage.done == done[role]
                self._stalled_polls[role] = self._stalled_polls[role] + 1 if is_stalled else 0
                done[role] = stage.done

    async def _work(self, role: Role, process: Process, batch: list[Job]) -> None:
        bins, rows = batch[0].window.shape
        slots = [job.slot for job in batch if job.slot is not None]
        languages = [job.language for job in batch]
        reply = await process.send_request(
            Request(
                slots=slots,
                bins=bins,
                rows=rows,
                states=batch[0].states,
                languages=languages,
                audio_rows=[job.audio_rows for job in batch],
                prompt=batch[0].prompt,
            )
        )
        for job in batch:
            job.add_durations(reply.stages_ms, len(batch))
        if role is not Role.ENCODER:
            for job, decoded in zip(batch, reply.texts, strict=True):
                job.answer(decoded)
                self.release(job)
            return
        for job in batch:
            job.states = reply.states
            job.attempts = 0
            if job.result.done():
                self.release(job)
            else:
                self.stages[Role.DECODER].put(job)

    def _starter(self, role: Role) -> Start:
        return lambda number: Process.start(role, self._memory, self._count, threads=self._threads, number=number)

    def _has_model(self, process: Process) -> None:
        self._bins, self.languages = process.model.bins, process.model.languages
        self._starting -= 1
        if self._starting == 0:
            self._ready.set()

    def _admit(self, job: Job) -> None:
        if not self._free:
            self._waiting_for_slot.append(job)
            return
        job.slot = self._free.pop()
        bins, rows = job.window.shape
        self._memory.features(job.slot, bins, rows)[:] = job.window
        next(iter(self.stages.values())).put(job)

    def _withdraw(self, job: Job) -> bool:
        """Remove a job that is no longer needed from its queue, and return True if it was still queued.

        A worker that is processing the job drops it afterwards.
        """
        if job in self._waiting_for_slot:
            self._waiting_for_slot.remove(job)
        elif any(stage.queue.remove(job) for stage in self.stages.values()):
            self.release(job)
        else:
            return False
        return True
