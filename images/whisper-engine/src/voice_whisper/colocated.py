"""Whisper with prefill and decode of a batch in one process, one after the other.

There are as many processes as encoders and decoders together, so both layouts have the same cores. Hidden states stay
in the process.
"""

from voice_whisper.backends.base import Role
from voice_whisper.job import Job
from voice_whisper.messages import TranscribeReply, TranscribeRequest
from voice_whisper.pool import Crew, WorkerPool, slots_of
from voice_whisper.process import Process
from voice_whisper.settings import ENCODER_BATCH, EngineSettings, threads_of_each


class Colocated(WorkerPool):
    """Workers that do both, with the encoders' batches."""

    def __init__(self, settings: EngineSettings) -> None:
        count = settings.encoders + settings.decoders
        super().__init__(Crew(Role.COLOCATED, count, ENCODER_BATCH, threads_of_each(settings), self._transcribe))

    @property
    def depths(self) -> tuple[int, int]:
        """Utterances that wait; none does between prefill and decode."""
        return self.waiting(Role.COLOCATED), 0

    async def _transcribe(self, process: Process, batch: list[Job]) -> None:
        bins, rows = batch[0].window.shape
        languages = [job.language for job in batch]
        request = TranscribeRequest(slots=slots_of(batch), bins=bins, rows=rows, languages=languages)
        reply = await process.ask(request, TranscribeReply)
        for job in batch:
            job.took("encode", reply.encode_ms, len(batch))
            job.took("decode", reply.decode_ms, len(batch))
        self.answer(batch, reply.texts)
