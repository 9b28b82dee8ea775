"""Numbers in digits, with the times of the words that they replace."""

import pytest

from voice_gateway.numerals import convert_numbers_in_text, convert_numbers_in_transcript, convert_numbers_in_words
from voice_runtime.transcripts import EventKind, TimedWord, Transcript


def timed(text: str, pause_before: int = -1) -> list[TimedWord]:
    """Return words of 200 ms in sequence, with a pause of a second before one of them."""
    words, at = [], 0
    for number, word in enumerate(text.split()):
        at += 1000 if number == pause_before else 0
        words.append(TimedWord(text=word, start_ms=at, end_ms=at + 200, confidence=0.9 - number / 100))
        at += 200
    return words


@pytest.mark.parametrize(
    ("language", "spoken", "written"),
    [
        ("en", "I have twenty three apples, and one hundred and five pears.", "I have 23 apples, and 105 pears."),
        ("en-GB", "It is (forty two).", "It is (42)."),
        ("en", "No one knows one of them.", "No one knows one of them."),
        ("de", "Es sind zweiundvierzig Leute.", "Es sind 42 Leute."),
        ("fr", "Il y a quatre-vingt-douze personnes.", "Il y a 92 personnes."),
        ("es", "Son treinta y siete euros.", "Son 37 euros."),
        ("ja", "twenty three", "twenty three"),
        (None, "twenty three", "twenty three"),
        ("en", "", ""),
        ("en", "... !", "... !"),
    ],
)
def test_numbers_are_written_in_digits(language: str | None, spoken: str, written: str) -> None:
    assert convert_numbers_in_text(spoken, language) == written
    assert " ".join(word.text for word in convert_numbers_in_words(timed(spoken), language)) == written


def test_a_number_has_the_times_and_lowest_confidence_of_its_words() -> None:
    before, number, behind = convert_numbers_in_words(timed("about three hundred twelve people"), "en")
    assert (before.text, number.text, behind.text) == ("about", "312", "people")
    assert (number.start_ms, number.end_ms) == (200, 800)
    assert number.confidence == pytest.approx(0.87)


def test_a_pause_or_a_comma_separates_numbers() -> None:
    together = convert_numbers_in_words(timed("twenty five"), "en")
    apart = convert_numbers_in_words(timed("twenty five", pause_before=1), "en")
    comma = convert_numbers_in_words(timed("twenty, five"), "en")
    assert [[word.text for word in words] for words in (together, apart, comma)] == [
        ["25"], ["20", "5"], ["20,", "5"]
    ]  # fmt: skip


@pytest.mark.parametrize(("pause_ms", "written"), [(499, ["25"]), (500, ["20", "5"])])
def test_numbers_are_separate_after_a_pause_of_half_a_second(pause_ms: int, written: list[str]) -> None:
    times = ((0, 200), (200 + pause_ms, 400 + pause_ms))
    spoken = [
        TimedWord(text=text, start_ms=start, end_ms=end, confidence=1)
        for text, (start, end) in zip(("twenty", "five"), times, strict=True)
    ]
    assert [word.text for word in convert_numbers_in_words(spoken, "en")] == written


@pytest.mark.parametrize("spoken", ['("(twenty three)!".', "'twenty three'.)", "(((((((((((((twenty three"])
def test_punctuation_around_a_number_is_kept(spoken: str) -> None:
    assert convert_numbers_in_text(spoken, "en") == spoken.replace("twenty three", "23")


def test_words_of_a_transcript_still_match_its_text() -> None:
    said = Transcript(
        kind=EventKind.FINAL, utterance=1, text="twenty three apples", start_ms=0, end_ms=600,
        words=timed("twenty three apples"),
    )  # fmt: skip
    found = convert_numbers_in_transcript(said, "en")
    assert found.text == "23 apples" == " ".join(word.text for word in found.words)
    assert convert_numbers_in_transcript(said.model_copy(update={"words": []}), "en-US").text == "23 apples"
    assert convert_numbers_in_transcript(said.model_copy(update={"language": "ja"}), "en").text == said.text
