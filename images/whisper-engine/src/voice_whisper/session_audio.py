"""Cuts one session's chunks into utterances, however late, doubled or incomplete they come.

The VAD tier cuts at every pause. A short one belongs to the utterance: the clock and what was said decide how long it
may be. Every other cut depends on sequences alone, so that two hosts that see the same chunks cut alike.
"""

from enum import StrEnum

from blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk
from voice_whisper.utterance import LARGEST_GAP_FRAMES, Utterance, is_mark
from voice_whisper.window import FRAME_MS, LONGEST_FRAMES

STARTED_FRAMES = 500 // FRAME_MS
"""Of an utterance that has so many frames, the start does not come any more."""
UNFINISHED = 2
"""Times as long a silence ends what does not sound like the end of a sentence."""
HEAR_AFTER_S = 0.24
"""Into a silence what was said is transcribed, so that it is ready when the silence has lasted for long enough."""
HEAR_SOON_S = 0.08
"""The same of who commits, and so waits: an agent does 0.2 s into a silence, and the transcript takes about as long."""
REORDER_S = 0.1
"""A chunk that is overtaken by others is waited for that long."""

UNENDED_S = 2.0
"""An utterance whose end does not come is over after that: chunks of speech come every 100 ms."""


class Dropped(StrEnum):
    """Why a chunk is not heard; names a counter."""

    DUPLICATE = "duplicate"
    LATE = "late"
    """Its utterance has been transcribed without it."""
    MIXED_KIND = "mixed-kind"
    """Log-mel and PCM in one utterance."""


class SessionAudio:
    """The utterances of one session that are still being heard.

    Args:
        end_of_turn_s: Silence that ends an utterance.
        longest_frames: An utterance is cut there.

    Attributes:
        done_until: Place behind all that has been handed out: what comes of before it is too late.
    """

    def __init__(
        self,
        done_until: int = 0,
        next_number: int = 0,
        end_of_turn_s: float = 0.0,
        longest_frames: int = LONGEST_FRAMES,
    ) -> None:
        self.done_until = done_until
        self._longest_frames = longest_frames
        self._end_of_turn_s = end_of_turn_s
        self._longest_pause = round(UNFINISHED * end_of_turn_s * 1000 / FRAME_MS)
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
        """Return the oldest utterance when its start has come, or is lost; nothing of before it is taken any more."""
        first = self._utterances[0] if self._utterances else None
        if first is None or first.announced or first.is_mark or not (first.opened or first.frames >= STARTED_FRAMES):
            return None
        self._look_for_gap(first)
        self.done_until = max(self.done_until, first.start)
        return first

    def add(self, chunk: AudioChunk, now: float) -> Utterance | Dropped:
        """Take a chunk in, and return its utterance, or why it is not heard."""
        # A mark has the place of the last frame, which may have ended an utterance.
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

    def to_be_heard(self, now: float) -> Utterance | None:
        """Return the utterance whose speaker is silent, when it may be over soon."""
        last = self.current
        if last is None or last.is_mark or self._end_of_turn_s <= HEAR_AFTER_S:
            return None
        return last if last.end is not None and now - last.touched_at >= self._hear_after_s else None

    def finished(self, now: float) -> list[Utterance]:
        """Take out the utterances that are over, in their order."""
        over: list[Utterance] = []
        while self._utterances and self._is_over(self._utterances[0], now):
            utterance = self._utterances.pop(0)
            if not utterance.announced:
                self._look_for_gap(utterance)
            self._next_number = utterance.next_number
            utterance.end = utterance.start + utterance.frames
            self.done_until = self._finished_to = max(utterance.end, utterance.last + 1)
            over.append(utterance)
        return over

    def split(self, utterance: Utterance, at: int) -> None:
        """Cut the utterance that is being spoken."""
        place = self._utterances.index(utterance)
        self._utterances[place] = utterance.split(at)
        self.done_until = self._finished_to = utterance.last + 1

    def _look_for_gap(self, utterance: Utterance) -> None:
        """Note what was lost before an utterance, where its number is not the one that was to come."""
        first, _ = utterance.numbers or (0, 0)
        if first > self._next_number and self._finished_to < utterance.start:
            utterance.gap_before = (self._finished_to, utterance.start)

    def _is_over(self, utterance: Utterance, now: float) -> bool:
        silence_s, is_last = now - utterance.touched_at, utterance is self._utterances[-1]
        if utterance.end is None and is_last:
            return silence_s >= UNENDED_S
        if silence_s < REORDER_S and not utterance.is_whole:
            return False
        sounds_over = utterance.says_all or self._end_of_turn_s <= HEAR_AFTER_S
        enough_s = self._end_of_turn_s * (1 if sounds_over else UNFINISHED)
        return bool(utterance.marks) or not is_last or silence_s >= enough_s

    def _utterance_of(self, chunk: AudioChunk) -> Utterance:
        starts = bool(chunk.flags & ChunkFlag.START_OF_SPEECH)
        # The newest utterance that the chunk can belong to.
        for place in range(len(self._utterances) - 1, -1, -1):
            utterance = self._utterances[place]
            if chunk.sequence >= utterance.begin:
                return self._at_or_behind(place, chunk, starts=starts)
            if utterance.may_begin_with(chunk):
                return utterance
        return self._begin(0, Utterance(chunk.sequence, chunk.kind, opened=starts))

    def _at_or_behind(self, place: int, chunk: AudioChunk, *, starts: bool) -> Utterance:
        utterance = self._utterances[place]
        if chunk.sequence in utterance:
            return utterance
        another = starts and chunk.sequence != utterance.start
        ended = utterance.end is not None and chunk.sequence >= utterance.end
        gap = chunk.sequence - utterance.last > LARGEST_GAP_FRAMES
        if (another or ended or gap) and not self._goes_on(place, chunk):
            return self._begin(place + 1, Utterance(chunk.sequence, chunk.kind, opened=starts))
        pieces = (chunk.sequence - utterance.begin) // self._longest_frames
        if pieces <= 0:
            return utterance
        utterance.end, utterance.has_ended = utterance.begin + self._longest_frames, True
        start = utterance.begin + pieces * self._longest_frames
        return self._begin(place + 1, Utterance(start, chunk.kind, opened=False, continues=True))

    def _goes_on(self, place: int, chunk: AudioChunk) -> bool:
        """Return whether a chunk behind a pause belongs to the utterance before it."""
        utterance = self._utterances[place]
        if utterance.marks or place < len(self._utterances) - 1:
            return False
        if is_mark(chunk):
            return utterance.end is not None and self._end_of_turn_s > 0
        pause = chunk.sequence - (utterance.start + utterance.frames)
        return pause <= self._longest_pause and self._longest_pause > 0

    def _begin(self, place: int, utterance: Utterance) -> Utterance:
        self._utterances.insert(place, utterance)
        return utterance
