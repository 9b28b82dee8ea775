"""Whisper's worker processes by stage, and the memory that they share with this one."""

import asyncio
from dataclasses import dataclass
from functools import partial

from blueprint.contract.chunk import CHUNK_MEL_BINS, ChunkKind
from voice_whisper.backends.base import Role
from voice_whisper.job import STALE_S, Heard, Job, StaleError, Wanted
from voice_whisper.memory import SharedSlots
from voice_whisper.messages import Request
from voice_whisper.process import Process
from voice_whisper.settings import DECODER_BATCH, ENCODER_BATCH, EngineSettings, Layout, threads_of_each
from voice_whisper.stage import Stage, Start
from voice_whisper.utterance import Utterance
from voice_whisper.window import LONGEST_FRAMES, window_of


@dataclass(frozen=True)
class Crew:
    """The workers of one stage.

    Attributes:
        count: Processes.
        batch: Most utterances that one of them takes at a time.
    """

    role: Role
    count: int
    batch: int


def crews_of(settings: EngineSettings) -> tuple[Crew, ...]:
    """Return the stages of a layout; both have as many processes, and so the same cores."""
    if settings.layout is Layout.COLOCATED:
        return (Crew(Role.COLOCATED, settings.encoders + settings.decoders, ENCODER_BATCH),)
    return (
        Crew(Role.ENCODER, settings.encoders, ENCODER_BATCH),
        Crew(Role.DECODER, settings.decoders, DECODER_BATCH),
    )


class WorkerPool:
    """Stages, which a window of speech goes through in their order, and a slot of memory for each such window.

    An utterance's features go into its slot. Where prefill and decode have processes of their own, an encoder turns
    them into hidden states there, and a decoder reads those; colocated, a process keeps hidden states to itself.

    Attributes:
        stages: By role, in the order of the work.
        languages: That the model understands; known when it is ready.
    """

    longest_frames = LONGEST_FRAMES

    def __init__(self, settings: EngineSettings) -> None:
        crews = crews_of(settings)
        self._threads = threads_of_each(settings)
        # While every worker has a full batch, the next ones wait in as many slots.
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

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances that wait for prefill, those without a slot too, and for decode."""
        first, *others = (len(stage.queue) for stage in self.stages.values())
        return first + len(self._waiting_for_slot), sum(others)

    @property
    def kinds(self) -> frozenset[ChunkKind]:
        """Streamed features have 80 bins; a model with other bins has to be sent samples."""
        return frozenset(ChunkKind) if self._bins == CHUNK_MEL_BINS else frozenset({ChunkKind.PCM16})

    @property
    def restarts(self) -> dict[str, int]:
        """Workers that had to be started again, by role."""
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

    async def ready(self) -> None:
        """Return when every worker has its model."""
        await self._ready.wait()

    async def transcribe(self, utterance: Utterance, language: str | None, wanted: Wanted) -> Heard:
        """Return what an utterance says.

        Raises:
            GivenUpError: Workers die of it.
            StaleError: A partial waits for too long.
        """
        rows = utterance.features(self._bins, to_the_end=wanted is not Wanted.PARTIAL)
        window = window_of(rows)
        audio_rows = min(len(rows), window.shape[1])
        job = Job(window, audio_rows, wanted, language, asyncio.get_running_loop().create_future())
        self._admit(job)
        try:
            if wanted is Wanted.PARTIAL:
                await asyncio.wait({job.heard}, timeout=STALE_S)
                if self._withdraw(job):
                    raise StaleError
            return await job.heard
        finally:
            self._withdraw(job)

    def release(self, job: Job) -> None:
        """Take a job's slot back, and give it to whoever waits for one."""
        if job.slot is not None:
            self._free.append(job.slot)
            job.slot = None
        while self._free and self._waiting_for_slot:
            soonest = min(self._waiting_for_slot, key=lambda waiting: waiting.wanted)
            self._waiting_for_slot.remove(soonest)
            self._admit(soonest)

    async def _work(self, role: Role, process: Process, batch: list[Job]) -> None:
        bins, rows = batch[0].window.shape
        slots = [job.slot for job in batch if job.slot is not None]
        languages = [job.language for job in batch]
        reply = await process.ask(
            Request(
                slots=slots,
                bins=bins,
                rows=rows,
                states=batch[0].states,
                languages=languages,
                audio_rows=[job.audio_rows for job in batch],
            )
        )
        for job in batch:
            job.took(reply.stages_ms, len(batch))
        if role is not Role.ENCODER:
            for job, said in zip(batch, reply.texts, strict=True):
                job.answer(said)
                self.release(job)
            return
        for job in batch:
            job.states = reply.states
            job.attempts = 0
            if job.heard.done():
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
        """Let go of a job that nobody waits for any more, and return whether it still waited.

        A worker that has it right now lets go of it afterwards.
        """
        if job in self._waiting_for_slot:
            self._waiting_for_slot.remove(job)
        elif any(stage.queue.remove(job) for stage in self.stages.values()):
            self.release(job)
        else:
            return False
        return True
