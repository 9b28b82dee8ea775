"""Rules that redact card numbers and e-mail addresses in transcripts.

These are rules without a model: they detect digits, digits spelled as English words, and addresses as written or read
aloud ("john dot doe at example dot com"). Other forms are not detected, so redaction is not guaranteed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from voice_runtime.transcripts import EventKind, TimedWord, Transcript

CARD_DIGITS = 12
"""Minimum digits of a card number, for Maestro (ISO/IEC 7812-1: up to 19)."""
BROKEN_OFF_DIGITS = 7
"""Number of digits at the end of a transcript that may start a card number, which continues in the next one."""
DIGITS = frozenset(["zero", "oh", "o", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
TIMES = frozenset({"double", "triple"})
JOINTS = frozenset(["dot", "underscore", "dash", "hyphen", "minus", "plus"])
DOMAIN = re.compile(r"[\w-]+(\.[\w-]+)*\.[a-z]{2,}")
ADDRESS = re.compile(r"[\w.+-]+@" + DOMAIN.pattern)
TOP_LEVELS = re.compile("com|org|net|edu|gov|io|co|ai|de|fr|uk|eu|es|it|nl|at|ch|us|ca|au|in|jp|info|biz|me|app|dev")
"""Top-level domains that end a domain read aloud, so that "at the dot" is not redacted."""


class Redaction(StrEnum):
    """Kind of redacted data."""

    CARD = "card"
    """Numbers of payment cards."""
    EMAIL = "email"


@dataclass(frozen=True)
class Stretch:
    """A range of redacted words.

    Attributes:
        begin: Index of the first word.
        end: Index after the last word.
        label: Replacement; empty if the range is not complete yet.
    """

    begin: int
    end: int
    label: str


def stretches(
    words: Sequence[str], what: frozenset[Redaction], *, is_final: bool, digits_before: int = 0
) -> list[Stretch]:
    """Return the redacted ranges of a transcript in order.

    Args:
        words: Words of the transcript with punctuation.
        is_final: Whether the transcript is complete; otherwise, digits at its end are omitted.
        digits_before: Digits at the end of the session's last final.
    """
    plain = [word.strip().strip(".,;:!?()\"'").lower() for word in words]
    found: list[Stretch] = []
    if Redaction.EMAIL in what:
        found += _addresses(plain)
    if Redaction.CARD in what:
        taken = {place for each in found for place in range(each.begin, each.end)}
        found += (
            each
            for each in _cards(plain, is_final=is_final, digits_before=digits_before)
            if taken.isdisjoint(range(each.begin, each.end))
        )
    return sorted(found, key=lambda each: each.begin)


def without(said: Transcript, what: frozenset[Redaction], digits_before: int = 0) -> Transcript:
    """Return a transcript with redacted ranges, including its words.

    Args:
        digits_before: Digits at the end of the session's last final.
    """
    is_final = said.kind is EventKind.FINAL
    parts = said.text.split()
    found = stretches(parts, what, is_final=is_final, digits_before=digits_before)
    if not found:
        return said
    timed = list(said.words) if len(said.words) == len(parts) else []
    for each in reversed(found):
        parts[each.begin : each.end] = [each.label] if each.label else []
        if timed:
            whole = timed[each.begin : each.end]
            timed[each.begin : each.end] = [_merged(whole, each.label)] if each.label else []
    certain = [each for each in found if each.begin < len(said.committed.split())]
    committed = parts[: _kept(certain, len(said.committed.split()))]
    return said.model_copy(update={"text": " ".join(parts), "words": timed, "committed": " ".join(committed)})


def redacted_words(words: Sequence[TimedWord], what: frozenset[Redaction]) -> list[TimedWord]:
    """Return the words of a complete transcript with redacted ranges."""
    left = list(words)
    for each in reversed(stretches([word.text for word in words], what, is_final=True)):
        left[each.begin : each.end] = [_merged(left[each.begin : each.end], each.label)]
    return left


def _kept(certain: Sequence[Stretch], committed: int) -> int:
    """Return the number of committed words after redaction; a partly committed range is not committed."""
    whole = [each for each in certain if each.end <= committed]
    cut = next((each.begin for each in certain if each.end > committed), committed)
    return cut - sum(each.end - each.begin - bool(each.label) for each in whole)


def _merged(words: Sequence[TimedWord], label: str) -> TimedWord:
    confidence = min(word.confidence for word in words)
    return TimedWord(text=label, start_ms=words[0].start_ms, end_ms=words[-1].end_ms, confidence=confidence)


def digits_at_end(words: Sequence[str], before: int = 0) -> int:
    """Return the number of digits at the end of a final.

    The digits of the previous final are included if it contains nothing else.
    """
    plain = [word.strip().strip(".,;:!?()\"'").lower() for word in words]
    *_, last = [(0, 0, 0), *_runs(plain)]
    begin, end, digits = last
    if end < len(plain) or not digits:
        return 0 if plain else before
    return digits + (before if begin == 0 else 0)


def redacted(text: str, what: frozenset[Redaction], *, is_final: bool = True) -> str:
    words = text.split()
    for each in reversed(stretches(words, what, is_final=is_final)):
        words[each.begin : each.end] = [each.label] if each.label else []
    return " ".join(words)


def _cards(plain: Sequence[str], *, is_final: bool, digits_before: int) -> Iterator[Stretch]:
    for begin, end, digits in _runs(plain):
        is_last = end == len(plain)
        whole = digits + (digits_before if begin == 0 else 0)
        if whole >= CARD_DIGITS or (is_last and is_final and digits >= BROKEN_OFF_DIGITS):
            yield Stretch(begin, end, "[card]")
        elif is_last and not is_final:
            yield Stretch(begin, end, "")


def _runs(plain: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of digits: the first word, the index after the last, and the number of digits."""
    begin = digits = 0
    for place, word in enumerate([*plain, ""]):
        size = _digits(word)
        if size is None:
            if digits:
                yield begin, place, digits
            begin, digits = place + 1, 0
        else:
            digits += size


def _digits(word: str) -> int | None:
    if word in DIGITS:
        return 1
    if word in TIMES:
        return 1
    bare = word.replace("-", "").replace(".", "")
    return len(bare) if bare.isdigit() else None


def _addresses(plain: Sequence[str]) -> Iterator[Stretch]:
    for place, word in enumerate(plain):
        if ADDRESS.search(word):
            yield Stretch(place, place + 1, "[email]")
        elif word == "at" and place and (end := _domain_ends(plain, place + 1)):
            begin = place - 1
            while begin > 1 and plain[begin - 1] in JOINTS:
                begin -= 2
            yield Stretch(begin, end, "[email]")


def _domain_ends(plain: Sequence[str], begin: int) -> int | None:
    """Return the index after a domain that is read aloud or written; ``None`` if there is none."""
    if begin < len(plain) and DOMAIN.fullmatch(plain[begin]) and TOP_LEVELS.fullmatch(plain[begin].rpartition(".")[2]):
        return begin + 1
    end = begin + 1
    while end + 1 < len(plain) and plain[end] in JOINTS:
        end += 2
        if (
            plain[end - 2] == "dot"
            and TOP_LEVELS.fullmatch(plain[end - 1])
            and (end == len(plain) or plain[end] != "dot")
        ):
            return end
    return None
