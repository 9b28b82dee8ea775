"""An utterance as it comes in: chunks in any order, some of them lost."""

import numpy as np
from numpy.typing import NDArray

from blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, CHUNK_MEL_BINS, CHUNK_SAMPLES, ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.features import HOP_MS, LogMel, Rows
from voice_whisper.agreement import Agreement
from voice_whisper.window import FRAME_MS, LONGEST_FRAMES

CHUNK_FRAMES = CHUNK_SAMPLES // CHUNK_FRAME_SAMPLES
ROWS_PER_FRAME = FRAME_MS // HOP_MS
KEPT_FRAMES = 2000 // FRAME_MS
"""What is heard again behind a cut: without what was said before, the first words are misheard."""
LARGEST_GAP_FRAMES = 2000 // FRAME_MS
"""What comes behind a larger gap is another utterance, whose start was lost."""

STEADY_FRAMES = 3000 // FRAME_MS
STEADY = 0.12
"""Standard deviation of log10 of energy: white noise has 0.02, a sentence 0.5 and more."""

MARKS = ChunkFlag.COMMIT | ChunkFlag.LAST
_OF_NOTHING = ChunkFlag.START_OF_SPEECH | ChunkFlag.END_OF_SPEECH

SILENCE = -10.0
"""log10 of the least energy of a mel bin: what stands for audio that was lost."""


