"""Formats transcripts of files as in OpenAI's API."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from voice_gateway.file_audio import SpeechSegment
from voice_runtime.file_pieces import PieceTranscript
from voice_runtime.transcripts import TimedWord

SENTENCE_ENDINGS = (".", "?", "!", "\u3002", "\uff1f", "\uff01")
SPEAKER_LABELS = "AB"
"""Speaker labels by channel, as in OpenAI's API for unknown speakers."""
MAX_SUBTITLE_S = 7.0
MAX_SUBTITLE_CHARACTERS = 84
"""Maximum length of a subtitle: two lines, which can be read in time."""


class TranscriptFormat(StrEnum):
    """Format of a transcript."""

    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    TEXT = "text"
    SRT = "srt"
    VTT = "vtt"
    DIARIZED_JSON = "diarized_json"


MEDIA_TYPES_BY_FORMAT = {
    TranscriptFormat.JSON: "application/json",
    TranscriptFormat.VERBOSE_JSON: "application/json",
    TranscriptFormat.DIARIZED_JSON: "application/json",
    TranscriptFormat.TEXT: "text/plain",
    TranscriptFormat.SRT: "text/plain",
    TranscriptFormat.VTT: "text/vtt",
}


@dataclass(frozen=True)
class SpokenWord:
    """A word with its start and end in the file, in seconds."""

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
class FileTranscript:
    """The transcript of a file so far.

    Attributes:
        duration_s: Duration of the file, once all of it is decoded.
        speech_s: Duration of the pieces with speech.
    """

    segments: list[Segment] = field(default_factory=list)
    words: list[SpokenWord] = field(default_factory=list)
    timed_words: list[TimedWord] = field(default_factory=list)
    language: str | None = None
    duration_s: float = 0.0
    speech_s: float = 0.0

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    def add(self, segment: SpeechSegment, result: PieceTranscript) -> list[Segment]:
        self.language = self.language or result.language
        words = [
            SpokenWord(word.text, *(round(segment.start_s + at_ms / 1000, 3) for at_ms in (word.start_ms, word.end_ms)))
            for word in result.words
        ]
        untimed_segments = (
            [Segment(result.text, round(segment.start_s, 3), round(segment.end_s, 3))] if result.text else []
        )
        added = list(_split_into_segments(words)) or untimed_segments
        self.words += words
        self.speech_s += segment.end_s - segment.start_s
        offset_ms = round(1000 * segment.start_s)
        self.timed_words += (
            word.model_copy(update={"start_ms": word.start_ms + offset_ms, "end_ms": word.end_ms + offset_ms})
            for word in result.words
        )
        self.segments += added
        return added

    def build_usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": math.ceil(self.duration_s)}


def _split_into_segments(words: Iterable[SpokenWord]) -> Iterator[Segment]:
    pending: list[SpokenWord] = []
    for word in words:
        characters = sum(len(each.word) + 1 for each in pending) + len(word.word)
        if pending and (word.end - pending[0].start > MAX_SUBTITLE_S or characters > MAX_SUBTITLE_CHARACTERS):
            yield _build_segment(pending)
            pending = []
        pending.append(word)
        if word.word.endswith(SENTENCE_ENDINGS):
            yield _build_segment(pending)
            pending = []
    if pending:
        yield _build_segment(pending)


def _build_segment(words: list[SpokenWord]) -> Segment:
    return Segment(" ".join(word.word for word in words), words[0].start, words[-1].end)


def format_header(output_format: TranscriptFormat) -> str:
    return "WEBVTT\n\n" if output_format is TranscriptFormat.VTT else ""


def format_segments(output_format: TranscriptFormat, transcript: FileTranscript, new_segments: list[Segment]) -> str:
    """Return the output for new segments in the requested format.

    For JSON, the output is white space before the document, which keeps the connection alive.
    """
    first = len(transcript.segments) - len(new_segments) + 1
    if output_format is TranscriptFormat.TEXT:
        return "".join(f"{segment.text}\n" for segment in new_segments)
    if output_format is TranscriptFormat.SRT:
        return "".join(
            f"{number}\n{_format_time_range(each, ',')}\n{each.text}\n\n"
            for number, each in enumerate(new_segments, first)
        )
    if output_format is TranscriptFormat.VTT:
        return format_vtt(new_segments)
    return "\n"


def format_vtt(segments: Iterable[Segment]) -> str:
    """Return WebVTT cues, without the header."""
    return "".join(f"{_format_time_range(each, '.')}\n{each.text}\n\n" for each in segments)


def format_footer(output_format: TranscriptFormat, transcript: FileTranscript, *, words: bool) -> str:
    """Return the output after the last segment in the requested format.

    Args:
        words: Whether verbose JSON contains words.
    """
    if output_format is TranscriptFormat.JSON:
        return json.dumps({"text": transcript.text, "usage": transcript.build_usage()})
    if output_format is not TranscriptFormat.VERBOSE_JSON:
        return ""
    # These fields are required, but not available from this engine, so they have neutral values.
    neutral_fields = {
        "seek": 0,
        "tokens": [],
        "temperature": 0,
        "avg_logprob": 0,
        "compression_ratio": 1,
        "no_speech_prob": 0,
    }
    return json.dumps(
        {
            "task": "transcribe",
            "language": transcript.language or "",
            "duration": round(transcript.duration_s, 3),
            "text": transcript.text,
            "segments": [
                {"id": number, **asdict(each), **neutral_fields} for number, each in enumerate(transcript.segments)
            ],
            **({"words": [asdict(word) for word in transcript.words]} if words else {}),
            "usage": transcript.build_usage(),
        }
    )


def format_diarized_json(channels: Sequence[FileTranscript]) -> str:
    """Return the transcript of a file with one speaker per channel, in chronological order."""
    spoken_words = sorted(
        (
            (segment, SPEAKER_LABELS[channel])
            for channel, transcript in enumerate(channels)
            for segment in transcript.segments
        ),
        key=lambda each: each[0].start,
    )
    seconds = max(transcript.duration_s for transcript in channels)
    segments = [
        {"type": "transcript.text.segment", "id": f"seg_{number:03d}", "speaker": speaker, **asdict(segment)}
        for number, (segment, speaker) in enumerate(spoken_words, 1)
    ]
    return json.dumps(
        {
            "task": "transcribe",
            "duration": round(seconds, 3),
            "text": " ".join(segment.text for segment, _ in spoken_words),
            "segments": segments,
            "usage": {"type": "duration", "seconds": math.ceil(seconds)},
        }
    )


def _format_time_range(segment: Segment, decimal_separator: str) -> str:
    return (
        f"{_format_timestamp(segment.start, decimal_separator)} --> {_format_timestamp(segment.end, decimal_separator)}"
    )


def _format_timestamp(at_s: float, decimal_separator: str) -> str:
    milliseconds = round(1000 * at_s)
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{decimal_separator}{milliseconds % 1000:03d}"
