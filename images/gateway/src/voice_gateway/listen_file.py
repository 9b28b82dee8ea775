"""``POST /v1/listen``: transcription of files, for Deepgram's clients.

https://developers.deepgram.com/reference/speech-to-text/listen-pre-recorded. Query parameters other than those of
``DeepgramFileQuery`` are ignored, but an unsupported redaction is refused.
"""

import asyncio
import contextlib
import hashlib
import json
import secrets
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import fmean
from typing import IO, Any

from pydantic import BaseModel, ValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from voice_gateway.audio import MAX_CHANNELS
from voice_gateway.bearer import authenticate_request
from voice_gateway.decoder_process import ChannelNotFoundError
from voice_gateway.file_transcription import (
    CLOSE_CONNECTION_HEADERS,
    PrefetchedStreamingResponse,
    TranscriptionHints,
    Upload,
    admit_upload,
    reserve_decoding_slot,
    transcribe_file,
)
from voice_gateway.gateway import UPLOAD_TIMEOUT_S, Gateway
from voice_gateway.listen import format_words, normalize_text, parse_session_settings
from voice_gateway.numerals import convert_numbers_in_text, convert_numbers_in_words
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest
from voice_gateway.subtitles import FileTranscript, Segment
from voice_gateway.transcriptions import MODEL_ID
from voice_runtime.redaction import Redaction, redact_text, redact_words

MAX_IN_MEMORY_FILE_BYTES = 1 << 20
"""Maximum size of a file that is kept in memory. Larger files are stored on disk."""


class DeepgramFileQuery(BaseModel):
    """The query parameters.

    Attributes:
        multichannel: Whether channels are transcribed separately, for one speaker per channel.
        utterances: Whether the transcript is also split into sentences.
        punctuate: Whether text is capitalized and punctuated.
        numerals: Whether numbers are written in digits.
    """

    multichannel: bool = False
    utterances: bool = False
    punctuate: bool = True
    numerals: bool = False


@dataclass
class DeepgramTranscript:
    """Transcript of a file in Deepgram's format.

    Attributes:
        channels: Transcripts by channel; one if channels are mixed.
        sha256: Hash of the file.
    """

    sha256: str
    query: DeepgramFileQuery
    redact: frozenset[Redaction]
    channels: list[FileTranscript] = field(default_factory=list)

    def to_json(self) -> str:
        request_id = secrets.token_hex(16)
        results: dict[str, Any] = {
            "channels": [{"alternatives": [self._build_alternative(transcript)]} for transcript in self.channels]
        }
        for channel_result, transcript in zip(results["channels"], self.channels, strict=True):
            if transcript.language:
                channel_result["detected_language"] = transcript.language
        if self.query.utterances:
            results["utterances"] = sorted(
                (
                    self._build_utterance(channel, segment, transcript.language)
                    for channel, transcript in enumerate(self.channels)
                    for segment in transcript.segments
                ),
                key=lambda each: float(each["start"]),
            )
        return json.dumps(
            {
                "metadata": {
                    "transaction_key": "deprecated",
                    "request_id": request_id,
                    "sha256": self.sha256,
                    "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "duration": round(max(transcript.duration_s for transcript in self.channels), 3),
                    "channels": len(self.channels),
                    "models": [MODEL_ID],
                    "model_info": {MODEL_ID: {"name": MODEL_ID, "version": "", "arch": MODEL_ID}},
                },
                "results": results,
            }
        )

    def _build_alternative(self, transcript: FileTranscript) -> dict[str, Any]:
        words = redact_words(transcript.timed_words, self.redact)
        if self.query.numerals:
            words = convert_numbers_in_words(words, transcript.language)
        confidence = fmean(word.confidence for word in words) if words else 0.0
        content = format_words(words, punctuate=self.query.punctuate)
        return {
            "transcript": self._format_text(transcript.text, transcript.language),
            "confidence": confidence,
            "words": content,
        }

    def _build_utterance(self, channel: int, segment: Segment, language: str | None) -> dict[str, Any]:
        text = self._format_text(segment.text, language)
        return {
            "start": segment.start,
            "end": segment.end,
            "channel": channel,
            "speaker": channel,
            "transcript": text,
            "id": secrets.token_hex(16),
        }

    def _format_text(self, text: str, language: str | None) -> str:
        text = redact_text(text, self.redact)
        if self.query.numerals:
            text = convert_numbers_in_text(text, language)
        return text if self.query.punctuate else normalize_text(text)


