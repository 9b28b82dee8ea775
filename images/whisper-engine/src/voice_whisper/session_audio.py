"""Assembly of a session's chunks into utterances, even if chunks are late, duplicated or missing.

The VAD tier splits at every pause. Short pauses are part of the utterance, and their maximum duration depends on the
clock and the transcript. All other splits only depend on sequence numbers, so two hosts with the same chunks split
identically.
"""

from enum import StrEnum

from voice_blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk
from voice_whisper.utterance import CHUNK_FRAMES, MAX_GAP_FRAMES, Utterance, is_mark
from voice_whisper.window import FRAME_MS, MAX_UTTERANCE_FRAMES

MAX_START_DELAY_FRAMES = 500 // FRAME_MS
"""Number of frames after which an utterance's missing start is no longer expected."""
INCOMPLETE_SENTENCE_SILENCE_FACTOR = 2
"""Factor for the silence that ends an incomplete sentence."""
EARLY_TRANSCRIPT_SILENCE_S = 0.24
"""Silence after which the utterance is transcribed, so that the result is ready when the utterance ends."""
COMMIT_TRANSCRIPT_SILENCE_S = 0.08
"""Silence after which the utterance is transcribed for callers that commit and wait. An agent commits 0.2 s into a
silence, and the transcript takes about as long."""
MAX_CONTINUATION_FRAMES = 300 // FRAME_MS
"""Maximum pause before speech that continues an utterance. If it were transcribed on its own, such speech would be
recognized wrongly."""
MAX_REORDER_S = 0.1
"""Maximum wait for a chunk that later chunks have overtaken."""

MAX_CHUNK_GAP_S = 2.0
"""Time after which an utterance without an end is over, since chunks of speech arrive every 100 ms."""


class DropReason(StrEnum):
    """Reason for dropping a chunk, which is also the name of a counter."""

    DUPLICATE = "duplicate"
    LATE = "late"
    """Its utterance has already been transcribed."""
    MIXED_KIND = "mixed-kind"
    """Log-mel and PCM in one utterance."""


