"""An utterance in progress: chunks in any order, some of them lost."""

import numpy as np
from numpy.typing import NDArray

from voice_blueprint.contract.chunk import CHUNK_FRAME_SAMPLES, CHUNK_MEL_BINS, CHUNK_SAMPLES, ChunkFlag, ChunkKind
from voice_runtime.chunk import AudioChunk
from voice_runtime.features import FeatureRows, LogMelExtractor
from voice_whisper.agreement import LocalAgreement
from voice_whisper.window import FRAMES_PER_S, MAX_UTTERANCE_FRAMES, ROWS_PER_S

CHUNK_FRAMES = CHUNK_SAMPLES // CHUNK_FRAME_SAMPLES
ROWS_PER_FRAME = ROWS_PER_S // FRAMES_PER_S
OVERLAP_FRAMES = 2 * FRAMES_PER_S
"""Audio that is transcribed again after a split, since the first words are recognized wrongly without context."""
SPLIT_THRESHOLD_FRAMES = 8 * FRAMES_PER_S
"""Length of an utterance above which its stable part is split off."""
MAX_GAP_FRAMES = 2 * FRAMES_PER_S
"""Maximum gap within an utterance. After a larger gap, a new utterance starts, whose start was lost."""

MIN_STEADY_FRAMES = 3 * FRAMES_PER_S
MAX_STEADY_DEVIATION = 0.12
"""Maximum standard deviation of stationary noise, as log10 of energy. White noise has 0.02, a sentence 0.5 and more."""

MARK_FLAGS = ChunkFlag.COMMIT | ChunkFlag.LAST
_SPEECH_BOUNDARY_FLAGS = ChunkFlag.START_OF_SPEECH | ChunkFlag.END_OF_SPEECH

SILENCE_LEVEL = -10.0
"""log10 of the minimum energy of a mel bin, which represents lost audio."""


