"""``POST /v1/listen``: files, for Deepgram's clients.

https://developers.deepgram.com/reference/speech-to-text/listen-pre-recorded. Query parameters other than those of
``Asked`` are ignored, except an unsupported redaction.
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
from voice_gateway.bearer import caller_of
from voice_gateway.decoder_process import NoChannelError
from voice_gateway.file_hearing import CLOSING, Answer, Hints, Upload, admitted, heard, place
from voice_gateway.gateway import UPLOAD_S, Gateway
from voice_gateway.listen import bare, wanted, words_of
from voice_gateway.numerals import text_in_digits, words_in_digits
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest
from voice_gateway.subtitles import Said, Segment
from voice_gateway.transcriptions import MODEL
from voice_runtime.redaction import Redaction, redacted, redacted_words

MEMORY_BYTES = 1 << 20
"""Maximum size of a file that is kept in memory; a larger one is stored on disk."""


class Asked(BaseModel):
    """The query parameters.

    Attributes:
        multichannel: Whether channels are transcribed separately, for one speaker per channel.
        utterances: Whether the transcript is also split by sentences.
        punctuate: Whether text is capitalized and punctuated.
        numerals: Whether numbers are written in digits.
    """

    multichannel: bool = False
    utterances: bool = False
    punctuate: bool = True
    numerals: bool = False


@dataclass
class Transcript:
    """Transcript of a file.

    Attributes:
        channels: Transcripts by channel; one if channels are mixed.
        sha256: Hash of the file.
    """

    sha256: str
    asked: Asked
    redact: frozenset[Redaction]
    channels: list[Said] = field(default_factory=list)

    def answer(self) -> str:
        """Return the JSON document."""
        request_id = secrets.token_hex(16)
        results: dict[str, Any] = {"channels": [{"alternatives": [self._alternative(said)]} for said in self.channels]}
        for described, said in zip(results["channels"], self.channels, strict=True):
            if said.language:
                described["detected_language"] = said.language
        if self.asked.utterances:
            results["utterances"] = sorted(
                (
                    self._utterance(channel, segment, said.language)
                    for channel, said in enumerate(self.channels)
                    for segment in said.segments
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
                    "duration": round(max(said.duration_s for said in self.channels), 3),
                    "channels": len(self.channels),
                    "models": [MODEL],
                    "model_info": {MODEL: {"name": MODEL, "version": "", "arch": MODEL}},
                },
                "results": results,
            }
        )

    def _alternative(self, said: Said) -> dict[str, Any]:
        words = redacted_words(said.timed, self.redact)
        if self.asked.numerals:
            words = words_in_digits(words, said.language)
        confidence = fmean(word.confidence for word in words) if words else 0.0
        told = words_of(words, punctuate=self.asked.punctuate)
        return {"transcript": self._text(said.text, said.language), "confidence": confidence, "words": told}

    def _utterance(self, channel: int, segment: Segment, language: str | None) -> dict[str, Any]:
        text = self._text(segment.text, language)
        return {
            "start": segment.start,
            "end": segment.end,
            "channel": channel,
            "speaker": channel,
            "transcript": text,
            "id": secrets.token_hex(16),
        }

    def _text(self, text: str, language: str | None) -> str:
        text = redacted(text, self.redact)
        if self.asked.numerals:
            text = text_in_digits(text, language)
        return text if self.asked.punctuate else bare(text)


async def listen(request: Request) -> Response:
    """Respond with the transcript of a file."""
    upload = Upload(request.receive)
    try:
        async with contextlib.AsyncExitStack() as held:
            return await _listen(Request(request.scope, upload.receive), upload, held)
    except (HTTPException, RedisError) as error:
        refusal = await upload.refused(request, error)
        code = refusal.error if isinstance(refusal, Refusal) else "refused"
        told = {"err_code": code.upper().replace(" ", "_"), "err_msg": refusal.detail, "request_id": ""}
        return JSONResponse(told, refusal.status_code, refusal.headers)


async def _listen(request: Request, upload: Upload, held: contextlib.AsyncExitStack) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await caller_of(gateway, request)
    held.enter_context(gateway.connection())
    async with admitted(gateway, caller):
        upload.check(request)
        asked, fields = _asked(request)
        file = held.enter_context(tempfile.SpooledTemporaryFile(MEMORY_BYTES))  # noqa: SIM115  the answer closes it
        transcript = Transcript(await _read(request, file), asked, frozenset(fields.redact))
    await held.enter_async_context(place(gateway))
    held.push_async_callback(gateway.usage.file_of, caller, transcript.channels)
    hints = Hints(fields.language, fields.prompt or "")
    lines = await held.enter_async_context(contextlib.aclosing(_document(gateway, hints, file, transcript)))
    first = await upload.run_until_disconnect(anext(lines))
    return Answer(first, lines, held.pop_all(), "application/json")


def _asked(request: Request) -> tuple[Asked, SessionRequest]:
    if "json" in request.headers.get("Content-Type", ""):
        raise Refusal(400, "bad request", "url: send the file itself as the body; nothing is fetched from here")
    try:
        fields = SessionRequest.model_validate({"transport": "websocket", **wanted(request.query_params)})
        return Asked.model_validate(dict(request.query_params)), fields
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(400, "bad request", f"{problem['loc'][0]}: {problem['msg']}") from None


async def _read(request: Request, file: IO[bytes]) -> str:
    """Store the body in a file, and return its SHA-256."""
    seen = hashlib.sha256()
    try:
        async with asyncio.timeout(UPLOAD_S):
            async for piece in request.stream():
                seen.update(piece)
                await asyncio.to_thread(file.write, piece)
    except TimeoutError:
        raise Refusal(408, "file too slow", f"the file did not come within {UPLOAD_S:.0f} s", CLOSING) from None
    return seen.hexdigest()


async def _document(gateway: Gateway, hints: Hints, file: IO[bytes], transcript: Transcript) -> AsyncGenerator[str]:
    channels = range(MAX_CHANNELS) if transcript.asked.multichannel else (None,)
    for channel in channels:
        said = Said()
        try:
            async for _ in heard(gateway, hints, file, said, channel):
                yield "\n"  # white space before a JSON document keeps the connection alive
        except NoChannelError:
            break
        transcript.channels.append(said)
    yield transcript.answer()
