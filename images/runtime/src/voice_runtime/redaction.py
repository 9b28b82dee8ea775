"""Rules that redact card numbers and e-mail addresses in transcripts.

The rules do not use a model. They detect digits, digits spelled as English words, and addresses as written or read
aloud ("john dot doe at example dot com"). Other forms are not detected, so redaction is not guaranteed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from voice_runtime.transcripts import EventKind, TimedWord, Transcript

MIN_CARD_DIGITS = 12
"""Minimum number of digits in a card number, as for Maestro. ISO/IEC 7812-1 allows up to 19 digits."""
MIN_PARTIAL_CARD_DIGITS = 7
"""Minimum number of digits at the end of a final transcript that may start a card number. The number continues in the
next final transcript."""
DIGIT_WORDS = frozenset(["zero", "oh", "o", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
REPETITIONS_BY_WORD = {"double": 1, "triple": 2}
"""Words before a digit, and the number of digits that each adds to it."""
SEPARATOR_WORDS = frozenset(["dot", "underscore", "dash", "hyphen", "minus", "plus"])
DOMAIN_PATTERN = re.compile(r"[\w-]+(\.[\w-]+)*\.[a-z]{2,}")
EMAIL_ADDRESS_PATTERN = re.compile(r"[\w.+-]+@" + DOMAIN_PATTERN.pattern)
TOP_LEVEL_DOMAIN_PATTERN = re.compile(
    "com|org|net|edu|gov|io|co|ai|de|fr|uk|eu|es|it|nl|at|ch|us|ca|au|in|jp|info|biz|me|app|dev"
)
"""Top-level domains that end a domain read aloud, so that "at the dot" is not redacted."""


class Redaction(StrEnum):
    """Kind of redacted data."""

    CARD = "card"
    """Payment card numbers."""
    EMAIL = "email"


@dataclass(frozen=True)
class RedactedSpan:
    """A range of redacted words.

    Attributes:
        begin: Index of the first word.
        end: Index after the last word.
        label: Replacement; empty if the range is not complete yet.
    """

    begin: int
    end: int
    label: str


def find_redacted_spans(
    words: Sequence[str], redactions: frozenset[Redaction], *, is_final: bool, digits_before: int = 0
) -> list[RedactedSpan]:
    """Return the ranges in a transcript to redact, in order.

    Args:
        words: Words of the transcript with punctuation.
        is_final: Whether the transcript is complete; otherwise, digits at its end are omitted.
        digits_before: Digits at the end of the session's last final transcript.
    """
    plain = [word.strip().strip(".,;:!?()\"'").lower() for word in words]
    spans: list[RedactedSpan] = []
    if Redaction.EMAIL in redactions:
        spans += _find_email_addresses(plain)
    if Redaction.CARD in redactions:
        redacted_indexes = {index for each in spans for index in range(each.begin, each.end)}
        spans += (
            each
            for each in _find_card_numbers(plain, is_final=is_final, digits_before=digits_before)
            if redacted_indexes.isdisjoint(range(each.begin, each.end))
        )
    return sorted(spans, key=lambda each: each.begin)


def redact_transcript(transcript: Transcript, redactions: frozenset[Redaction], digits_before: int = 0) -> Transcript:
    """Return a transcript in which the text and the words are redacted.

    Args:
        digits_before: Digits at the end of the session's last final transcript.
    """
    is_final = transcript.kind is EventKind.FINAL
    parts = transcript.text.split()
    spans = find_redacted_spans(parts, redactions, is_final=is_final, digits_before=digits_before)
    if not spans:
        return transcript
    timed = list(transcript.words) if len(transcript.words) == len(parts) else []
    for each in reversed(spans):
        parts[each.begin : each.end] = [each.label] if each.label else []
        if timed:
            redacted_words = timed[each.begin : each.end]
            timed[each.begin : each.end] = [_merge_words(redacted_words, each.label)] if each.label else []
    committed_spans = [each for each in spans if each.begin < len(transcript.committed.split())]
    committed = parts[: _count_committed_words(committed_spans, len(transcript.committed.split()))]
    return transcript.model_copy(update={"text": " ".join(parts), "words": timed, "committed": " ".join(committed)})


def redact_words(words: Sequence[TimedWord], redactions: frozenset[Redaction]) -> list[TimedWord]:
    """Return the words of a complete transcript after redaction."""
    result = list(words)
    for each in reversed(find_redacted_spans([word.text for word in words], redactions, is_final=True)):
        result[each.begin : each.end] = [_merge_words(result[each.begin : each.end], each.label)]
    return result


def _count_committed_words(committed_spans: Sequence[RedactedSpan], committed: int) -> int:
    """Return the number of committed words after redaction. A partly committed range does not count as committed."""
    complete_spans = [each for each in committed_spans if each.end <= committed]
    cut = next((each.begin for each in committed_spans if each.end > committed), committed)
    return cut - sum(each.end - each.begin - bool(each.label) for each in complete_spans)


def _merge_words(words: Sequence[TimedWord], label: str) -> TimedWord:
    confidence = min(word.confidence for word in words)
    return TimedWord(text=label, start_ms=words[0].start_ms, end_ms=words[-1].end_ms, confidence=confidence)


def count_trailing_digits(words: Sequence[str], before: int = 0) -> int:
    """Return the number of digits at the end of a final transcript.

    The digits of the previous final transcript are included if this one contains only digits.
    """
    plain = [word.strip().strip(".,;:!?()\"'").lower() for word in words]
    runs = list(_find_digit_runs(plain))
    if not runs or runs[-1][1] < len(plain):
        return 0 if plain else before
    begin, _, digits = runs[-1]
    return digits + (before if begin == 0 else 0)


def redact_text(text: str, redactions: frozenset[Redaction], *, is_final: bool = True) -> str:
    words = text.split()
    for each in reversed(find_redacted_spans(words, redactions, is_final=is_final)):
        words[each.begin : each.end] = [each.label] if each.label else []
    return " ".join(words)


def _find_card_numbers(plain: Sequence[str], *, is_final: bool, digits_before: int) -> Iterator[RedactedSpan]:
    for begin, end, digits in _find_digit_runs(plain):
        is_last = end == len(plain)
        total_digits = digits + (digits_before if begin == 0 else 0)
        if total_digits >= MIN_CARD_DIGITS or (is_last and is_final and digits >= MIN_PARTIAL_CARD_DIGITS):
            yield RedactedSpan(begin, end, "[card]")
        elif is_last and not is_final:
            yield RedactedSpan(begin, end, "")


def _find_digit_runs(plain: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of digits as the first word, the index after the last word, and the number of digits."""
    begin = digits = 0
    for index, word in enumerate([*plain, ""]):
        size = _count_digits(word)
        if size is None:
            if digits:
                yield begin, index, digits
            begin, digits = index + 1, 0
        else:
            digits += size


