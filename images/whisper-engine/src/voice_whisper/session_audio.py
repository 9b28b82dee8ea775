"""Cuts one session's chunks into utterances, however late, doubled or incomplete they come.

Every cut depends on sequences alone, never on the clock, so that two hosts that see the same chunks cut alike. The
clock decides only how long a missing chunk is waited for.
"""

from enum import StrEnum

from blueprint.contract.chunk import ChunkFlag
from voice_runtime.chunk import AudioChunk
from voice_whisper.utterance import LARGEST_GAP_FRAMES, Utterance, is_mark
from voice_whisper.window import FRAME_MS, LONGEST_FRAMES

STARTED_FRAMES = 500 // FRAME_MS
"""Of an utterance that has so many frames, the start does not come any more."""
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

    Attributes:
        done_until: Place behind all that has been handed out: what comes of before it is too late.
    """

    def __init__(self, done_until: int = 0, next_number: int = 0) -> None:
        self.done_until = done_until
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
        if chunk.sequence in utterance:
            return Dropped.DUPLICATE
        if chunk.kind is not utterance.kind:
            return Dropped.MIXED_KIND
        utterance.add(chunk, now)
        return utterance

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
        if utterance.is_whole:
            return True
        known_to_be_over = utterance.end is not None or utterance is not self._utterances[-1]
        return now - utterance.touched_at >= (REORDER_S if known_to_be_over else UNENDED_S)

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
        another = starts and chunk.sequence != utterance.start
        ended = utterance.end is not None and chunk.sequence >= utterance.end
        gap = chunk.sequence - utterance.last > LARGEST_GAP_FRAMES
        if another or ended or gap:
            return self._begin(place + 1, Utterance(chunk.sequence, chunk.kind, opened=starts))
        pieces = (chunk.sequence - utterance.begin) // LONGEST_FRAMES
        if pieces <= 0:
            return utterance
        utterance.end, utterance.has_ended = utterance.begin + LONGEST_FRAMES, True
        start = utterance.begin + pieces * LONGEST_FRAMES
        return self._begin(place + 1, Utterance(start, chunk.kind, opened=False, continues=True))

    def _begin(self, place: int, utterance: Utterance) -> Utterance:
        self._utterances.insert(place, utterance)
        return utterance
