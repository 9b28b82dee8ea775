"""What a file says, in the five formats of OpenAI's API."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from voice_gateway.file_audio import Cut
from voice_runtime.file_pieces import PieceHeard

SENTENCE_ENDS = (".", "?", "!", "\u3002", "\uff1f", "\uff01")
LONGEST_S = 7.0
LONGEST_CHARACTERS = 84
"""Of a subtitle: two lines, and as long as one is read."""


class Format(StrEnum):
    """How a transcript is told."""

    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    TEXT = "text"
    SRT = "srt"
    VTT = "vtt"


MEDIA_TYPES = {
    Format.JSON: "application/json",
    Format.VERBOSE_JSON: "application/json",
    Format.TEXT: "text/plain",
    Format.SRT: "text/plain",
    Format.VTT: "text/vtt",
}


@dataclass(frozen=True)
class SpokenWord:
    """A word, in seconds of the file."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Segment:
    """What is read at once."""

    text: str
    start: float
    end: float


@dataclass
class Said:
    """What of a file has been heard so far."""

    segments: list[Segment] = field(default_factory=list)
    words: list[SpokenWord] = field(default_factory=list)
    language: str | None = None
    duration_s: float = 0.0

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    def add(self, cut: Cut, heard: PieceHeard) -> list[Segment]:
        """Take in a piece, and return what is read of it at once."""
        self.language = self.language or heard.language
        words = [
            SpokenWord(word.text, *(round(cut.start_s + at_ms / 1000, 3) for at_ms in (word.start_ms, word.end_ms)))
            for word in heard.words
        ]
        whole = [Segment(heard.text, round(cut.start_s, 3), round(cut.end_s, 3))] if heard.text else []
        added = list(_segments(words)) or whole
        self.words += words
        self.segments += added
        return added

    def usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": math.ceil(self.duration_s)}


def _segments(words: Iterable[SpokenWord]) -> Iterator[Segment]:
    held: list[SpokenWord] = []
    for word in words:
        characters = sum(len(each.word) + 1 for each in held) + len(word.word)
        if held and (word.end - held[0].start > LONGEST_S or characters > LONGEST_CHARACTERS):
            yield _segment(held)
            held = []
        held.append(word)
        if word.word.endswith(SENTENCE_ENDS):
            yield _segment(held)
            held = []
    if held:
        yield _segment(held)


def _segment(words: list[SpokenWord]) -> Segment:
    return Segment(" ".join(word.word for word in words), words[0].start, words[-1].end)


def opening(form: Format) -> str:
    return "WEBVTT\n\n" if form is Format.VTT else ""


def piece(form: Format, said: Said, added: list[Segment]) -> str:
    """Return what a format says of a piece at once. White space before a JSON document says that work goes on."""
    first = len(said.segments) - len(added) + 1
    if form is Format.TEXT:
        return "".join(f"{segment.text}\n" for segment in added)
    if form is Format.SRT:
        return "".join(f"{number}\n{_span(each, ',')}\n{each.text}\n\n" for number, each in enumerate(added, first))
    if form is Format.VTT:
        return "".join(f"{_span(each, '.')}\n{each.text}\n\n" for each in added)
    return "\n"


def closing(form: Format, said: Said, *, words: bool) -> str:
    """Return what a format says at the end.

    Args:
        words: Whether the words of verbose JSON are wanted.
    """
    if form is Format.JSON:
        return json.dumps({"text": said.text, "usage": said.usage()})
    if form is not Format.VERBOSE_JSON:
        return ""
    # What this engine does not tell has the value that says nothing: the fields are required.
    unknown = {"seek": 0, "tokens": [], "temperature": 0, "avg_logprob": 0, "compression_ratio": 1, "no_speech_prob": 0}
    return json.dumps(
        {
            "task": "transcribe",
            "language": said.language or "",
            "duration": round(said.duration_s, 3),
            "text": said.text,
            "segments": [{"id": number, **asdict(each), **unknown} for number, each in enumerate(said.segments)],
            **({"words": [asdict(word) for word in said.words]} if words else {}),
            "usage": said.usage(),
        }
    )


def _span(segment: Segment, point: str) -> str:
    return f"{_clock(segment.start, point)} --> {_clock(segment.end, point)}"


def _clock(at_s: float, point: str) -> str:
    milliseconds = round(1000 * at_s)
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{point}{milliseconds % 1000:03d}"
