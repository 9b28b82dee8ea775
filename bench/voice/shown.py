"""A growing transcript from a caller's perspective: how soon text is committed, and what is withdrawn."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from voice_ops.call.session import TranscriptEvent


@dataclass
class Display:
    """A display that shows every event.

    Attributes:
        commits_s: Time from each word's end in the audio to its commitment, seconds.
        withdrawn: Number of words that disappeared.
        broken: Number of those that were committed.
        words: Number of words at the end.
    """

    commits_s: list[float] = field(default_factory=list)
    withdrawn: int = 0
    broken: int = 0
    words: int = 0

    @property
    def withdrawn_share(self) -> float:
        """Share of all displayed words that were withdrawn."""
        return self.withdrawn / max(1, self.withdrawn + self.words)


def display(events: Iterable[tuple[float, TranscriptEvent]]) -> Display:
    """Return the display of a caller's events, which arrived at these seconds of the call."""
    screen = Display()
    texts: dict[int, tuple[list[str], list[str]]] = {}
    """For each utterance by its position: all words, and the committed ones."""
    for at, event in events:
        if event.kind not in {"partial", "final"}:
            continue
        start_ms = event.start_ms
        committed = (event.text if event.kind == "final" else event.committed).split()
        before = [_words_in_column(texts, column) for column in (0, 1)]
        words, is_final_by_word = texts.get(start_ms, ([], []))
        displayed = len(is_final_by_word)
        texts[start_ms] = event.text.split(), committed
        if not event.speech_final:  # tentative words belong to the next part
            texts[event.end_ms] = words[len(committed) :], []
        screen.commits_s += [at - word.end_ms / 1000 for word in event.words[displayed : len(committed)]]
        after = [_words_in_column(texts, column) for column in (0, 1)]
        screen.withdrawn += _count_missing(before[0], after[0])
        screen.broken += _count_missing(before[1], after[1])
        screen.words = len(after[0])
    return screen


def _words_in_column(texts: dict[int, tuple[list[str], list[str]]], column: int) -> list[str]:
    return [word.casefold().strip(".,?!") for start_ms in sorted(texts) for word in texts[start_ms][column]]


def _count_missing(before: list[str], after: list[str]) -> int:
    matches = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return len(before) - sum(match.size for match in matches)