async def transcribe_upload(request: Request) -> Response:
    """Respond with the transcript of a file."""
    upload = Upload(request.receive)
    try:
        async with contextlib.AsyncExitStack() as resources:
            return await _transcribe_upload(Request(request.scope, upload.receive), upload, resources)
    except (HTTPException, RedisError) as error:
        refusal = await upload.discard_body_and_build_error(request, error)
        code = refusal.error if isinstance(refusal, Refusal) else "refused"
        content = {"err_code": code.upper().replace(" ", "_"), "err_msg": refusal.detail, "request_id": ""}
        return JSONResponse(content, refusal.status_code, refusal.headers)


async def _transcribe_upload(request: Request, upload: Upload, resources: contextlib.AsyncExitStack) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await authenticate_request(gateway, request)
    resources.enter_context(gateway.count_connection())
    async with admit_upload(gateway, caller):
        upload.check_declared_size(request)
        query, fields = _parse_query(request)
        file = resources.enter_context(tempfile.SpooledTemporaryFile(MAX_IN_MEMORY_FILE_BYTES))  # noqa: SIM115  the response closes it
        document = DeepgramTranscript(await _store_body(request, file), query, frozenset(fields.redact))
    await resources.enter_async_context(reserve_decoding_slot(gateway))
    resources.push_async_callback(gateway.usage.count_file, caller, document.channels)
    hints = TranscriptionHints(fields.language, fields.prompt or "")
    lines = await resources.enter_async_context(contextlib.aclosing(_generate_document(gateway, hints, file, document)))
    first = await upload.run_until_disconnect(anext(lines))
    return PrefetchedStreamingResponse(first, lines, resources.pop_all(), "application/json")


def _parse_query(request: Request) -> tuple[DeepgramFileQuery, SessionRequest]:
    if "json" in request.headers.get("Content-Type", ""):
        raise Refusal(400, "bad request", "url: send the file itself as the body; nothing is fetched from here")
    try:
        fields = SessionRequest.model_validate(
            {"transport": "websocket", **parse_session_settings(request.query_params)}
        )
        return DeepgramFileQuery.model_validate(dict(request.query_params)), fields
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(400, "bad request", f"{problem['loc'][0]}: {problem['msg']}") from None


async def _store_body(request: Request, file: IO[bytes]) -> str:
    """Store the body in a file, and return the body's SHA-256."""
    digest = hashlib.sha256()
    try:
        async with asyncio.timeout(UPLOAD_TIMEOUT_S):
            async for piece in request.stream():
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
    except TimeoutError:
        raise Refusal(
            408, "file too slow", f"the file did not come within {UPLOAD_TIMEOUT_S:.0f} s", CLOSE_CONNECTION_HEADERS
        ) from None
    return digest.hexdigest()


async def _generate_document(
    gateway: Gateway, hints: TranscriptionHints, file: IO[bytes], document: DeepgramTranscript
) -> AsyncGenerator[str]:
    channels = range(MAX_CHANNELS) if document.query.multichannel else (None,)
    for channel in channels:
        transcript = FileTranscript()
        try:
            async for _ in transcribe_file(gateway, hints, file, transcript, channel):
                yield "\n"  # white space before a JSON document keeps the connection alive
        except ChannelNotFoundError:
            break
        document.channels.append(transcript)
    yield document.to_json()
