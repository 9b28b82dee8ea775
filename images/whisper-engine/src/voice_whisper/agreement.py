"""What of a growing utterance is certain: words that two hypotheses in a row agree on (LocalAgreement-2).

Each second the engine hears the utterance so far anew. The words that it says twice alike are committed, and never
change again; what is behind them is tentative. Machacek et al., "Turning Whisper into Real-Time Transcription System"
(2023).
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace

from voice_whisper.backends.base import Word

LEAST_AUDIO_S = 1.5
"""Of less the model invents words, the same ones twice: such a hypothesis is shown and does not vote."""
EARLY_S = 0.1
"""A word's times are that uncertain."""
LONGEST_OVERLAP = 5
"""Words that a hypothesis may say again of what is committed."""
MOST_COMPRESSED = 2.4
"""Whisper's own sign of a text that goes round in circles (`compression_ratio_threshold`): such a hypothesis is not
heard."""
ENDS_OF_SENTENCES = (".", "?", "!", "\u3002", "\uff1f", "\uff01", "\u061f", "\u0964")
"""Full stop, question and exclamation mark; the same in Chinese, Arabic and Hindi."""
REPEATS = 3
"""A few words so many times in a row, to the end: the model is caught in a loop."""


class Agreement:
    """The words of one utterance, in seconds from wherever its caller counts.

    Attributes:
        committed: Words that are certain.
        tentative: Words that may change.
    """

    def __init__(self, said_before: Sequence[Word] = ()) -> None:
        """Begin, behind the last words of what was cut off before."""
        self.committed: list[Word] = []
        self.tentative: list[Word] = []
        self._said_before = list(said_before)[-LONGEST_OVERLAP:]
        self._last: list[Word] = []

    @property
    def words(self) -> list[Word]:
        return self.committed + self.tentative

    def rest(self) -> "Agreement":
        """Return what goes on behind the last committed word, where the utterance is cut."""
        rest = Agreement(self._said_before + self.committed)
        rest.tentative, rest._last = self.tentative, self._last
        return rest

    def hear(self, hypothesis: Sequence[Word], *, votes: bool = True) -> None:
        """Take in what is heard of all audio so far."""
        if _goes_in_circles(hypothesis):
            return
        fresh = self._fresh(hypothesis)
        if votes:
            # The last word may have been cut in its middle.
            agreed = _common(self._last, fresh[:-1])
            self.committed += fresh[:agreed]
            fresh = fresh[agreed:]
            self._last = fresh
        self.tentative = fresh

    def end(self, hypothesis: Sequence[Word]) -> None:
        """Take in what is heard of all of it: nothing is uncertain any more."""
        self.committed += self._fresh(hypothesis)
        self.tentative = self._last = []

    def _fresh(self, hypothesis: Sequence[Word]) -> list[Word]:
        """Return what a hypothesis says behind the committed words."""
        said = self._said_before + self.committed
        if not said:
            return _without_loop(hypothesis)
        fresh = [word for word in hypothesis if word.end > said[-1].end + EARLY_S]
        # Times are uncertain: what is said again at the seam is known by its words.
        for count in range(min(LONGEST_OVERLAP, len(said), len(fresh)), 0, -1):
            if _common(said[-count:], fresh[:count]) == count and fresh[0].start < said[-1].end + 1:
                fresh = fresh[count:]
                break
        return _without_loop(fresh)


def sounds_over(text: str) -> bool:
    """Return whether a text ends like a sentence."""
    return text.endswith(ENDS_OF_SENTENCES) and not text.endswith("...")


def text_of(words: Sequence[Word]) -> str:
    """Return words as they are printed."""
    return "".join(word.text for word in words).strip()


def shifted(words: Sequence[Word], by_s: float) -> list[Word]:
    """Return words that are counted from elsewhere."""
    return [replace(word, start=word.start + by_s, end=word.end + by_s) for word in words]


def _goes_in_circles(words: Sequence[Word]) -> bool:
    text = text_of(words).encode()
    return len(text) > MOST_COMPRESSED * len(zlib.compress(text))


def _common(before: Sequence[Word], now: Sequence[Word]) -> int:
    """Return how many words two hypotheses begin with alike."""
    pairs = zip(before, now, strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if _plain(a) != _plain(b)), min(len(before), len(now)))


def _plain(word: Word) -> str:
    return "".join(filter(str.isalnum, word.text.lower()))


def _without_loop(words: Sequence[Word]) -> list[Word]:
    """Return words without the repetitions that they end in; one that goes on with other words was said."""
    plain = [_plain(word) for word in words]
    for length in range(1, LONGEST_OVERLAP + 1):
        repeats = 1
        while plain[-length * (repeats + 1) : -length * repeats] == plain[-length:] and repeats * length < len(plain):
            repeats += 1
        if repeats >= REPEATS:
            return list(words[: len(words) - length * (repeats - 1)])
    return list(words)
