"""Whisper's worker processes by stage, and the memory that they share with the main process."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from voice_blueprint.contract.chunk import CHUNK_MEL_BINS, ChunkKind
from voice_whisper.backends.base import Role
from voice_whisper.job import MAX_PARTIAL_WAIT_S, Job, Priority, StaleJobError, WindowTranscript
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchRequest
from voice_whisper.process import WorkerProcess
from voice_whisper.settings import (
    MAX_DECODER_BATCH,
    MAX_ENCODER_BATCH,
    EngineSettings,
    Layout,
    calculate_threads_per_worker,
)
from voice_whisper.stage import Stage, WorkerFactory
from voice_whisper.utterance import OVERLAP_FRAMES, SPLIT_THRESHOLD_FRAMES, Utterance
from voice_whisper.window import MAX_UTTERANCE_FRAMES, create_window
from voice_whisper.word_times import adjust_word_times

STALL_TIMEOUT_S = 30
"""Time without a completed batch after which a stage with work is stuck. A batch takes seconds. A hanging worker is
killed after a minute, and its restart takes as long as loading its model."""
POLL_INTERVAL_S = 1.0


@dataclass(frozen=True)
class StageConfig:
    """The workers of one stage.

    Attributes:
        worker_count: Number of processes.
        max_batch_size: Maximum utterances per batch.
    """

    role: Role
    worker_count: int
    max_batch_size: int


def create_stage_configs(settings: EngineSettings) -> tuple[StageConfig, ...]:
    """Return the workers in each stage for a layout.

    Both layouts have the same number of processes, and therefore use the same cores.
    """
    if settings.layout is Layout.COLOCATED:
        return (StageConfig(Role.COLOCATED, settings.encoders + settings.decoders, MAX_ENCODER_BATCH),)
    return (
        StageConfig(Role.ENCODER, settings.encoders, MAX_ENCODER_BATCH),
        StageConfig(Role.DECODER, settings.decoders, MAX_DECODER_BATCH),
    )


class WorkerPool:
    """A pool of workers in stages, through which a window of speech passes in order.

    Each window has a slot in shared memory, to which the features are written. If prefill and decode have separate
    processes, an encoder replaces the features with hidden states, which a decoder reads. If prefill and decode are
    colocated, the hidden states stay in the process.

    Attributes:
        stages: Stages by role, in order.
        languages: Supported languages, available once ready.
    """

    max_utterance_frames = MAX_UTTERANCE_FRAMES
    overlap_frames = OVERLAP_FRAMES

    def __init__(self, settings: EngineSettings) -> None:
        crews = create_stage_configs(settings)
        self._threads = calculate_threads_per_worker(settings)
        # While every worker has a full batch, as many further windows wait in slots.
        self._count = 2 * sum(crew.worker_count * crew.max_batch_size for crew in crews)
        self._memory = SlotMemory(self._count)
        self._free = list(range(self._count))
        self._workers = {crew.role: crew.worker_count for crew in crews}
        self.stages: dict[Role, Stage] = {}
        for crew in crews:
            start, work = self._create_worker_factory(crew.role), partial(self._process_batch, crew.role)
            before = next(reversed(self.stages.values()), None)
            self.stages[crew.role] = Stage(
                crew.role, crew.max_batch_size, start, work, self.release_slot, follows=before
            )
        self._bins = 0
        self.languages: tuple[str, ...] = ()
        self._starting = sum(self._workers.values())
        self._ready = asyncio.Event()
        self._waiting_for_slot: list[Job] = []
        self._stalled_polls = dict.fromkeys(self.stages, 0)

    @property
    def is_stuck(self) -> bool:
        """Whether a stage that has work has completed nothing for too long."""
        return any(polls * POLL_INTERVAL_S >= STALL_TIMEOUT_S for polls in self._stalled_polls.values())

    @property
    def queue_depths(self) -> tuple[int, int]:
        """Number of utterances that wait for prefill, including those without a slot, and for decode."""
        first, *others = (len(stage.queue) for stage in self.stages.values())
        return first + len(self._waiting_for_slot), sum(others)

    @property
    def supported_kinds(self) -> frozenset[ChunkKind]:
        """Supported kinds of chunks. Streamed features have 80 bins; other models need samples."""
        return frozenset(ChunkKind) if self._bins == CHUNK_MEL_BINS else frozenset({ChunkKind.PCM16})

    @property
    def restarts_by_role(self) -> dict[str, int]:
        """Number of restarted workers, by role."""
        return {role: stage.restarts for role, stage in self.stages.items()}

    async def run(self) -> None:
        """Keep the workers running until cancelled.

        Raises:
            WorkerStartError: The model cannot be loaded.
        """
        async with asyncio.TaskGroup() as workers:
            for role, count in self._workers.items():
                for number in range(count):
                    workers.create_task(self.stages[role].run_worker(number, self._on_model_loaded))
            workers.create_task(self._watch_stalls())

    async def wait_until_ready(self) -> None:
        """Return once every worker has loaded its model."""
        await self._ready.wait()

    async def transcribe(
        self, utterance: Utterance, language: str | None, priority: Priority, prompt: str = ""
    ) -> WindowTranscript:
        """Return the transcript of an utterance.

        Raises:
            JobFailedError: Workers crash on the utterance.
            StaleJobError: A partial has waited too long.
        """
        rows = utterance.extract_features(self._bins, until_end=priority is not Priority.PARTIAL)
        window = create_window(rows)
        audio_rows = min(len(rows), window.shape[1])
        job = Job(window, audio_rows, priority, language, asyncio.get_running_loop().create_future(), prompt=prompt)
        self._assign_slot(job)
        try:
            # Partials of a long utterance allow its stable part to be split off. Without them, its windows grow, so
            # that all other utterances wait longer and lose their partials.
            if priority is Priority.PARTIAL and utterance.transcribed_frame_count <= SPLIT_THRESHOLD_FRAMES:
                await asyncio.wait({job.result}, timeout=MAX_PARTIAL_WAIT_S)
                if self._withdraw_job(job):
                    raise StaleJobError
            result = await job.result
            return replace(result, words=adjust_word_times(result.words, rows))
        finally:
            self._withdraw_job(job)

    def release_slot(self, job: Job) -> None:
        """Release a job's slot for the next waiting job."""
        if job.slot is not None:
            self._free.append(job.slot)
            job.slot = None
        while self._free and self._waiting_for_slot:
            next_job = min(self._waiting_for_slot, key=lambda waiting: waiting.priority)
            self._waiting_for_slot.remove(next_job)
            self._assign_slot(next_job)

    async def _watch_stalls(self) -> None:
        """Count the polls in which a stage with work completes nothing.

        Polls are counted instead of seconds, since a suspended process has not waited for its workers.
        """
        done = {role: stage.completed_batches for role, stage in self.stages.items()}
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            for role, stage in self.stages.items():
                is_stalled = stage.is_busy and stage.completed_batches == done[role]
                self._stalled_polls[role] = self._stalled_polls[role] + 1 if is_stalled else 0
                done[role] = stage.completed_batches

    async def _process_batch(self, role: Role, process: WorkerProcess, batch: list[Job]) -> None:
        bins, rows = batch[0].window.shape
        slots = [job.slot for job in batch if job.slot is not None]
        languages = [job.language for job in batch]
        reply = await process.send_request(
            BatchRequest(
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
                job.set_result(decoded)
                self.release_slot(job)
            return
        for job in batch:
            job.states = reply.states
            job.failed_attempt_count = 0
            if job.result.done():
                self.release_slot(job)
            else:
                self.stages[Role.DECODER].put(job)

    def _create_worker_factory(self, role: Role) -> WorkerFactory:
        return lambda number: WorkerProcess.start(role, self._memory, self._count, threads=self._threads, number=number)

    def _on_model_loaded(self, process: WorkerProcess) -> None:
        self._bins, self.languages = process.model.bins, process.model.languages
        self._starting -= 1
        if self._starting == 0:
            self._ready.set()

    def _assign_slot(self, job: Job) -> None:
        if not self._free:
            self._waiting_for_slot.append(job)
            return
        job.slot = self._free.pop()
        bins, rows = job.window.shape
        self._memory.get_features_view(job.slot, bins, rows)[:] = job.window
        next(iter(self.stages.values())).put(job)

    def _withdraw_job(self, job: Job) -> bool:
        """Remove a job that is no longer needed from its queue, and return True if it was still queued.

        A worker that is processing the job discards the result.
        """
        if job in self._waiting_for_slot:
            self._waiting_for_slot.remove(job)
        elif any(stage.queue.remove(job) for stage in self.stages.values()):
            self.release_slot(job)
        else:
            return False
        return True
