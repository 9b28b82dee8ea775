"""Combines a session's chunks into utterances, even if they are late, duplicated or incomplete.

The VAD tier splits at every pause. Short pauses are part of the utterance: the clock and the transcript determine their
maximum duration. All other splits only depend on sequence numbers, so two hosts with the same chunks split identically.
"""

from enum import StrEnum

from voice_blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk
from voice_whisper.utterance import LARGEST_GAP_FRAMES, Utterance, is_mark
from voice_whisper.window import FRAME_MS, MAX_FRAMES

STARTED_FRAMES = 500 // FRAME_MS
"""Number of frames after which a missing start of an utterance is no longer expected."""
UNFINISHED = 2
"""Factor for the silence that ends an incomplete sentence."""
HEAR_AFTER_S = 0.24
"""Silence after which the utterance is transcribed, so that the result is ready when the utterance ends."""
HEAR_SOON_S = 0.08
"""The same for callers that commit and wait: an agent does so 0.2 s into a silence, and the transcript takes about as
long."""
CUT_OFF_FRAMES = 300 // FRAME_MS
"""Speech that starts this soon after an utterance is a continuation, and would be transcribed wrongly on its own."""
REORDER_S = 0.1
"""Maximum wait for a chunk that others have overtaken."""

UNENDED_S = 2.0
"""Time after which an utterance without an end is over, since chunks of speech arrive every 100 ms."""


class Dropped(StrEnum):
    """Reason for dropping a chunk; the name of a counter."""

    DUPLICATE = "duplicate"
    LATE = "late"
    """Its utterance has already been transcribed."""
    MIXED_KIND = "mixed-kind"
    """Log-mel and PCM in one utterance."""


