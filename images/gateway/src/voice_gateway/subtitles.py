"""Transcripts of files in the five formats of OpenAI's API."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from voice_gateway.file_audio import Cut
from voice_runtime.file_pieces import PieceHeard
from voice_runtime.transcripts import TimedWord

SENTENCE_ENDS = (".", "?", "!", "\u3002", "\uff1f", "\uff01")
SPEAKERS = "AB"
"""Speaker by channel, as OpenAI labels unknown speakers."""
MAX_LENGTH_S = 7.0
MAX_CHARACTERS = 84
"""Maximum length of a subtitle: two lines, which can be read in time."""


class Format(StrEnum):
    """Format of a transcript."""

    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    TEXT = "text"
    SRT = "srt"
    VTT = "vtt"
    DIARIZED_JSON = "diarized_json"


MEDIA_TYPES = {
    Format.JSON: "application/json",
    Format.VERBOSE_JSON: "application/json",
    Format.DIARIZED_JSON: "application/json",
    Format.TEXT: "text/plain",
    Format.SRT: "text/plain",
    Format.VTT: "text/vtt",
}


@dataclass(frozen=True)
class SpokenWord:
    """A word with its times in seconds of the file."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Segment:
    """A part of the transcript that is displayed at once."""

    text: str
    start: float
    end: float


@dataclass
class Said:
    """The transcript of a file so far.

    Attributes:
        duration_s: Duration of the file, once all of it is decoded.
        heard_s: Duration of the pieces with speech.
    """

    segments: list[Segment] = field(default_factory=list)
    words: list[SpokenWord] = field(default_factory=list)
    timed: list[TimedWord] = field(default_factory=list)
    language: str | None = None
    duration_s: float = 0.0
    heard_s: float = 0.0

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    def add(self, cut: Cut, heard: PieceHeard) -> list[Segment]:
        self.language = self.language or heard.language
        words = [
            SpokenWord(word.text, *(round(cut.start_s + at_ms / 1000, 3) for at_ms in (word.start_ms, word.end_ms)))
            for word in heard.words
        ]
        whole = [Segment(heard.text, round(cut.start_s, 3), round(cut.end_s, 3))] if heard.text else []
        added = list(_segments(words)) or whole
        self.words += words
        self.heard_s += cut.end_s - cut.start_s
        offset_ms = round(1000 * cut.start_s)
        self.timed += (
            word.model_copy(update={"start_ms": word.start_ms + offset_ms, "end_ms": word.end_ms + offset_ms})
            for word in heard.words
        )
        self.segments += added
        return added

    def usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": math.ceil(self.duration_s)}


def _segments(words: Iterable[SpokenWord]) -> Iterator[Segment]:
    held: list[SpokenWord] = []
    for word in words:
        characters = sum(len(each.word) + 1 for each in held) + len(word.word)
        if held and (word.end - held[0].start > MAX_LENGTH_S or characters > MAX_CHARACTERS):
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
    """Return the output of a format for a piece. White space before a JSON document keeps the connection alive."""
    first = len(said.segments) - len(added) + 1
    if form is Format.TEXT:
        return "".join(f"{segment.text}\n" for segment in added)
    if form is Format.SRT:
        return "".join(f"{number}\n{_span(each, ',')}\n{each.text}\n\n" for number, each in enumerate(added, first))
    if form is Format.VTT:
        return vtt(added)
    return "\n"


def vtt(segments: Iterable[Segment]) -> str:
    """Return WebVTT cues, without the header."""
    return "".join(f"{_span(each, '.')}\n{each.text}\n\n" for each in segments)


def closing(form: Format, said: Said, *, words: bool) -> str:
    """Return the output of a format at the end.

    Args:
        words: Whether verbose JSON contains words.
    """
    if form is Format.JSON:
        return json.dumps({"text": said.text, "usage": said.usage()})
    if form is not Format.VERBOSE_JSON:
        return ""
    # These fields are required, but not available from this engine, so they have neutral values.
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


def diarized(channels: Sequence[Said]) -> str:
    """Return the transcript of a file with one speaker per channel, in chronological order."""
    spoken = sorted(
        ((segment, SPEAKERS[channel]) for channel, said in enumerate(channels) for segment in said.segments),
        key=lambda each: each[0].start,
    )
    seconds = max(said.duration_s for said in channels)
    segments = [
        {"type": "transcript.text.segment", "id": f"seg_{number:03d}", "speaker": speaker, **asdict(segment)}
        for number, (segment, speaker) in enumerate(spoken, 1)
    ]
    return json.dumps(
        {
            "task": "transcribe",
            "duration": round(seconds, 3),
            "text": " ".join(segment.text for segment, _ in spoken),
            "segments": segments,
            "usage": {"type": "duration", "seconds": math.ceil(seconds)},
        }
    )


def _span(segment: Segment, point: str) -> str:
    return f"{_clock(segment.start, point)} --> {_clock(segment.end, point)}"


def _clock(at_s: float, point: str) -> str:
    milliseconds = round(1000 * at_s)
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{point}{milliseconds % 1000:03d}"