def _count_digits(word: str) -> int | None:
    if word in DIGIT_WORDS:
        return 1
    if word in REPETITIONS_BY_WORD:
        return REPETITIONS_BY_WORD[word]
    digits = word.replace("-", "").replace(".", "")
    return len(digits) if digits.isdigit() else None


def _find_email_addresses(plain: Sequence[str]) -> Iterator[RedactedSpan]:
    for index, word in enumerate(plain):
        if EMAIL_ADDRESS_PATTERN.search(word):
            yield RedactedSpan(index, index + 1, "[email]")
        elif word == "at" and index and (end := _find_domain_end(plain, index + 1)):
            begin = index - 1
            while begin > 1 and plain[begin - 1] in SEPARATOR_WORDS:
                begin -= 2
            yield RedactedSpan(begin, end, "[email]")


def _find_domain_end(plain: Sequence[str], begin: int) -> int | None:
    """Return the index after a domain that is read aloud or written, or ``None`` if there is none."""
    if (
        begin < len(plain)
        and DOMAIN_PATTERN.fullmatch(plain[begin])
        and TOP_LEVEL_DOMAIN_PATTERN.fullmatch(plain[begin].rpartition(".")[2])
    ):
        return begin + 1
    end = begin + 1
    while end + 1 < len(plain) and plain[end] in SEPARATOR_WORDS:
        end += 2
        if (
            plain[end - 2] == "dot"
            and TOP_LEVEL_DOMAIN_PATTERN.fullmatch(plain[end - 1])
            and (end == len(plain) or plain[end] != "dot")
        ):
            return end
    return None
