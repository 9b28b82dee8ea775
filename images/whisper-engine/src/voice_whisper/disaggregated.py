"""Whisper with prefill and decode in processes of their own.

An utterance's features go into a slot of shared memory, an encoder turns them into hidden states there, and a decoder
reads those. Each stage has its own queue, batches and number of processes.
"""

import asyncio
from collections.abc import Callable

from blueprint.contract import CHUNK_MEL_BINS, ChunkKind
from voice_whisper.backends.base import Role
from voice_whisper.job import Heard, Job
from voice_whisper.memory import SharedSlots
from voice_whisper.messages import DecodeReply, DecodeRequest, EncodeReply, EncodeRequest
from voice_whisper.process import Process
from voice_whisper.settings import EngineSettings, ModelSettings, threads_of_each
from voice_whisper.stage import Stage
from voice_whisper.utterance import Utterance
from voice_whisper.window import window_of


class Disaggregated:
    """Encoders and decoders, and the memory between them."""

    def __init__(self, settings: EngineSettings, model: ModelSettings) -> None:
        self._settings = settings
        # While every worker has a full batch, the next ones wait in as many slots.
        count = 2 * (settings.encoders * settings.encoder_batch + settings.decoders * settings.decoder_batch)
        self._count = count
        self._memory = SharedSlots(count)
        self._free = list(range(count))
        threads = threads_of_each(settings)
        self.encode = Stage(
            Role.ENCODER, settings.encoder_batch, self._starter(Role.ENCODER, model.encoder_threads or threads),
            self._encode, self._release,
        )  # fmt: skip
        self.decode = Stage(
            Role.DECODER, settings.decoder_batch, self._starter(Role.DECODER, model.decoder_threads or threads),
            self._decode, self._release,
        )  # fmt: skip
        self._bins = 0
        self._starting = settings.encoders + settings.decoders
        self._ready = asyncio.Event()
        self._waiting_for_slot: list[Job] = []

    @property
    def kinds(self) -> frozenset[ChunkKind]:
        """Streamed features have 80 bins; a model with other bins has to be sent samples."""
        return frozenset(ChunkKind) if self._bins == CHUNK_MEL_BINS else frozenset({ChunkKind.PCM16})

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances that wait for prefill, and for decode."""
        return len(self.encode.queue) + len(self._waiting_for_slot), len(self.decode.queue)

    @property
    def restarts(self) -> dict[str, int]:
        """Workers that had to be started again, by role."""
        return {Role.ENCODER: self.encode.restarts, Role.DECODER: self.decode.restarts}

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
            for stage, count in ((self.encode, self._settings.encoders), (self.decode, self._settings.decoders)):
                for _ in range(count):
                    workers.create_task(stage.run_worker(self._has_model))

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

    def _starter(self, role: Role, threads: int) -> Callable[[], asyncio.Future[Process]]:
        return lambda: asyncio.ensure_future(Process.start(role, self._memory, self._count, threads))

    def _has_model(self, process: Process) -> None:
        self._bins = process.bins
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
        self.encode.put(job)

    def _withdraw(self, job: Job) -> None:
        """Let go of a job that nobody waits for any more; a worker that has it right now lets go of it afterwards."""
        if job in self._waiting_for_slot:
            self._waiting_for_slot.remove(job)
        elif self.encode.queue.remove(job) or self.decode.queue.remove(job):
            self._release(job)

    def _release(self, job: Job) -> None:
        if job.slot is not None:
            self._free.append(job.slot)
            job.slot = None
        while self._free and self._waiting_for_slot:
            finals_first = min(self._waiting_for_slot, key=lambda waiting: not waiting.final)
            self._waiting_for_slot.remove(finals_first)
            self._admit(finals_first)

    async def _encode(self, process: Process, batch: list[Job]) -> None:
        bins, rows = batch[0].window.shape
        request = EncodeRequest(slots=_slots(batch), bins=bins, rows=rows)
        reply = await process.ask(request, EncodeReply)
        for job in batch:
            job.states = reply.states
            job.attempts = 0
            job.took("encode", reply.took_ms, len(batch))
            if job.heard.done():
                self._release(job)
            else:
                self.decode.put(job)

    async def _decode(self, process: Process, batch: list[Job]) -> None:
        states = batch[0].states
        if states is None:
            raise RuntimeError("a job came to decode before prefill")
        request = DecodeRequest(slots=_slots(batch), states=states, languages=[job.language for job in batch])
        reply = await process.ask(request, DecodeReply)
        for job, said in zip(batch, reply.texts, strict=True):
            job.took("decode", reply.took_ms, len(batch))
            job.answer(said.text, said.language)
            self._release(job)


def _slots(batch: list[Job]) -> list[int]:
    return [job.slot for job in batch if job.slot is not None]
