"""Transcribes pieces of audio files with the capacity that live calls do not use."""

import asyncio
import logging
from collections.abc import Callable

import numpy as np

from voice_blueprint.contract.chunk import CHUNK_SAMPLES, ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.file_pieces import FilePiece, FilePieceQueue, PieceTranscript
from voice_runtime.state import FILE_PIECE_LEASE_TTL_S
from voice_whisper.counters import Counters
from voice_whisper.job import JobFailedError, Priority
from voice_whisper.live_session import to_timed_word
from voice_whisper.retries import RETRY_PAUSE_S, STORE_ERRORS
from voice_whisper.transcriber import Transcriber
from voice_whisper.utterance import CHUNK_FRAMES, Utterance

POLL_INTERVAL_S = 0.1

log = logging.getLogger(__name__)


class FileTranscriber:
    """Transcribes one piece at a time, since a piece in progress delays live calls."""

    def __init__(self, host: str, pieces: FilePieceQueue, transcriber: Transcriber, counters: Counters) -> None:
        self._host = host
        self._pieces = pieces
        self._transcriber = transcriber
        self._counters = counters

    async def run(self, has_capacity: Callable[[], bool]) -> None:
        """Run until cancelled; while the store is unavailable, pieces wait."""
        while True:
            try:
                piece = await self._pieces.claim(self._host) if has_capacity() else None
                if piece is None:
                    await asyncio.sleep(POLL_INTERVAL_S)
                    continue
                await self._transcribe_piece(piece)
            except STORE_ERRORS:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _transcribe_piece(self, piece: FilePiece) -> None:
        work = asyncio.create_task(self._transcribe(piece))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=FILE_PIECE_LEASE_TTL_S / 2)
                if not work.done() and not await self._pieces.renew(piece.name):
                    return
            await self._pieces.complete(piece.name, work.result())
        finally:
            work.cancel()

    async def _transcribe(self, piece: FilePiece) -> PieceTranscript:
        utterance = create_utterance(piece.audio)
        self._counters.events["file_pieces"] += 1
        if utterance.is_stationary_noise(utterance.frame_count):
            return PieceTranscript()
        try:
            transcript = await self._transcriber.transcribe(utterance, piece.language, Priority.FILE, piece.prompt)
        except JobFailedError as error:
            log.error("a piece of a file has no transcript: %s", error)  # noqa: TRY400  a response
            self._counters.events["given_up"] += 1
            return PieceTranscript(failed=True)
        # Models transcribe noise as a full stop.
        if not any(map(str.isalnum, transcript.text)):
            return PieceTranscript(language=transcript.language)
        return PieceTranscript(
            text=transcript.text, language=transcript.language, words=[to_timed_word(word) for word in transcript.words]
        )


def create_utterance(audio: bytes) -> Utterance:
    """Return PCM16 audio in the form in which the VAD tier sends it."""
    samples = np.frombuffer(audio, "<i2")
    utterance = Utterance(0, ChunkKind.PCM16, opened=True)
    starts = range(0, len(samples), CHUNK_SAMPLES)
    for number, start in enumerate(starts):
        flags = ChunkFlag.END_OF_SPEECH if number == len(starts) - 1 else ChunkFlag(0)
        values = samples[start : start + CHUNK_SAMPLES]
        utterance.add(AudioChunk(0, number * CHUNK_FRAMES, flags, values, number), 0.0)
    return utterance
