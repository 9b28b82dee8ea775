"""Card numbers and e-mail addresses are redacted in every spoken form; other numbers stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.redaction import (
    Redaction,
    count_trailing_digits,
    find_redacted_spans,
    redact_text,
    redact_transcript,
    redact_words,
)
from voice_runtime.transcripts import EventKind, TimedWord, Transcript

ALL = frozenset(Redaction)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("My card is 4111 1111 1111 1111, thanks.", "My card is [card] thanks."),
        ("It is 4111-1111-1111-1111", "It is [card]"),
        ("3782 822463 10005 is the number", "[card] is the number"),
        (
            "four one one one one one one one one one one one one one one one and the code",
            "[card] and the code",
        ),
        ("five five double five 5555 5555 4444 yes", "[card] yes"),
        ("Write to john.doe@example.com, please.", "Write to [email] please."),
        ("It's John dot Doe at example dot com.", "It's [email]"),
        ("jane underscore smith at mail dot example dot co dot uk is mine", "[email] is mine"),
        ("send it to jane at example.org today", "send it to [email] today"),
        ("At three o'clock on May 5, 2026, at room 12", "At three o'clock on May 5, 2026, at room 12"),
        ("Meet me at the office at noon", "Meet me at the office at noon"),
        ("Somebody looks at us", "Somebody looks at us"),
        ("Somebody shouted at", "Somebody shouted at"),
        ("The engine idles at eight.nine today", "The engine idles at eight.nine today"),
        ("Call 555 123 4567 tomorrow", "Call 555 123 4567 tomorrow"),
        ("My number is 12345 678901 today", "My number is 12345 678901 today"),
        ("My number is 12345 6789012 today", "My number is [card] today"),
        ("It is 123456", "It is 123456"),
        ("It is 1234567", "It is [card]"),
        ("It is 1234567 today", "It is 1234567 today"),
        ("John dot Doe at example.org", "[email]"),
        ("Dot, Doe at example.org", "Dot, [email]"),
        ("at example.org", "at example.org"),
        ("jane at example.org dot", "[email] dot"),
        ("We met at the dot", "We met at the dot"),
        ("12345 678901 is mine", "12345 678901 is mine"),
        ("12345 6789012 is mine", "[card] is mine"),
        ("triple one 2345 6789 yes", "triple one 2345 6789 yes"),
        ("triple one 2345 67890 yes", "[card] yes"),
        ("double one 2345 67890 yes", "double one 2345 67890 yes"),
        ("double one 2345 678901 yes", "[card] yes"),
        ("triple four triple five triple six triple one triple two three yes", "[card] yes"),
        ("Her mail is at example.org and so on", "Her mail [email] and so on"),
        ("a dot b dot c at example dot org", "[email]"),
        ("dot b at example dot org", "dot [email]"),
        ("we meet at example dot street dot org", "we [email]"),
        ("we meet at example dash org", "we meet at example dash org"),
        ("we meet at example dot", "we meet at example dot"),
        ("we are at home", "we are at home"),
        ("Ask jane at example dot co dot uk dot", "Ask jane at example dot co dot uk dot"),
    ],
)
def test_redacted_text(said: str, told: str) -> None:
    assert redact_text(said, ALL) == told


def test_digits_of_an_address_are_no_card_number() -> None:
    assert redact_text("write to 4111111111111111 at example.org", ALL) == "write to [email]"
    assert redact_text("4111111111111111 and 5555 at example.org", ALL) == "[card] and [email]"


def test_each_redaction_is_optional() -> None:
    said = "4111 1111 1111 1111 and a@b.com"
    assert redact_text(said, frozenset({Redaction.CARD})) == "[card] and a@b.com"
    assert redact_text(said, frozenset({Redaction.EMAIL})) == "4111 1111 1111 1111 and [email]"
    assert redact_text(said, frozenset()) == said


def test_digits_are_held_back_until_they_are_classified() -> None:
    assert redact_text("the number is 4111 11", ALL, is_final=False) == "the number is"
    assert redact_text("the number is 42 and", ALL, is_final=False) == "the number is 42 and"


def test_a_number_across_two_finals_is_redacted_in_both() -> None:
    first, second = ["my", "card", "is", "4111", "1111"], ["1111", "1111", "is", "it"]
    assert find_redacted_spans(first, ALL, is_final=True)[0].label == "[card]"
    before = count_trailing_digits(first)
    assert before == 8
    assert find_redacted_spans(second, ALL, is_final=True, digits_before=before)[0].end == 2
    assert count_trailing_digits(["1111"], before) == 12
    assert count_trailing_digits(second, before) == 0
    assert count_trailing_digits(["is", "1111"], before) == 4
    assert count_trailing_digits(["1111", "is", "11"], before) == 2
    assert count_trailing_digits([], before) == before, "an utterance without words"
    assert count_trailing_digits(["yes"], before) == 0
    assert (count_trailing_digits(["1111"]), count_trailing_digits([])) == (4, 0)


@pytest.mark.parametrize(("before", "label"), [(4, None), (5, "[card]")])
def test_digits_before_a_transcript_count_with_those_at_its_begin(before: int, label: str | None) -> None:
    words = ["123", "4567", "yes", "123", "4567", "no"]
    spans = find_redacted_spans(words, ALL, is_final=True, digits_before=before)
    assert [(each.begin, each.end, each.label) for each in spans] == ([(0, 2, label)] if label else [])
    said = Transcript(kind=EventKind.FINAL, utterance=1, text=" ".join(words), start_ms=0, end_ms=1000)
    assert redact_transcript(said, ALL, before).text.startswith(label or "123 4567 yes")
    assert redact_transcript(said, ALL) == said


@pytest.mark.parametrize(("size", "told"), [(11, "1" * 11), (12, "[card]")])
def test_a_transcript_has_no_digits_before_it_unless_they_are_given(size: int, told: str) -> None:
    said = Transcript(kind=EventKind.FINAL, utterance=1, text="1" * size + " yes", start_ms=0, end_ms=1000)
    assert redact_transcript(said, ALL).text == f"{told} yes"


@pytest.mark.parametrize(("digits", "told"), [("123456", "123456"), ("1234567", "[card]")])
def test_words_of_a_complete_transcript_are_redacted_with_their_times(digits: str, told: str) -> None:
    said = [("write", 0.9), ("to", 0.8), ("jane", 0.7), ("at", 0.3), ("example.org", 0.6), ("or", 0.9), (digits, 0.5)]
    words = [
        TimedWord(text=text, start_ms=100 * place, end_ms=100 * place + 80, confidence=confidence)
        for place, (text, confidence) in enumerate(said)
    ]
    email = TimedWord(text="[email]", start_ms=200, end_ms=480, confidence=0.3)
    last = TimedWord(text=told, start_ms=600, end_ms=680, confidence=0.5)
    assert redact_words(words, ALL) == [*words[:2], email, words[5], last]
    assert redact_words(words, frozenset()) == words


@given(st.text("0123456789", min_size=12, max_size=19), st.data())
def test_card_numbers_are_redacted_in_any_grouping(number: str, data: st.DataObject) -> None:
    words, rest = ["please", "take"], number
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        words.append(rest[:size] + data.draw(st.sampled_from(["", ",", "."])))
        rest = rest[size:]
    told = redact_text(" ".join([*words, "now"]), ALL)
    assert told == "please take [card] now"


@pytest.mark.parametrize(
    ("kind", "text", "committed", "told", "told_committed"),
    [
        (EventKind.FINAL, "Write to a@b.com today", "", "Write to [email] today", ""),
        (EventKind.FINAL, "It is 4111", "", "It is 4111", ""),
        (EventKind.PARTIAL, "It is 4111", "It is", "It is", "It is"),
        (EventKind.PARTIAL, "Write to a@b.com today", "Write to a@b.com", "Write to [email] today", "Write to [email]"),
        (EventKind.PARTIAL, "It is 4111 1111 1111 1111 yes", "It is 4111", "It is [card] yes", "It is"),
        (EventKind.PARTIAL, "It is 4111", "It is 4111", "It is", "It is"),
        (
            EventKind.PARTIAL,
            "4111 1111 1111 1111 and yes we",
            "4111 1111 1111 1111 and yes",
            "[card] and yes we",
            "[card] and yes",
        ),
        (EventKind.PARTIAL, "a@b.com and c at b.com", "a@b.com and c at", "[email] and [email]", "[email] and"),
        (EventKind.PARTIAL, "4111 1111 1111 1111 and yes", "4111 1111 1111 1111", "[card] and yes", "[card]"),
        (EventKind.PARTIAL, "a@b.com and c at b.com", "a@b.com and", "[email] and [email]", "[email] and"),
    ],
)
def test_text_and_words_of_a_transcript_are_redacted(
    kind: EventKind, text: str, committed: str, told: str, told_committed: str
) -> None:
    words = [
        TimedWord(text=each, start_ms=100 * place, end_ms=100 * place + 80, confidence=0.5)
        for place, each in enumerate(text.split())
    ]
    said = Transcript(kind=kind, utterance=1, text=text, committed=committed, words=words, start_ms=0, end_ms=1000)
    found = redact_transcript(said, ALL)
    assert (found.text, found.committed) == (told, told_committed)
    assert [word.text for word in found.words] == told.split()
    assert all(word in found.words for word in words if word.text in told.split())
