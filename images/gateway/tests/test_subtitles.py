"""Formats of a file's transcript, and the ends of subtitles."""

import json

import numpy as np
import pytest

from voice_gateway.file_audio import SpeechSegment
from voice_gateway.subtitles import (
    FileTranscript,
    Segment,
    TranscriptFormat,
    format_diarized_json,
    format_footer,
    format_header,
    format_segments,
)
from voice_runtime.file_pieces import PieceTranscript
from voice_runtime.transcripts import TimedWord

RATE = 16_000


def cut(start_s: float, seconds: float) -> SpeechSegment:
    return SpeechSegment(start_s, np.zeros(int(seconds * RATE), np.int16))


def heard(*words: tuple[str, int, int], language: str | None = None) -> PieceTranscript:
    timed = [TimedWord(text=text, start_ms=start, end_ms=end, confidence=0.9) for text, start, end in words]
    return PieceTranscript(text=" ".join(text for text, _, _ in words), words=timed, language=language)


def count_file(form: TranscriptFormat, *, words: bool = False) -> str:
    """Return a client's response for a file of two pieces, the second of which has no words."""
    said = FileTranscript()
    text = format_header(form)
    first = heard(("Hello", 0, 400), ("there.", 450, 900), ("Yes", 1000, 1299), language="en")
    for each, what in ((cut(1.25, 2), first), (cut(3661.5, 2.0004), PieceTranscript(text="Bye", language="fr"))):
        added = said.add(each, what)
        text += format_segments(form, said, added)
    said.duration_s = 3663.50049
    return text + format_footer(form, said, words=words)


def test_text_has_a_line_for_each_segment() -> None:
    assert count_file(TranscriptFormat.TEXT) == "Hello there.\nYes\nBye\n"


def test_subrip_numbering_continues_across_segments() -> None:
    assert count_file(TranscriptFormat.SRT) == (
        "1\n00:00:01,250 --> 00:00:02,150\nHello there.\n\n"
        "2\n00:00:02,250 --> 00:00:02,549\nYes\n\n"
        "3\n01:01:01,500 --> 01:01:03,500\nBye\n\n"
    )


def test_webvtt_begins_with_its_header() -> None:
    assert count_file(TranscriptFormat.VTT).startswith(
        "WEBVTT\n\n00:00:01.250 --> 00:00:02.150\nHello there.\n\n00:00:02.250"
    )


@pytest.mark.parametrize(
    ("at_s", "timestamp"),
    [(0.0, "00:00:00,000"), (0.0006, "00:00:00,001"), (59.9994, "00:00:59,999"), (60.0, "00:01:00,000"),
     (3599.999, "00:59:59,999"), (3600.0, "01:00:00,000"), (36_000.5, "10:00:00,500")],
)  # fmt: skip
def test_timestamps_have_hours_minutes_seconds_and_milliseconds(at_s: float, timestamp: str) -> None:
    shown = Segment("a", at_s, at_s)
    transcript = FileTranscript(segments=[shown])
    text = format_segments(TranscriptFormat.SRT, transcript, [shown])
    assert text == f"1\n{timestamp} --> {timestamp}\na\n\n"


def test_json_contains_the_text_and_whole_seconds() -> None:
    text = count_file(TranscriptFormat.JSON)
    assert text.startswith("\n\n"), "white space shows that work goes on"
    assert json.loads(text) == {
        "text": "Hello there. Yes Bye",
        "usage": {"type": "duration", "seconds": 3664},
    }


@pytest.mark.parametrize("words", [True, False])
def test_verbose_json_contains_requested_segments_and_words(words: bool) -> None:
    told = json.loads(count_file(TranscriptFormat.VERBOSE_JSON, words=words))
    unknown = {"seek": 0, "tokens": [], "temperature": 0, "avg_logprob": 0, "compression_ratio": 1, "no_speech_prob": 0}
    assert told.pop("words", None) == (
        [
            {"word": "Hello", "start": 1.25, "end": 1.65},
            {"word": "there.", "start": 1.7, "end": 2.15},
            {"word": "Yes", "start": 2.25, "end": 2.549},
        ]
        if words
        else None
    )
    assert told == {
        "task": "transcribe",
        "language": "en",
        "duration": 3663.5,
        "text": "Hello there. Yes Bye",
        "segments": [
            {"id": 0, "text": "Hello there.", "start": 1.25, "end": 2.15, **unknown},
            {"id": 1, "text": "Yes", "start": 2.25, "end": 2.549, **unknown},
            {"id": 2, "text": "Bye", "start": 3661.5, "end": 3663.5, **unknown},
        ],
        "usage": {"type": "duration", "seconds": 3664},
    }


