"""An utterance as it comes in: chunks in any order, some of them lost."""

import numpy as np
from numpy.typing import NDArray

from blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, CHUNK_MEL_BINS, CHUNK_SAMPLES, ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.features import HOP_MS, LogMel, Rows
from voice_whisper.window import FRAME_MS, LONGEST_FRAMES

CHUNK_FRAMES = CHUNK_SAMPLES // CHUNK_FRAME_SAMPLES
ROWS_PER_FRAME = FRAME_MS // HOP_MS
LARGEST_GAP_FRAMES = 2000 // FRAME_MS
"""What comes behind a larger gap is another utterance, whose start was lost."""

SILENCE = -10.0
"""log10 of the least energy of a mel bin: what stands for audio that was lost."""


class Utterance:
    """One stretch of speech, from its first frame on.

    Attributes:
        start: Place of its first 20 ms frame in the session; names it.
        kind: What all of its chunks hold.
        entries: Its chunks' entries in the journal.
        end: Place behind its last frame, once that is known.
        touched_at: When the last chunk came, in the caller's clock.
        opened: Whether the chunk that starts it has come.
        continues: Whether it was cut off from the utterance before it.
        last: Sequence of its newest chunk.
    """

    def __init__(self, start: int, kind: ChunkKind, *, opened: bool, continues: bool = False) -> None:
        self.start = start
        self.kind = kind
        self.entries: list[str] = []
        self.end: int | None = None
        self.touched_at = 0.0
        self.opened = opened
        self.continues = continues
        self.last = start
        self._chunks: dict[int, AudioChunk] = {}
        self._extractor: LogMel | None = None
        self._extracted: list[Rows] = []
        self._extracted_to = start

    def add(self, chunk: AudioChunk, now: float) -> None:
        self.start = min(self.start, chunk.sequence)
        if chunk.sequence < self._extracted_to:
            self._extractor = None  # what was made of a gap is wrong
        self.opened = self.opened or bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
        if chunk.flags & ChunkFlag.END_OF_SPEECH:
            self.end = place_behind(chunk)
        self._chunks[chunk.sequence] = chunk
        self.last = max(self.last, chunk.sequence)
        self.touched_at = now

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._chunks

    def may_begin_with(self, chunk: AudioChunk) -> bool:
        """Whether a chunk of before its start belongs to it: its own start has not come yet, and is not far."""
        near = self.start - chunk.sequence <= LARGEST_GAP_FRAMES and self.last - chunk.sequence < LONGEST_FRAMES
        ends_another = bool(chunk.flags & ChunkFlag.END_OF_SPEECH)
        return near and not (self.opened or self.continues or ends_another)

    @property
    def frames(self) -> int:
        """Its length so far, in 20 ms frames."""
        if self.end is not None:
            return self.end - self.start
        return self.last + CHUNK_FRAMES - self.start if self._chunks else 0

    @property
    def lost(self) -> int:
        """Chunks that are missing between those that have come."""
        wanted = range(self.start, self.end if self.end is not None else self.last, CHUNK_FRAMES)
        return sum(sequence not in self._chunks for sequence in wanted)

    @property
    def is_whole(self) -> bool:
        """Whether its end is known and all of it has come."""
        return self.end is not None and self.lost == 0

    def features(self, bins: int, *, to_the_end: bool) -> Rows:
        """Return its log-mel features, silence where chunks are missing.

        Args:
            bins: Mel bins of the model; of streamed features 80.
            to_the_end: No more audio comes: the last rows, which reach past the audio, are due.
        """
        if self.kind is ChunkKind.LOG_MEL:
            return self._streamed()
        return self._own(bins, to_the_end=to_the_end)

    def samples(self) -> NDArray[np.int16]:
        """Return its audio, 16 kHz, silence where chunks are missing; of PCM chunks only."""
        audio = np.zeros(self.frames * CHUNK_FRAME_SAMPLES, np.int16)
        for sequence, chunk in self._chunks.items():
            at = (sequence - self.start) * CHUNK_FRAME_SAMPLES
            room = audio[at : at + len(chunk.values)]
            room[:] = chunk.values[: len(room)]
        return audio

    def _streamed(self) -> Rows:
        places = [(self._first_row(chunk), chunk.values) for chunk in self._chunks.values()]
        rows = np.full((max((at + len(some) for at, some in places), default=0), CHUNK_MEL_BINS), SILENCE, np.float32)
        for at, some in places:
            rows[at : at + len(some)] = some
        return rows

    def _first_row(self, chunk: AudioChunk) -> int:
        # A row is due 200 samples past its centre: the first chunk of an utterance brings one less than it is long, and
        # the last one makes up for it.
        behind = 1 if self.opened else 0
        at = ROWS_PER_FRAME * (chunk.sequence - self.start)
        if chunk.flags & ChunkFlag.END_OF_SPEECH:
            at = ROWS_PER_FRAME * (place_behind(chunk) + 1 - self.start) - len(chunk.values)
        return max(0, at - behind)

    def _own(self, bins: int, *, to_the_end: bool) -> Rows:
        if self._extractor is None:
            self._extractor, self._extracted, self._extracted_to = LogMel(bins), [], self.start
        audio = self.samples()
        fresh = audio[(self._extracted_to - self.start) * CHUNK_FRAME_SAMPLES :]
        self._extracted.append(self._extractor.push(fresh))
        self._extracted_to = self.start + self.frames
        if to_the_end:
            self._extracted.append(self._extractor.flush())
        return np.concatenate(self._extracted)


def place_behind(chunk: AudioChunk) -> int:
    """Return the place behind an utterance's last frame, from its last chunk.

    One that brings no frames, but the rows that the chunk before it had no room for, has the place of the last frame.
    """
    return chunk.sequence + max(1, frames_of(chunk))


def frames_of(chunk: AudioChunk) -> int:
    """Return the 20 ms frames that an utterance's last chunk holds."""
    if chunk.kind is ChunkKind.PCM16:
        return -(-len(chunk.values) // CHUNK_FRAME_SAMPLES)
    return min(CHUNK_FRAMES, max(0, len(chunk.values) - 1) // ROWS_PER_FRAME)