class Utterance:
    """What a caller says in one go, from its first frame on: a stretch of speech, or several with short pauses between.

    Attributes:
        start: Place of its first 20 ms frame in the session; names it.
        begin: Place of the first frame that the engine hears: before its start, where it was cut off from another.
        kind: What all of its chunks hold.
        entries: Its chunks' entries in the journal, and the sequence of each.
        agreement: What of it is certain.
        end: Place behind its last frame, once that is known; unknown again where speech goes on behind a pause.
        has_ended: Whether its last chunk has come, or it was cut off itself.
        says_all: Whether its text ends like a sentence; unknown until it has been heard to its end.
        touched_at: When the last chunk came, in the caller's clock.
        opened: Whether the chunk that starts it has come.
        continues: Whether it was cut off from the utterance before it.
        last: Sequence of its newest chunk.
        numbers: Of its first chunk, and behind its last.
        marks: ``COMMIT`` and ``LAST``, where it ends with them.
        gap_before: What was lost before it: first frame, and the one behind the last.
        announced: Whether readers have been told that it began.
    """

    def __init__(self, start: int, kind: ChunkKind, *, opened: bool, continues: bool = False) -> None:
        self.start = self.begin = start
        self.kind = kind
        self.entries: dict[str, int] = {}
        self.agreement = Agreement()
        self._rest: Utterance | None = None
        self._is_late_by_a_row = False
        self.end: int | None = None
        self.has_ended = False
        self.says_all: bool | None = None
        self.touched_at = 0.0
        self.opened = opened
        self.continues = continues
        self.last = start
        self.numbers: tuple[int, int] | None = None
        self.marks = ChunkFlag(0)
        self.gap_before: tuple[int, int] | None = None
        self.announced = False
        self._chunks: dict[int, AudioChunk] = {}
        self._extractor: LogMel | None = None
        self._extracted: list[Rows] = []
        self._extracted_to = start

    def add(self, chunk: AudioChunk, now: float) -> None:
        if not self.continues:
            self.start = self.begin = min(self.start, chunk.sequence)
        if chunk.sequence < self._extracted_to:
            self._extractor = None  # what was made of a gap is wrong
        self.opened = self.opened or bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
        first, behind = self.numbers or (chunk.number, chunk.number)
        self.numbers = min(first, chunk.number), max(behind, chunk.number + 1)
        self.marks |= chunk.flags & MARKS
        if not (self._chunks and is_mark(chunk)):  # in a pause a mark ends it where the voice did
            self._chunks[chunk.sequence] = chunk
            self._move_end(chunk)
            self.touched_at = now
        self.last = max(self.last, chunk.sequence)

    def _move_end(self, chunk: AudioChunk) -> None:
        if chunk.sequence < self.last:
            return  # it may be the end of a stretch that another has followed already
        if chunk.flags & ChunkFlag.END_OF_SPEECH:
            self.end, self.has_ended = place_behind(chunk), True
        elif self.end is not None and chunk.sequence >= self.end:
            self.end, self.has_ended, self.says_all = None, False, None

    def keep(self, entry_id: str, sequence: int) -> None:
        """Note a chunk's entry in the journal; what was cut off keeps its own."""
        of = self._rest if self._rest and sequence >= self._rest.start else self
        of.entries[entry_id] = sequence

    def split(self, at: int) -> "Utterance":
        """End it at a frame, and return the rest, which hears some of it again.

        Between chunks: another host that goes on with the rest begins it there, and names it alike.
        """
        late = self._are_late_by_a_row()
        at = max((sequence for sequence in late if sequence <= at), default=self.begin)
        rest = Utterance(at, self.kind, opened=False, continues=True)
        rest.begin = max((sequence for sequence in late if sequence <= at - KEPT_FRAMES), default=min(late))
        rest._chunks = {sequence: chunk for sequence, chunk in self._chunks.items() if sequence >= rest.begin}
        rest._is_late_by_a_row = late[rest.begin]
        rest.agreement = self.agreement.rest()
        rest.touched_at, rest.last, rest.announced, rest.numbers = self.touched_at, self.last, True, self.numbers
        self.end, self.has_ended, self._rest = at, True, rest
        self.last = max((sequence for sequence in late if sequence < at), default=self.start)
        for entry_id, sequence in list(self.entries.items()):
            if sequence >= at:
                rest.entries[entry_id] = self.entries.pop(entry_id)
        return rest

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
    def heard_frames(self) -> int:
        """The same of what the engine hears."""
        return self.start + self.frames - self.begin

    @property
    def next_number(self) -> int:
        """Number of the chunk that is to come behind it; -1 where it broke off: whatever comes, something is lost."""
        return self.numbers[1] if self.numbers and self.has_ended else -1

    @property
    def is_mark(self) -> bool:
        """Whether it is a mark alone: nobody was speaking when it came."""
        return bool(self._chunks) and all(map(is_mark, self._chunks.values()))

    @property
    def lost(self) -> int:
        """Chunks that are missing between those that have come."""
        return sum(-(-(behind - first) // CHUNK_FRAMES) for first, behind in self.gaps)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Where those belong: first frame and the one behind the last of each stretch. A pause is no gap."""
        found, heard_to, before = [], self.begin, None
        for _, chunk in sorted(self._chunks.items()):
            ends = bool(chunk.flags & ChunkFlag.END_OF_SPEECH)
            first = place_behind(chunk) if ends and not frames_of(chunk) else chunk.sequence
            heard_to = max(heard_to, self.start)
            if first > heard_to and not _is_pause(before, chunk):
                found.append((heard_to, first))
            heard_to = place_behind(chunk) if ends else first + CHUNK_FRAMES
            before = chunk
        if self.end is not None and self.end > heard_to:
            found.append((heard_to, self.end))
        return found

    @property
    def is_whole(self) -> bool:
        """Whether its end is known and all of it has come."""
        return self.end is not None and self.lost == 0

    def is_steady(self, frames: int) -> bool:
        """Whether its last frames sound alike: noise, a tone. Speech rises and falls by more."""
        if self.frames < max(frames, STEADY_FRAMES):
            return False
        recent = [chunk for sequence, chunk in self._chunks.items() if sequence >= self.start + self.frames - frames]
        levels = np.concatenate([_levels(chunk) for chunk in recent]) if recent else np.empty(0)
        return bool(levels.size and levels.std() < STEADY)

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
        audio = np.zeros(self.heard_frames * CHUNK_FRAME_SAMPLES, np.int16)
        for sequence, chunk in self._chunks.items():
            at = (sequence - self.begin) * CHUNK_FRAME_SAMPLES
            room = audio[at : at + len(chunk.values)]
            room[:] = chunk.values[: len(room)]
        return audio

    def _streamed(self) -> Rows:
        late = self._are_late_by_a_row()
        places = [(self._first_row(chunk, late=late[at]), chunk.values) for at, chunk in self._chunks.items()]
        rows = np.full((max((at + len(some) for at, some in places), default=0), CHUNK_MEL_BINS), SILENCE, np.float32)
        for at, some in places:
            rows[at : at + len(some)] = some
        return rows

    def _are_late_by_a_row(self) -> dict[int, bool]:
        """Return of each chunk whether its stretch began with one that brought a row less than it is long.

        A row is due 200 samples past its centre; the last chunk of a stretch makes up for it.
        """
        found, late = {}, self._is_late_by_a_row or self.opened
        for sequence, chunk in sorted(self._chunks.items()):
            found[sequence] = late = late or bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
            late = late and not chunk.flags & ChunkFlag.END_OF_SPEECH
        return found

    def _first_row(self, chunk: AudioChunk, *, late: bool) -> int:
        at = ROWS_PER_FRAME * (chunk.sequence - self.begin)
        if chunk.flags & ChunkFlag.START_OF_SPEECH:
            return at
        if chunk.flags & ChunkFlag.END_OF_SPEECH:
            at = ROWS_PER_FRAME * (place_behind(chunk) + 1 - self.begin) - len(chunk.values)
        return max(0, at - late)

    def _own(self, bins: int, *, to_the_end: bool) -> Rows:
        if self._extractor is None:
            self._extractor, self._extracted, self._extracted_to = LogMel(bins), [], self.begin
        audio = self.samples()
        fresh = audio[(self._extracted_to - self.begin) * CHUNK_FRAME_SAMPLES :]
        self._extracted.append(self._extractor.push(fresh))
        self._extracted_to = self.start + self.frames
        if not to_the_end:
            return np.concatenate(self._extracted)
        rows = np.concatenate([*self._extracted, self._extractor.flush()])
        self._extractor = None  # speech may go on behind a pause
        return rows


def _levels(chunk: AudioChunk) -> NDArray[np.float64]:
    """Return how loud a chunk is, from row to row or frame to frame, on a scale of log10 of energy."""
    if chunk.kind is ChunkKind.LOG_MEL:
        return np.asarray(chunk.values.mean(axis=1, dtype=np.float64))
    whole = chunk.values[: len(chunk.values) // CHUNK_FRAME_SAMPLES * CHUNK_FRAME_SAMPLES]
    frames = whole.reshape(-1, CHUNK_FRAME_SAMPLES).astype(np.float64)
    return np.asarray(np.log10((frames**2).mean(axis=1) + 1))


def _is_pause(before: AudioChunk | None, chunk: AudioChunk) -> bool:
    """Return whether nothing is missing between two chunks that are not next to each other."""
    ended = bool(before and before.flags & ChunkFlag.END_OF_SPEECH and chunk.flags & ChunkFlag.START_OF_SPEECH)
    return ended and before is not None and chunk.number <= before.number + 1


def is_mark(chunk: AudioChunk) -> bool:
    """Return whether a chunk is a mark in silence: the start and the end of nothing."""
    return bool(chunk.flags & MARKS) and chunk.flags & _OF_NOTHING == _OF_NOTHING and not len(chunk.values)


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
