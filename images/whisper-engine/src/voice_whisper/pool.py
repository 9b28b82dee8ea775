"""Worker processes by stage, and the memory that they share with this one: what both layouts have."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from blueprint.contract.chunk import CHUNK_MEL_BINS, ChunkKind
from voice_whisper.backends.base import Decoded, Role
from voice_whisper.job import Heard, Job
from voice_whisper.memory import SharedSlots
from voice_whisper.process import Process
from voice_whisper.stage import Stage, Start, Work
from voice_whisper.utterance import Utterance
from voice_whisper.window import window_of


@dataclass(frozen=True)
class Crew:
    """The workers of one stage.

    Attributes:
        count: Processes.
        batch: Most utterances that one of them takes at a time.
        threads: Of each process.
        work: What a process does with a batch.
    """

    role: Role
    count: int
    batch: int
    threads: int
    work: Work


class WorkerPool(ABC):
    """Stages, which a window of speech goes through in their order, and a slot of memory for each such window.

    Attributes:
        stages: By role, in the order of the work.
        languages: That the model understands; known when it is ready.
    """

    def __init__(self, *crews: Crew) -> None:
        # While every worker has a full batch, the next ones wait in as many slots.
        self._count = 2 * sum(crew.count * crew.batch for crew in crews)
        self._memory = SharedSlots(self._count)
        self._free = list(range(self._count))
        self._workers = {crew.role: crew.count for crew in crews}
        self.stages = {
            crew.role: Stage(crew.role, crew.batch, self._starter(crew), crew.work, self.release) for crew in crews
        }
        self._bins = 0
        self.languages: tuple[str, ...] = ()
        self._starting = sum(self._workers.values())
        self._ready = asyncio.Event()
        self._waiting_for_slot: list[Job] = []

    @property
    @abstractmethod
    def depths(self) -> tuple[int, int]:
        """Utterances that wait for prefill, and for decode."""

    @property
    def kinds(self) -> frozenset[ChunkKind]:
        """Streamed features have 80 bins; a model with other bins has to be sent samples."""
        return frozenset(ChunkKind) if self._bins == CHUNK_MEL_BINS else frozenset({ChunkKind.PCM16})

    @property
    def restarts(self) -> dict[str, int]:
        """Workers that had to be started again, by role."""
        return {role: stage.restarts for role, stage in self.stages.items()}

    @property
    def has_room(self) -> bool:
        """Whether nothing waits."""
        return self.depths == (0, 0)

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

    async def transcribe(self, utterance: Utterance, language: str | None, *, final: bool) -> Heard:
        """Return what an utterance says.

        Raises:
            GivenUpError: Workers die of it.
        """
        window = window_of(utterance.features(self._bins, to_the_end=final))
        job = Job(window, final, language, asyncio.get_running_loop().create_future())
        self._admit(job)
        try:
            return await job.heard
        finally:
            self._withdraw(job)

    def waiting(self, role: Role) -> int:
        """Return how many windows wait for a stage; those that have no slot yet wait for the first."""
        first = next(iter(self.stages))
        return len(self.stages[role].queue) + (len(self._waiting_for_slot) if role is first else 0)

    def release(self, job: Job) -> None:
        """Take a job's slot back, and give it to whoever waits for one."""
        if job.slot is not None:
            self._free.append(job.slot)
            job.slot = None
        while self._free and self._waiting_for_slot:
            finals_first = min(self._waiting_for_slot, key=lambda waiting: not waiting.final)
            self._waiting_for_slot.remove(finals_first)
            self._admit(finals_first)

    def answer(self, batch: list[Job], texts: Sequence[Decoded]) -> None:
        """Tell whoever asked what a batch says, and take its slots back."""
        for job, said in zip(batch, texts, strict=True):
            job.answer(said.text, said.language)
            self.release(job)

    def _starter(self, crew: Crew) -> Start:
        return lambda number: Process.start(crew.role, self._memory, self._count, threads=crew.threads, number=number)

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

    def _withdraw(self, job: Job) -> None:
        """Let go of a job that nobody waits for any more; a worker that has it right now lets go of it afterwards."""
        if job in self._waiting_for_slot:
            self._waiting_for_slot.remove(job)
        elif any(stage.queue.remove(job) for stage in self.stages.values()):
            self.release(job)


def slots_of(batch: list[Job]) -> list[int]:
    """Return the slots of a batch, in its order."""
    return [job.slot for job in batch if job.slot is not None]