def test_durations_are_rounded_to_milliseconds() -> None:
    said = FileTranscript(duration_s=1.23456)
    assert json.loads(format_footer(TranscriptFormat.VERBOSE_JSON, said, words=False))["duration"] == 1.235
    assert json.loads(format_diarized_json([said]))["duration"] == 1.235


def test_times_of_a_piece_count_from_the_start_of_the_file_in_milliseconds() -> None:
    said = FileTranscript()
    said.add(cut(10.0006, 2), heard(("Hello", 100, 400)))
    assert [(word.start, word.end) for word in said.words] == [(10.101, 10.401)]
    assert [(word.start_ms, word.end_ms) for word in said.timed_words] == [(10_101, 10_401)]
    said.add(cut(20.0006, 1), PieceTranscript(text="Bye"))
    assert said.segments[1:] == [Segment("Bye", 20.001, 21.001)]
    assert said.speech_s == pytest.approx(3)


def test_an_empty_transcript_has_no_duration() -> None:
    said = FileTranscript()
    assert (said.text, said.duration_s, said.speech_s) == ("", 0, 0)
    assert said.build_usage() == {"type": "duration", "seconds": 0}


def test_speakers_take_turns_in_the_order_of_their_speech() -> None:
    """The speakers are the channels, whose labels are those of OpenAI's API for unknown speakers."""
    first = FileTranscript(segments=[Segment("One.", 0.5, 1.0), Segment("Three.", 3.0, 3.5)], duration_s=4.0)
    second = FileTranscript(segments=[Segment("Two.", 1.5, 2.0)], duration_s=4.2)
    assert json.loads(format_diarized_json([first, second])) == {
        "task": "transcribe",
        "duration": 4.2,
        "text": "One. Two. Three.",
        "segments": [
            {"type": "transcript.text.segment", "id": f"seg_00{number}", "speaker": speaker, "text": text,
             "start": start, "end": end}
            for number, speaker, text, start, end in (
                (1, "A", "One.", 0.5, 1.0), (2, "B", "Two.", 1.5, 2.0), (3, "A", "Three.", 3.0, 3.5)
            )
        ],
        "usage": {"type": "duration", "seconds": 5},
    }  # fmt: skip


@pytest.mark.parametrize("output_format", TranscriptFormat)
def test_formats_begin_and_end_in_their_own_way(output_format: TranscriptFormat) -> None:
    """Of a transcript without segments, only a JSON document and WebVTT's header remain."""
    header = "WEBVTT\n\n" if output_format is TranscriptFormat.VTT else ""
    assert format_header(output_format) == header
    footer = format_footer(output_format, FileTranscript(), words=False)
    assert bool(footer) == (output_format in {TranscriptFormat.JSON, TranscriptFormat.VERBOSE_JSON})


def test_silent_segment_adds_no_subtitle() -> None:
    said = FileTranscript()
    assert said.add(cut(0, 1), PieceTranscript()) == []
    assert json.loads(format_footer(TranscriptFormat.VERBOSE_JSON, said, words=False))["language"] == ""


def segments(*words: tuple[str, int, int]) -> list[str]:
    return [each.text for each in FileTranscript().add(cut(0, 60), heard(*words))]


def test_a_subtitle_is_shown_for_at_most_seven_seconds() -> None:
    assert segments(("a", 1000, 1500), ("b", 4000, 4500), ("c", 7500, 8000)) == ["a b c"]
    assert segments(("a", 1000, 1500), ("b", 4000, 4500), ("c", 7500, 8001)) == ["a b", "c"]


def test_a_subtitle_has_two_lines_of_42_characters_at_most() -> None:
    """The common limit of a line for subtitles is 42 characters."""
    for length, count in ((42, 1), (43, 2)):
        assert len(segments(("a" * 20, 0, 50), ("a" * 20, 50, 100), ("b" * length, 200, 300))) == count
    assert segments((("c" * 100), 0, 100)) == ["c" * 100], "a longer word is one of its own"


@pytest.mark.parametrize("end", [".", "?", "!", "\u3002", "\uff1f", "\uff01"])
def test_a_sentence_ends_a_subtitle(end: str) -> None:
    assert segments((f"a{end}", 0, 100), ("b", 200, 300)) == [f"a{end}", "b"]
