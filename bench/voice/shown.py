"""Measures how soon the text of a growing transcript is committed, and how much of it is withdrawn."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from voice_ops.call.session import TranscriptEvent


@dataclass
class DisplayMetrics:
    """Measurements of a display that shows every event of a call.

    Attributes:
        commit_delays_s: Time from the end of each word in the audio to its commitment, in seconds.
        withdrawn_word_count: Number of words that disappeared.
        withdrawn_committed_word_count: Number of committed words that disappeared.
        word_count: Number of words at the end.
    """

    commit_delays_s: list[float] = field(default_factory=list)
    withdrawn_word_count: int = 0
    withdrawn_committed_word_count: int = 0
    word_count: int = 0

    @property
    def withdrawn_ratio(self) -> float:
        """Share of all displayed words that were withdrawn."""
        return self.withdrawn_word_count / max(1, self.withdrawn_word_count + self.word_count)


def measure_display(events: Iterable[tuple[float, TranscriptEvent]]) -> DisplayMetrics:
    """Return the measurements for the events of a call. Each event has its arrival time in seconds."""
    screen = DisplayMetrics()
    texts: dict[int, tuple[list[str], list[str]]] = {}
    """All words and the committed words of each utterance, by start position."""
    for at, event in events:
        if event.kind not in {"partial", "final"}:
            continue
        start_ms = event.start_ms
        committed = (event.text if event.kind == "final" else event.committed).split()
        before = [_collect_words_in_column(texts, column) for column in (0, 1)]
        words, is_final_by_word = texts.get(start_ms, ([], []))
        displayed = len(is_final_by_word)
        texts[start_ms] = event.text.split(), committed
        if not event.speech_final:  # tentative words belong to the next part
            texts[event.end_ms] = words[len(committed) :], []
        screen.commit_delays_s += [at - word.end_ms / 1000 for word in event.words[displayed : len(committed)]]
        after = [_collect_words_in_column(texts, column) for column in (0, 1)]
        screen.withdrawn_word_count += _count_withdrawn_words(before[0], after[0])
        screen.withdrawn_committed_word_count += _count_withdrawn_words(before[1], after[1])
        screen.word_count = len(after[0])
    return screen


def _collect_words_in_column(texts: dict[int, tuple[list[str], list[str]]], column: int) -> list[str]:
    return [word.casefold().strip(".,?!") for start_ms in sorted(texts) for word in texts[start_ms][column]]


def _count_withdrawn_words(before: list[str], after: list[str]) -> int:
    matches = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return len(before) - sum(match.size for match in matches)
