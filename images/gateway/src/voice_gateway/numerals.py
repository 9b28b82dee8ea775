"""Converts numbers to digits for clients that request digits: "twenty three" becomes "23"."""

from collections.abc import Sequence
from dataclasses import dataclass

from text_to_num import find_numbers

from voice_runtime.sessions import get_primary_language
from voice_runtime.transcripts import TimedWord, Transcript

SUPPORTED_LANGUAGES = frozenset({"de", "en", "es", "fr", "it", "nl", "pt"})
"""Languages that the library supports and that separate words by spaces."""
MIN_PAUSE_MS = 500
"""Minimum pause between two separate numbers."""
PUNCTUATION = ".,;:!?\"'()"


@dataclass(frozen=True)
class _Token:
    """A word in the library's format."""

    word: TimedWord

    def text(self) -> str:
        return self.word.text.strip(PUNCTUATION)

    def nt_separated(self, previous: "_Token") -> bool:
        ends_phrase = previous.word.text.rstrip(PUNCTUATION) != previous.word.text
        return ends_phrase or self.word.start_ms - previous.word.end_ms >= MIN_PAUSE_MS

    def not_a_number_part(self) -> bool:
        return False


def convert_numbers_in_words(words: Sequence[TimedWord], language: str | None) -> list[TimedWord]:
    """Return words in which each number is a single word in digits. Words in unsupported languages are unchanged."""
    result = list(words)
    if language is None or (primary := get_primary_language(language)) not in SUPPORTED_LANGUAGES:
        return result
    for number in reversed(find_numbers([_Token(word) for word in result], primary)):
        part = result[number.start : number.end]
        prefix = part[0].text[: len(part[0].text) - len(part[0].text.lstrip(PUNCTUATION))]
        suffix = part[-1].text[len(part[-1].text.rstrip(PUNCTUATION)) :]
        result[number.start : number.end] = [
            TimedWord(
                text=f"{prefix}{number.text}{suffix}",
                start_ms=part[0].start_ms,
                end_ms=part[-1].end_ms,
                confidence=min(word.confidence for word in part),
            )
        ]
    return result


def convert_numbers_in_text(text: str, language: str | None) -> str:
    """Convert the numbers in a text to digits."""
    words = [TimedWord(text=word, start_ms=0, end_ms=0, confidence=0) for word in text.split()]
    return " ".join(word.text for word in convert_numbers_in_words(words, language))


def convert_numbers_in_transcript(transcript: Transcript, language: str | None) -> Transcript:
    """Return a copy of a transcript with its numbers in digits.

    Args:
        language: Language of the session, if the engine has detected none.
    """
    language = transcript.language or language
    words = convert_numbers_in_words(transcript.words, language)
    text = " ".join(word.text for word in words) if words else convert_numbers_in_text(transcript.text, language)
    return transcript.model_copy(update={"words": words, "text": text})
