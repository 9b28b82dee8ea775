"""Whisper with prefill and decode in processes of their own.

An utterance's features go into a slot of shared memory, an encoder turns them into hidden states there, and a decoder
reads those. Each stage has its own queue, batches and number of processes.
"""

from voice_whisper.backends.base import Role
from voice_whisper.job import Job
from voice_whisper.messages import DecodeReply, DecodeRequest, EncodeReply, EncodeRequest
from voice_whisper.pool import Crew, WorkerPool, slots_of
from voice_whisper.process import Process
from voice_whisper.settings import DECODER_BATCH, ENCODER_BATCH, EngineSettings, threads_of_each


class Disaggregated(WorkerPool):
    """Encoders and decoders, and the memory between them."""

    def __init__(self, settings: EngineSettings) -> None:
        threads = threads_of_each(settings)
        super().__init__(
            Crew(Role.ENCODER, settings.encoders, ENCODER_BATCH, threads, self._encode),
            Crew(Role.DECODER, settings.decoders, DECODER_BATCH, threads, self._decode),
        )

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances that wait for prefill, and for decode."""
        return self.waiting(Role.ENCODER), self.waiting(Role.DECODER)

    async def _encode(self, process: Process, batch: list[Job]) -> None:
        bins, rows = batch[0].window.shape
        request = EncodeRequest(slots=slots_of(batch), bins=bins, rows=rows)
        reply = await process.ask(request, EncodeReply)
        for job in batch:
            job.states = reply.states
            job.attempts = 0
            job.took("encode", reply.took_ms, len(batch))
            if job.heard.done():
                self.release(job)
            else:
                self.stages[Role.DECODER].put(job)

    async def _decode(self, process: Process, batch: list[Job]) -> None:
        states = batch[0].states
        if states is None:
            raise RuntimeError("a job came to decode before prefill")
        request = DecodeRequest(slots=slots_of(batch), states=states, languages=[job.language for job in batch])
        reply = await process.ask(request, DecodeReply)
        for job in batch:
            job.took("decode", reply.took_ms, len(batch))
        self.answer(batch, reply.texts)
