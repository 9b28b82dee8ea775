"""Defines the client protocols of other services."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from voice_blueprint.contract.session_api import LISTEN_PATH, REALTIME_PATH
from voice_ops.call.recording import SAMPLE_RATE_HZ
from voice_ops.call.session import CallError, TranscriptEvent


class Api(StrEnum):
    """Client protocol for a call."""

    SESSIONS = "sessions"
    OPENAI = "openai"
    DEEPGRAM = "deepgram"


@dataclass(frozen=True)
class Dialect:
    """Messages in one client protocol.

    Attributes:
        path: Path with query.
        first_message: Message before the audio.
        encode_audio: Function that encodes samples as a message.
        last_message: Message after the audio.
        parse_transcripts: Function that parses transcripts from a message.
        closes_at_end: Whether the server closes the connection after the last final transcript.
    """

    path: str
    first_message: str | None
    encode_audio: Callable[[bytes], str | bytes]
    last_message: str
    parse_transcripts: Callable[[dict[str, Any]], TranscriptEvent | None]
    closes_at_end: bool


class _OpenAiParser:
    """Parser for OpenAI messages. It stores the start time of each item, because transcripts do not contain it."""

    def __init__(self) -> None:
        self._start_times: dict[str, int] = {}

    def __call__(self, event: dict[str, Any]) -> TranscriptEvent | None:
        kind = str(event["type"])
        if kind == "error":
            raise CallError(event["error"]["message"])
        if kind.endswith("speech_started"):
            self._start_times[event["item_id"]] = event["audio_start_ms"]
        if not kind.endswith("transcription.completed"):
            return None
        start_ms = self._start_times.pop(event["item_id"], 0)
        end_ms = start_ms + round(1000 * event["usage"]["seconds"])
        return TranscriptEvent(kind="final", text=event["transcript"], start_ms=start_ms, end_ms=end_ms)


def _parse_deepgram_message(message: dict[str, Any]) -> TranscriptEvent | None:
    if message["type"] != "Results":
        return None
    start_ms = round(1000 * message["start"])
    return TranscriptEvent(
        kind="final" if message["is_final"] else "partial",
        text=message["channel"]["alternatives"][0]["transcript"],
        start_ms=start_ms,
        end_ms=start_ms + round(1000 * message["duration"]),
    )


def _format_session_update(turns: dict[str, str] | None) -> str:
    audio_settings = {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE_HZ}, "turn_detection": turns}
    return json.dumps(
        {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio_settings}}}
    )


SINGLE_TURN_MESSAGE = _format_session_update(None)
"""First message of OpenAI's protocol for a single transcript of all speech."""
DIALECTS = {
    Api.OPENAI: Dialect(
        f"{REALTIME_PATH}?intent=transcription",
        _format_session_update({"type": "server_vad"}),
        lambda audio: json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()}),
        json.dumps({"type": "input_audio_buffer.commit"}),
        _OpenAiParser(),
        closes_at_end=False,
    ),
    Api.DEEPGRAM: Dialect(
        f"{LISTEN_PATH}?encoding=linear16&sample_rate={SAMPLE_RATE_HZ}&interim_results=true",
        None,
        lambda audio: audio,
        json.dumps({"type": "CloseStream"}),
        _parse_deepgram_message,
        closes_at_end=True,
    ),
}