class SessionAudio:
    """The utterances of a session that are in progress.

    Args:
        end_of_turn_s: Silence that ends an utterance.
        longest_frames: Maximum length of an utterance.
        kept_frames: Frames of the previous utterance that a split-off utterance includes again.

    Attributes:
        end_of_turn_s: New silence that ends an utterance.
        done_until: Position after all completed utterances; earlier chunks are too late.
    """

    def __init__(
        self,
        done_until: int = 0,
        next_number: int = 0,
        end_of_turn_s: float = 0.0,
        longest_frames: int = MAX_FRAMES,
        kept_frames: int = 0,
    ) -> None:
        self.done_until = done_until
        self._longest_frames = longest_frames
        self._kept_frames = kept_frames
        self._before: Utterance | None = None
        self.end_of_turn_s = end_of_turn_s
        self._hear_after_s = HEAR_AFTER_S
        self._last_mark = -1
        self._finished_to = done_until
        self._next_number = next_number
        self._utterances: list[Utterance] = []

    @property
    def current(self) -> Utterance | None:
        """The utterance that is being spoken."""
        return self._utterances[-1] if self._utterances else None

    def begun(self) -> Utterance | None:
        """Return the oldest utterance once its start has arrived or is lost.

        Earlier chunks are rejected from then on.
        """
        first = self._utterances[0] if self._utterances else None
        if first is None or first.announced or first.is_mark or not (first.opened or first.frames >= STARTED_FRAMES):
            return None
        self._look_for_gap(first)
        self.done_until = max(self.done_until, first.start)
        return first

    def add(self, chunk: AudioChunk, now: float) -> Utterance | Dropped:
        """Add a chunk, and return its utterance, or the reason for dropping it."""
        # A mark has the position of the last frame, which may have ended an utterance.
        if chunk.sequence < self.done_until - is_mark(chunk):
            return Dropped.LATE
        utterance = self._utterance_of(chunk)
        if chunk.sequence in utterance or (is_mark(chunk) and chunk.sequence == self._last_mark):
            return Dropped.DUPLICATE
        if chunk.kind is not utterance.kind:
            return Dropped.MIXED_KIND
        utterance.add(chunk, now)
        if chunk.flags & ChunkFlag.COMMIT:
            self._hear_after_s = HEAR_SOON_S
        if is_mark(chunk):
            self._last_mark = chunk.sequence
        return utterance

    def next_utterance(self, now: float) -> Utterance | None:
        """Return an utterance during a silence that may end it."""
        last = self.current
        if last is None or last.is_mark or self.end_of_turn_s <= HEAR_AFTER_S:
            return None
        return last if last.end is not None and now - last.touched_at >= self._hear_after_s else None

    def finished(self, now: float) -> list[Utterance]:
        """Remove and return the completed utterances in order."""
        if self._before and now - self._before.touched_at > UNENDED_S:
            self._before = None  # the next utterance is not a continuation of it
        over: list[Utterance] = []
        while self._utterances and self._is_over(self._utterances[0], now):
            utterance = self._utterances.pop(0)
            if not utterance.announced:
                self._look_for_gap(utterance)
            self._next_number = utterance.next_number
            utterance.end = utterance.start + utterance.frames
            self.done_until = self._finished_to = max(utterance.end, utterance.last + 1)
            over.append(utterance)
            self._before = None if utterance.is_mark else utterance
        return over

    def split(self, utterance: Utterance, at: int) -> None:
        """Split the current utterance."""
        place = self._utterances.index(utterance)
        self._utterances[place] = utterance.split(at)
        self.done_until = self._finished_to = utterance.last + 1

    def _look_for_gap(self, utterance: Utterance) -> None:
        """Record a loss before an utterance, if its number is not the expected one."""
        first, _ = utterance.numbers or (0, 0)
        if first > self._next_number and self._finished_to < utterance.start:
            utterance.gap_before = (self._finished_to, utterance.start)

    def _is_over(self, utterance: Utterance, now: float) -> bool:
        silence_s, is_last = now - utterance.touched_at, utterance is self._utterances[-1]
        if utterance.end is None and is_last:
            return silence_s >= UNENDED_S
        if silence_s < REORDER_S and not utterance.is_whole:
            return False
        sounds_over = utterance.says_all or self.end_of_turn_s <= HEAR_AFTER_S
        enough_s = self.end_of_turn_s * (1 if sounds_over else UNFINISHED)
        return bool(utterance.marks) or not is_last or silence_s >= enough_s

    def _utterance_of(self, chunk: AudioChunk) -> Utterance:
        starts = bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
        # The newest utterance to which the chunk can belong.
        for place in range(len(self._utterances) - 1, -1, -1):
            utterance = self._utterances[place]
            if chunk.sequence >= (utterance.begin if utterance.continues else utterance.start):
                return self._utterance_at_or_before(place, chunk, starts=starts)
            if utterance.may_begin_with(chunk):
                return utterance
        return self._begin_with(0, chunk, starts=starts)

    def _utterance_at_or_before(self, place: int, chunk: AudioChunk, *, starts: bool) -> Utterance:
        utterance = self._utterances[place]
        if chunk.sequence in utterance:
            return utterance
        another = starts and chunk.sequence != utterance.start
        ended = utterance.end is not None and chunk.sequence >= utterance.end
        gap = chunk.sequence - utterance.last > LARGEST_GAP_FRAMES
        if (another or ended or gap) and not self._goes_on(place, chunk):
            return self._begin_with(place + 1, chunk, starts=starts)
        pieces = (chunk.sequence - utterance.begin) // self._longest_frames
        if pieces <= 0:
            return utterance
        utterance.end, utterance.has_ended = utterance.begin + self._longest_frames, True
        start = utterance.begin + pieces * self._longest_frames
        return self._begin(place + 1, Utterance(start, chunk.kind, opened=False, continues=True))

    def _goes_on(self, place: int, chunk: AudioChunk) -> bool:
        """Return True if a chunk after a pause belongs to the utterance before it."""
        utterance = self._utterances[place]
        if utterance.marks or place < len(self._utterances) - 1:
            return False
        if is_mark(chunk):
            return utterance.end is not None and self.end_of_turn_s > 0
        pause = chunk.sequence - (utterance.start + utterance.frames)
        longest = round(UNFINISHED * self.end_of_turn_s * 1000 / FRAME_MS)
        return pause <= longest and longest > 0

    def _begin_with(self, place: int, chunk: AudioChunk, *, starts: bool) -> Utterance:
        utterance = Utterance(chunk.sequence, chunk.kind, opened=starts)
        before = self._utterances[place - 1] if place else self._before
        if before and before.end is not None and before.kind is chunk.kind and not is_mark(chunk):
            pause = chunk.sequence - before.end
            if 0 <= pause <= CUT_OFF_FRAMES:
                utterance.follow(before, self._kept_frames)
        return self._begin(place, utterance)

    def _begin(self, place: int, utterance: Utterance) -> Utterance:
        self._utterances.insert(place, utterance)
        return utterance
