"""The stable part of a growing utterance: words on which two consecutive hypotheses agree (LocalAgreement-2).

Each second, the engine transcribes the utterance so far again. Words that are equal in two transcripts are committed
and never change; the following words are tentative. Source: Machacek et al., "Turning Whisper into Real-Time
Transcription System" (2023).
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace

from voice_whisper.backends.base import Word

MIN_AUDIO_S = 1.5
"""Minimum duration of audio for agreement. For shorter audio, the model repeatedly hallucinates the same words, so such
a hypothesis is published, but not used for agreement."""
WORD_TIME_TOLERANCE_S = 0.1
"""Uncertainty of a word's times."""
MAX_REPEATED_WORDS = 5
"""Maximum number of committed words that a hypothesis may repeat."""
MAX_COMPRESSION_RATIO = 2.4
"""Maximum compression ratio of a hypothesis, above which it is discarded as repetitive. This is Whisper's own threshold
(`compression_ratio_threshold`)."""
SENTENCE_ENDINGS = (".", "?", "!", "\u3002", "\uff1f", "\uff01", "\u061f", "\u0964")
"""Full stop, question mark and exclamation mark, including those of Chinese, Arabic and Hindi."""
MIN_REPEAT_COUNT = 3
"""Number of consecutive repetitions of a few words, up to the end, that indicate a loop in the model."""


class LocalAgreement:
    """The words of an utterance, with times in seconds relative to the caller's origin.

    Attributes:
        committed: Words that no longer change.
        tentative: Words that may change.
    """

    def __init__(self, previous_words: Sequence[Word] = ()) -> None:
        """Create the state after the last words of the preceding audio."""
        self.committed: list[Word] = []
        self.tentative: list[Word] = []
        self._previous_words = list(previous_words)[-MAX_REPEATED_WORDS:]
        self._last: list[Word] = []

    @property
    def words(self) -> list[Word]:
        return self.committed + self.tentative

    def list_words_before(self, at_s: float) -> list[Word]:
        """Return the words, except for a tentative last word that ends after this time and may be cut off."""
        is_cut = bool(self.tentative) and self.tentative[-1].end > at_s
        return self.committed + self.tentative[: len(self.tentative) - is_cut]

    def create_remainder(self) -> "LocalAgreement":
        """Return the state for the audio after the last committed word, where the utterance is cut."""
        rest = LocalAgreement(self._previous_words + self.committed)
        rest.tentative, rest._last = self.tentative, self._last
        return rest

    def continue_from(self, before: "LocalAgreement") -> None:
        """Continue after the words of another utterance, whose end is transcribed again but not published again."""
        self._previous_words = (before._previous_words + before.committed)[-MAX_REPEATED_WORDS:]

    def add_hypothesis(self, hypothesis: Sequence[Word], *, counts: bool = True) -> None:
        """Process a hypothesis for all audio so far."""
        if _is_repetitive(hypothesis):
            return
        new_words = self._select_new_words(hypothesis)
        if counts:
            # The last word may have been cut off.
            agreed = _calculate_common_prefix_length(self._last, new_words[:-1])
            self.committed += new_words[:agreed]
            new_words = new_words[agreed:]
            self._last = new_words
        self.tentative = new_words

    def finish(self, hypothesis: Sequence[Word]) -> None:
        """Process the final hypothesis, after which nothing is tentative."""
        self.committed += self._select_new_words(hypothesis)
        self.tentative = self._last = []

    def _select_new_words(self, hypothesis: Sequence[Word]) -> list[Word]:
        """Return the part of a hypothesis after the committed words."""
        words = self._previous_words + self.committed
        if not words:
            return _remove_trailing_repeats(hypothesis)
        new_words = [word for word in hypothesis if word.end > words[-1].end + WORD_TIME_TOLERANCE_S]
        # Times are uncertain, so repetitions at the boundary are detected by their words.
        for count in range(min(MAX_REPEATED_WORDS, len(words), len(new_words)), 0, -1):
            # A number can contain equal groups of digits, so a group is only a repetition if its times overlap.
            slack_s = 0 if all(_normalize_word(word).isdigit() for word in new_words[:count]) else 1
            if (
                _calculate_common_prefix_length(words[-count:], new_words[:count]) == count
                and new_words[0].start < words[-1].end + slack_s
            ):
                new_words = new_words[count:]
                break
        return _remove_trailing_repeats(new_words)


def ends_sentence(text: str) -> bool:
    """Return True if a text ends like a sentence."""
    return text.endswith(SENTENCE_ENDINGS) and not text.endswith("...")


def join_words(words: Sequence[Word]) -> str:
    return "".join(word.text for word in words).strip()


def shift_words(words: Sequence[Word], by_s: float) -> list[Word]:
    """Return words with shifted times."""
    return [replace(word, start=word.start + by_s, end=word.end + by_s) for word in words]


def _is_repetitive(words: Sequence[Word]) -> bool:
    text = join_words(words).encode()
    return len(text) > MAX_COMPRESSION_RATIO * len(zlib.compress(text))


def _calculate_common_prefix_length(before: Sequence[Word], now: Sequence[Word]) -> int:
    """Return the length of the common prefix of two hypotheses."""
    pairs = zip(before, now, strict=False)
    return next(
        (count for count, (a, b) in enumerate(pairs) if _normalize_word(a) != _normalize_word(b)),
        min(len(before), len(now)),
    )


def _normalize_word(word: Word) -> str:
    return "".join(filter(str.isalnum, word.text.lower()))


def _remove_trailing_repeats(words: Sequence[Word]) -> list[Word]:
    """Return words without repetitions at the end. A repetition that is followed by other words is kept."""
    plain = [_normalize_word(word) for word in words]
    for length in range(1, MAX_REPEATED_WORDS + 1):
        repeats = 1
        while plain and plain[-length * (repeats + 1) : -length * repeats] == plain[-length:]:
            repeats += 1
        is_number = all(map(str.isdigit, plain[-length:]))  # "1111 1111 1111" occurs in card and telephone numbers
        if repeats >= MIN_REPEAT_COUNT and not is_number:
            return list(words[: len(words) - length * (repeats - 1)])
    return list(words)