class Utterance:
    """An utterance by a caller from its first frame: speech, including short pauses.

    Attributes:
        start: Position of its first 20 ms frame in the session, which identifies it.
        begin: Position of the first transcribed frame. After a split, it is before ``start``.
        kind: Kind of all of its chunks.
        entries: Journal entries of its chunks, with the sequence of each.
        agreement: Its stable words.
        end: Position after its last frame, if known; it becomes unknown if speech continues after a pause.
        has_ended: Whether its last chunk has arrived, or it was split.
        is_transcript_complete: Whether its text ends like a sentence; unknown until it has been transcribed to its end.
        last_audio_at: Arrival time of the last chunk, on the caller's clock.
        opened: Whether its first chunk has arrived.
        continues: Whether it was split from the previous utterance.
        last: Sequence of its newest chunk.
        chunk_numbers: Number of the first chunk, and of the chunk after the last.
        marks: ``COMMIT`` and ``LAST``, if the utterance ends with them.
        gap_before: Loss before the utterance: the first lost frame, and the frame after the last.
        is_announced: Whether its start was published.
        split_from: The utterance from which this one was split, and whose end it includes. It is set until the earlier
            utterance has its final transcript.
    """

    def __init__(self, start: int, kind: ChunkKind, *, opened: bool, continues: bool = False) -> None:
        self.start = self.begin = start
        self.kind = kind
        self.entries: dict[str, int] = {}
        self.agreement = LocalAgreement()
        self._rest: Utterance | None = None
        self._has_row_offset = False
        self.end: int | None = None
        self.has_ended = False
        self.is_transcript_complete: bool | None = None
        self.last_audio_at = 0.0
        self.has_start = opened
        self.is_continuation = continues
        self.last = start
        self.chunk_numbers: tuple[int, int] | None = None
        self.marks = ChunkFlag(0)
        self.gap_before: tuple[int, int] | None = None
        self.is_announced = False
        self.split_from: Utterance | None = None
        self._chunks: dict[int, AudioChunk] = {}
        self._extractor: LogMelExtractor | None = None
        self._extracted: list[FeatureRows] = []
        self._extracted_frames_end = start

    def add(self, chunk: AudioChunk, now: float) -> None:
        if not self.is_continuation and chunk.sequence < self.start:
            self.start, self.begin = chunk.sequence, min(self.begin, chunk.sequence)
        if chunk.sequence < self._extracted_frames_end:
            self._extractor = None  # features of a gap are wrong
        self.has_start = self.has_start or bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
        first, end = self.chunk_numbers or (chunk.number, chunk.number)
        self.chunk_numbers = min(first, chunk.number), max(end, chunk.number + 1)
        self.marks |= chunk.flags & MARK_FLAGS
        if not (self._chunks and is_mark(chunk)):  # a mark during a pause ends the utterance at the end of its speech
            self._chunks[chunk.sequence] = chunk
            self._extend_end(chunk)
            self.last_audio_at = now
        self.last = max(self.last, chunk.sequence)

    def _extend_end(self, chunk: AudioChunk) -> None:
        if chunk.sequence < self.last:
            return  # the chunk may end a segment after which another one has already started
        if chunk.flags & ChunkFlag.END_OF_SPEECH:
            self.end, self.has_ended = calculate_end_position(chunk), True
        elif self.end is not None and chunk.sequence >= self.end:
            self.end, self.has_ended, self.is_transcript_complete = None, False, None

    def add_journal_entry(self, entry_id: str, sequence: int) -> None:
        """Store the journal entry for a chunk. The chunk may belong to a part that was split off."""
        of = self._rest if self._rest and sequence >= self._rest.start else self
        of.entries[entry_id] = sequence

    def split(self, at: int) -> "Utterance":
        """End the utterance at a frame, and return the rest, which repeats some of the audio before it.

        The split is between chunks, so another host that takes over starts the rest at the same frame, with the same
        id.
        """
        late = self._calculate_early_row_flags()
        at = max((sequence for sequence in late if sequence <= at), default=self.begin)
        rest = Utterance(at, self.kind, opened=False, continues=True)
        rest.begin = max((sequence for sequence in late if sequence <= at - OVERLAP_FRAMES), default=min(late))
        rest._chunks = {sequence: chunk for sequence, chunk in self._chunks.items() if sequence >= rest.begin}
        self._chunks = {sequence: chunk for sequence, chunk in self._chunks.items() if sequence < at}
        rest._has_row_offset = late[rest.begin]
        rest.agreement = self.agreement.create_remainder()
        rest.last_audio_at, rest.last, rest.is_announced, rest.chunk_numbers = (
            self.last_audio_at,
            self.last,
            True,
            self.chunk_numbers,
        )
        self.end, self.has_ended, self._rest = at, True, rest
        self.last = max((sequence for sequence in late if sequence < at), default=self.start)
        for entry_id, sequence in list(self.entries.items()):
            if sequence >= at:
                rest.entries[entry_id] = self.entries.pop(entry_id)
        return rest

    def prepend_overlap(self, before: "Utterance", overlap_frames: int) -> None:
        """Include the end of the preceding utterance, from which this one was split.

        Args:
            before: The preceding utterance, whose text is not repeated.
            overlap_frames: Maximum number of frames to include.
        """
        late = before._calculate_early_row_flags()
        repeated = [
            sequence for sequence in sorted(late) if sequence >= before.start + before.frame_count - overlap_frames
        ]
        if not repeated:
            return
        self.begin, self._has_row_offset = repeated[0], late[repeated[0]]
        self._chunks = {sequence: before._chunks[sequence] for sequence in repeated} | self._chunks
        self._extractor = None  # features of a later first frame are wrong
        self.split_from = before

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._chunks

    def may_include(self, chunk: AudioChunk) -> bool:
        """Return True if an earlier chunk may be part of this utterance.

        In this case, the start of the utterance has not arrived yet, and is close.
        """
        is_near = self.start - chunk.sequence <= MAX_GAP_FRAMES and self.last - chunk.sequence < MAX_UTTERANCE_FRAMES
        is_end = bool(chunk.flags & ChunkFlag.END_OF_SPEECH)
        return is_near and not (self.has_start or self.is_continuation or is_end)

    @property
    def frame_count(self) -> int:
        """Length so far, in 20 ms frames."""
        if self.end is not None:
            return self.end - self.start
        return self.last + CHUNK_FRAMES - self.start if self._chunks else 0

    @property
    def transcribed_frame_count(self) -> int:
        """Length of the transcribed audio, in 20 ms frames."""
        return self.start + self.frame_count - self.begin

    @property
    def next_chunk_number(self) -> int:
        """Number expected for the next chunk; -1 if the utterance was aborted, so that any chunk means a loss."""
        return self.chunk_numbers[1] if self.chunk_numbers and self.has_ended else -1

    @property
    def is_cut_by_commit(self) -> bool:
        """Whether the caller has requested the text during speech."""
        current_chunks = (chunk for sequence, chunk in self._chunks.items() if sequence >= self.start)
        return any(chunk.flags & ChunkFlag.COMMIT and not is_mark(chunk) for chunk in current_chunks)

    @property
    def is_mark(self) -> bool:
        """Whether the utterance is only a mark, received during silence."""
        return bool(self._chunks) and all(map(is_mark, self._chunks.values()))

    @property
    def lost_chunk_count(self) -> int:
        """Number of missing chunks between received ones."""
        return sum(-(-(end - first) // CHUNK_FRAMES) for first, end in self.gaps)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of missing frames, as (start, end) with an exclusive end. Pauses and marks are not gaps."""
        ranges, received_to, before = [], self.begin, None
        for _, chunk in sorted(self._chunks.items()):
            ends = bool(chunk.flags & ChunkFlag.END_OF_SPEECH)
            first = calculate_end_position(chunk) if ends and not count_frames(chunk) else chunk.sequence
            received_to = max(received_to, self.start)
            if first > received_to and not is_mark(chunk) and not _is_pause(before, chunk):
                ranges.append((received_to, first))
            received_to = calculate_end_position(chunk) if ends else first + CHUNK_FRAMES
            before = chunk
        if self.end is not None and self.end > received_to:
            ranges.append((received_to, self.end))
        return ranges

    @property
    def is_complete(self) -> bool:
        """Whether the end of the utterance is known, and all of its chunks have arrived."""
        return self.end is not None and not self.gaps

    def is_stationary_noise(self, frames: int) -> bool:
        """Return True if the last frames have a steady level, such as noise or a tone. Speech varies more."""
        if self.frame_count < max(frames, MIN_STEADY_FRAMES):
            return False
        recent = [
            chunk for sequence, chunk in self._chunks.items() if sequence >= self.start + self.frame_count - frames
        ]
        levels = np.concatenate([_calculate_chunk_levels(chunk) for chunk in recent]) if recent else np.empty(0)
        return bool(levels.size and levels.std() < MAX_STEADY_DEVIATION)

    def extract_features(self, bins: int, *, until_end: bool) -> FeatureRows:
        """Return the log-mel features of the utterance, with silence for missing chunks.

        Args:
            bins: Mel bins of the model; streamed features have 80.
            until_end: Whether the audio is complete, so that the last rows, which extend past it, are included.
        """
        if self.kind is ChunkKind.LOG_MEL:
            return self._collect_streamed_rows()
        return self._extract_rows(bins, until_end=until_end)

    def decode_samples(self) -> NDArray[np.int16]:
        """Return the PCM audio of the utterance at 16 kHz, with silence for missing chunks."""
        audio = np.zeros(self.transcribed_frame_count * CHUNK_FRAME_SAMPLES, np.int16)
        for sequence, chunk in self._chunks.items():
            at = (sequence - self.begin) * CHUNK_FRAME_SAMPLES
            values = audio[at : at + len(chunk.values)]
            values[:] = chunk.values[: len(values)]
        return audio

    def _collect_streamed_rows(self) -> FeatureRows:
        late = self._calculate_early_row_flags()
        first_rows = [(self._find_first_row(chunk, late=late[at]), chunk.values) for at, chunk in self._chunks.items()]
        rows = np.full(
            (max((at + len(some) for at, some in first_rows), default=0), CHUNK_MEL_BINS), SILENCE_LEVEL, np.float32
        )
        for at, values in first_rows:
            rows[at : at + len(values)] = values
        return rows

    def _calculate_early_row_flags(self) -> dict[int, bool]:
        """Return a flag for each chunk, which is True if its rows begin one row early.

        Rows begin early after the start of a segment, whose first chunk contains one row fewer than its length.

        A row is complete 200 samples after its centre. The last chunk of a segment contains the missing row.
        """
        rows_by_chunk, late = {}, self._has_row_offset
        for sequence, chunk in sorted(self._chunks.items()):
            rows_by_chunk[sequence] = late = late or bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
            late = late and not chunk.flags & ChunkFlag.END_OF_SPEECH
        return rows_by_chunk

    def _find_first_row(self, chunk: AudioChunk, *, late: bool) -> int:
        at = ROWS_PER_FRAME * (chunk.sequence - self.begin)
        if chunk.flags & ChunkFlag.START_OF_SPEECH:
            return at
        if chunk.flags & ChunkFlag.END_OF_SPEECH:
            at = ROWS_PER_FRAME * (calculate_end_position(chunk) + 1 - self.begin) - len(chunk.values)
        return max(0, at - late)

    def _extract_rows(self, bins: int, *, until_end: bool) -> FeatureRows:
        if self._extractor is None:
            self._extractor, self._extracted, self._extracted_frames_end = LogMelExtractor(bins), [], self.begin
        audio = self.decode_samples()
        new_audio = audio[(self._extracted_frames_end - self.begin) * CHUNK_FRAME_SAMPLES :]
        self._extracted.append(self._extractor.push(new_audio))
        self._extracted_frames_end = self.start + self.frame_count
        if not until_end:
            return np.concatenate(self._extracted)
        rows = np.concatenate([*self._extracted, self._extractor.flush()])
        self._extractor = None  # speech may continue after a pause
        return rows


def _calculate_chunk_levels(chunk: AudioChunk) -> NDArray[np.float64]:
    """Return the levels of a chunk, per row or frame, as log10 of energy."""
    if chunk.kind is ChunkKind.LOG_MEL:
        return np.asarray(chunk.values.mean(axis=1, dtype=np.float64))
    complete_values = chunk.values[: len(chunk.values) // CHUNK_FRAME_SAMPLES * CHUNK_FRAME_SAMPLES]
    frames = complete_values.reshape(-1, CHUNK_FRAME_SAMPLES).astype(np.float64)
    return np.asarray(np.log10((frames**2).mean(axis=1) + 1))


def _is_pause(before: AudioChunk | None, chunk: AudioChunk) -> bool:
    """Return True if nothing is missing between two chunks that are not adjacent."""
    if before is None or chunk.number > before.number + 1:
        return False
    return bool(before.flags & ChunkFlag.END_OF_SPEECH and chunk.flags & ChunkFlag.START_OF_SPEECH)


def is_mark(chunk: AudioChunk) -> bool:
    """Return True if a chunk is a mark during silence, which starts and ends no utterance."""
    return bool(chunk.flags & MARK_FLAGS) and _SPEECH_BOUNDARY_FLAGS in chunk.flags and not len(chunk.values)


def calculate_end_position(chunk: AudioChunk) -> int:
    """Return the position after the last frame of an utterance, given its last chunk.

    A chunk without frames, which contains the rows for which the previous one had no space, has the position of the
    last frame.
    """
    return chunk.sequence + max(1, count_frames(chunk))


def count_frames(chunk: AudioChunk) -> int:
    """Return the number of 20 ms frames in an utterance's last chunk."""
    if chunk.kind is ChunkKind.PCM16:
        return -(-len(chunk.values) // CHUNK_FRAME_SAMPLES)
    return max(0, len(chunk.values) - 1) // ROWS_PER_FRAME