class SessionAudio:
    """The utterances that are in progress in a session.

    Args:
        end_of_turn_s: Silence that ends an utterance.
        max_utterance_frames: Maximum length of an utterance.
        overlap_frames: Frames of the previous utterance that a split-off utterance includes again.

    Attributes:
        end_of_turn_s: Silence that ends an utterance, which may change during the session.
        transcribed_until: Position after all completed utterances; earlier chunks are too late.
    """

    def __init__(
        self,
        transcribed_until: int = 0,
        next_chunk_number: int = 0,
        end_of_turn_s: float = 0.0,
        max_utterance_frames: int = MAX_UTTERANCE_FRAMES,
        overlap_frames: int = 0,
    ) -> None:
        self.transcribed_until = transcribed_until
        self._longest_frames = max_utterance_frames
        self._overlap_frames = overlap_frames
        self._before: Utterance | None = None
        self.end_of_turn_s = end_of_turn_s
        self._transcribe_after_s = EARLY_TRANSCRIPT_SILENCE_S
        self._last_mark: int | None = None
        self._completed_until = transcribed_until
        self._next_number = next_chunk_number
        self._utterances: list[Utterance] = []

    @property
    def current_utterance(self) -> Utterance | None:
        """The utterance that is being spoken."""
        return self._utterances[-1] if self._utterances else None

    def find_utterance_to_announce(self) -> Utterance | None:
        """Return the oldest utterance to announce, once its start has arrived or is lost.

        Earlier chunks are rejected from then on.
        """
        first = self._utterances[0] if self._utterances else None
        if (
            first is None
            or first.is_announced
            or first.is_mark
            or not (first.has_start or first.frame_count >= MAX_START_DELAY_FRAMES)
        ):
            return None
        self._detect_gap(first)
        self.transcribed_until = max(self.transcribed_until, first.start)
        return first

    def add(self, chunk: AudioChunk, now: float) -> Utterance | DropReason:
        """Add a chunk, and return its utterance, or the reason for dropping it."""
        # A mark has the position of the last frame, which may have ended an utterance.
        if chunk.sequence < self.transcribed_until - is_mark(chunk):
            return DropReason.LATE
        if is_mark(chunk) and chunk.sequence == self._last_mark:
            return DropReason.DUPLICATE  # without an utterance, which would have no chunk
        utterance = self._find_or_begin_utterance(chunk)
        if chunk.sequence in utterance:
            return DropReason.DUPLICATE
        if chunk.kind is not utterance.kind:
            return DropReason.MIXED_KIND
        utterance.add(chunk, now)
        self._copy_to_continuation(utterance, chunk)
        if chunk.flags & ChunkFlag.COMMIT:
            self._transcribe_after_s = COMMIT_TRANSCRIPT_SILENCE_S
        if is_mark(chunk):
            self._last_mark = chunk.sequence
        return utterance

    def find_silent_utterance(self, now: float) -> Utterance | None:
        """Return the current utterance if its speaker is silent, so that it may have ended."""
        last = self.current_utterance
        if last is None or last.is_mark or self.end_of_turn_s <= EARLY_TRANSCRIPT_SILENCE_S:
            return None
        return last if last.end is not None and now - last.last_audio_at >= self._transcribe_after_s else None

    def pop_finished(self, now: float) -> list[Utterance]:
        """Remove and return the completed utterances, in order."""
        if self._before and now - self._before.last_audio_at > MAX_CHUNK_GAP_S:
            self._before = None  # the next utterance does not continue this one
        ended: list[Utterance] = []
        while self._utterances and self._has_ended(self._utterances[0], now):
            utterance = self._utterances.pop(0)
            if not utterance.is_announced:
                self._detect_gap(utterance)
            self._next_number = utterance.next_chunk_number
            utterance.end = utterance.start + utterance.frame_count
            self.transcribed_until = self._completed_until = max(utterance.end, utterance.last + 1)
            ended.append(utterance)
            self._before = None if utterance.is_mark else utterance
        return ended

    def split(self, utterance: Utterance, at: int) -> Utterance:
        """Split the current utterance at a frame, and return the rest."""
        index = self._utterances.index(utterance)
        self._utterances[index] = rest = utterance.split(at)
        self.transcribed_until = self._completed_until = utterance.last + 1
        return rest

    def _copy_to_continuation(self, utterance: Utterance, chunk: AudioChunk) -> None:
        """If a late chunk spans the cut of a long utterance, also include it in the part after the cut."""
        end = utterance.end
        if end is None or not chunk.sequence < end < chunk.sequence + CHUNK_FRAMES:
            return
        rest = next((each for each in self._utterances if each.start == end and each.is_continuation), None)
        if rest:
            rest.prepend_overlap(utterance, CHUNK_FRAMES - 1)

    def _detect_gap(self, utterance: Utterance) -> None:
        """Record a loss before an utterance whose number is not the expected one."""
        numbers = utterance.chunk_numbers
        if numbers and numbers[0] > self._next_number and self._completed_until < utterance.start:
            utterance.gap_before = (self._completed_until, utterance.start)

    def _has_ended(self, utterance: Utterance, now: float) -> bool:
        silence_s, is_last = now - utterance.last_audio_at, utterance is self._utterances[-1]
        if utterance.end is None and is_last:
            return silence_s >= MAX_CHUNK_GAP_S
        if silence_s < MAX_REORDER_S and not utterance.is_complete:
            return False
        sounds_over = utterance.is_transcript_complete or self.end_of_turn_s <= EARLY_TRANSCRIPT_SILENCE_S
        required_silence_s = self.end_of_turn_s * (1 if sounds_over else INCOMPLETE_SENTENCE_SILENCE_FACTOR)
        return bool(utterance.marks) or not is_last or silence_s >= required_silence_s

    def _find_or_begin_utterance(self, chunk: AudioChunk) -> Utterance:
        starts = bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
        # The newest utterance to which the chunk can belong.
        for index, utterance in reversed(list(enumerate(self._utterances))):
            if chunk.sequence >= (utterance.begin if utterance.is_continuation else utterance.start):
                return self._continue_or_begin_utterance(index, chunk, starts=starts)
            if utterance.may_include(chunk):
                return utterance
        return self._begin_utterance(0, chunk, starts=starts)

    def _continue_or_begin_utterance(self, index: int, chunk: AudioChunk, *, starts: bool) -> Utterance:
        utterance = self._utterances[index]
        if chunk.sequence in utterance:
            return utterance
        another = starts and chunk.sequence != utterance.start
        ended = utterance.end is not None and chunk.sequence >= utterance.end
        gap = chunk.sequence - utterance.last > MAX_GAP_FRAMES
        if (another or ended or gap) and not self._continues_utterance(index, chunk):
            return self._begin_utterance(index + 1, chunk, starts=starts)
        # The chunk that spans the previous cut does not shift the next cut, since a host that takes over the session
        # may not have that chunk.
        is_shared = utterance.start - utterance.begin < CHUNK_FRAMES
        begin = utterance.start if is_shared else utterance.begin
        pieces = (chunk.sequence - begin) // self._longest_frames
        if pieces <= 0:
            return utterance
        utterance.end, utterance.has_ended = begin + self._longest_frames, True
        rest = Utterance(begin + pieces * self._longest_frames, chunk.kind, opened=False, continues=True)
        if rest.start == utterance.end:
            rest.prepend_overlap(utterance, CHUNK_FRAMES - 1)
        return self._insert_utterance(index + 1, rest)

    def _continues_utterance(self, index: int, chunk: AudioChunk) -> bool:
        """Return True if a chunk after a pause belongs to the utterance before it."""
        utterance = self._utterances[index]
        if utterance.marks or index < len(self._utterances) - 1:
            return False
        if is_mark(chunk):
            return utterance.end is not None and self.end_of_turn_s > 0
        pause = chunk.sequence - (utterance.start + utterance.frame_count)
        longest = round(INCOMPLETE_SENTENCE_SILENCE_FACTOR * self.end_of_turn_s * 1000 / FRAME_MS)
        return pause <= longest and longest > 0

    def _begin_utterance(self, index: int, chunk: AudioChunk, *, starts: bool) -> Utterance:
        utterance = Utterance(chunk.sequence, chunk.kind, opened=starts)
        before = self._utterances[index - 1] if index else self._before
        if before and before.end is not None and before.kind is chunk.kind and not is_mark(chunk):
            pause = chunk.sequence - before.end
            if 0 <= pause <= MAX_CONTINUATION_FRAMES:
                utterance.prepend_overlap(before, self._overlap_frames)
        return self._insert_utterance(index, utterance)

    def _insert_utterance(self, index: int, utterance: Utterance) -> Utterance:
        self._utterances.insert(index, utterance)
        return utterance
