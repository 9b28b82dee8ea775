"""``POST /v1/audio/transcriptions`` and ``GET /v1/models``: files, for OpenAI's clients.

https://platform.openai.com/docs/api-reference/audio/createTranscription.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import IO, Any

from pydantic import BaseModel, Field, ValidationError
from redis.exceptions import RedisError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from voice_blueprint.contract.session_api import MAX_PROMPT_CHARACTERS
from voice_gateway.audio import MAX_CHANNELS
from voice_gateway.bearer import caller_of
from voice_gateway.decoder_process import NoChannelError
from voice_gateway.file_hearing import CLOSING, Answer, Hints, Upload, admitted, heard, place
from voice_gateway.gateway import UPLOAD_S, Gateway
from voice_gateway.refusals import Refusal, answer_openai, for_openai
from voice_gateway.session_routes import Language
from voice_gateway.subtitles import MEDIA_TYPES, Format, Said, closing, diarized, opening, piece

MODEL = "whisper"
DESCRIBED = {"id": MODEL, "object": "model", "created": 0, "owned_by": "voice-serve"}


class Asked(BaseModel):
    """The supported fields of the form; others, such as a temperature, have no effect."""

    language: Language | None = None
    prompt: str = ""
    keywords: list[str] = Field(default=[], alias="keywords[]")
    response_format: Format = Format.JSON
    stream: bool = False
    timestamp_granularities: list[str] = Field(default=["segment"], alias="timestamp_granularities[]")

    @property
    def hints(self) -> Hints:
        """The caller's hints for its file."""
        words = ". ".join(filter(None, [self.prompt, ", ".join(self.keywords)]))
        return Hints(self.language, words[:MAX_PROMPT_CHARACTERS])


async def models(request: Request) -> Response:
    """Respond with the only model, regardless of the engine."""
    return await _about_model(request, {"object": "list", "data": [DESCRIBED]})


async def model(request: Request) -> Response:
    """Respond with the description of a model."""
    return await _about_model(request, DESCRIBED if request.path_params["model"] == MODEL else None)


async def _about_model(request: Request, answer: dict[str, Any] | None) -> Response:
    try:
        await caller_of(request.app.state.gateway, request)
    except Refusal as refusal:
        return answer_openai(refusal)
    if answer is None:
        return answer_openai(Refusal(404, "model not found", f"the model here is {MODEL!r}; a request may name any"))
    return JSONResponse(answer)


async def transcribe(request: Request) -> Response:
    """Respond with the transcript of a file."""
    upload = Upload(request.receive)
    try:
        async with contextlib.AsyncExitStack() as held:
            return await _transcribe(Request(request.scope, upload.receive), upload, held)
    except (HTTPException, RedisError) as error:
        return answer_openai(await upload.refused(request, error))


async def _transcribe(request: Request, upload: Upload, held: contextlib.AsyncExitStack) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await caller_of(gateway, request)
    held.enter_context(gateway.connection())
    async with admitted(gateway, caller):
        upload.check(request)
        asked, file = await _read(request, held)
    await held.enter_async_context(place(gateway))
    said = [Said() for _ in range(MAX_CHANNELS if asked.response_format is Format.DIARIZED_JSON else 1)]
    if asked.response_format is Format.DIARIZED_JSON:
        told = _diarized(gateway, asked, file, said)
    else:
        told = (_events if asked.stream else _document)(gateway, asked, file, said[0])
    held.push_async_callback(gateway.usage.file_of, caller, said)
    lines = await held.enter_async_context(contextlib.aclosing(told))
    first = await upload.run_until_disconnect(anext(lines))
    media_type = "text/event-stream" if asked.stream else MEDIA_TYPES[asked.response_format]
    return Answer(first, lines, held.pop_all(), media_type)


async def _read(request: Request, held: contextlib.AsyncExitStack) -> tuple[Asked, IO[bytes]]:
    try:
        async with asyncio.timeout(UPLOAD_S):
            form = await held.enter_async_context(request.form(max_files=1, max_fields=32))
    except TimeoutError:
        raise Refusal(408, "file too slow", f"the file did not come within {UPLOAD_S:.0f} s", CLOSING) from None
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Refusal(400, "no file", "file: send one, as multipart/form-data")
    fields: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str)}
    lists = {name: form.getlist(name) for name in ("timestamp_granularities[]", "keywords[]") if name in form}
    try:
        asked = Asked.model_validate(fields | lists)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(400, "bad request", f"{problem['loc'][0]}: {problem['msg']}") from None
    await file.seek(0)
    return asked, file.file


async def _document(gateway: Gateway, asked: Asked, file: IO[bytes], said: Said) -> AsyncGenerator[str]:
    form = asked.response_format
    begin = opening(form)
    async for added in heard(gateway, asked.hints, file, said):
        yield begin + piece(form, said, added)
        begin = ""
    yield begin + closing(form, said, words="word" in asked.timestamp_granularities)


async def _diarized(gateway: Gateway, asked: Asked, file: IO[bytes], said: list[Said]) -> AsyncGenerator[str]:
    """Yield a document whose speakers are the channels of the file.

    Raises:
        Refusal: The file has one channel.
    """
    try:
        # From the last channel, so that a file without it is refused before the response starts.
        for channel in reversed(range(MAX_CHANNELS)):
            async for _ in heard(gateway, asked.hints, file, said[channel], channel):
                yield piece(Format.DIARIZED_JSON, said[channel], [])
    except NoChannelError:
        raise Refusal(
            400, "bad request", "response_format: diarized_json needs a channel for each speaker, and this file has one"
        ) from None
    yield diarized(said)


async def _events(gateway: Gateway, asked: Asked, file: IO[bytes], said: Said) -> AsyncGenerator[str]:
    is_first = True
    try:
        async for added in heard(gateway, asked.hints, file, said):
            for segment in added:
                yield _event(type="transcript.text.delta", delta=segment.text if is_first else f" {segment.text}")
                is_first = False
    except Refusal as refusal:
        if is_first:
            raise
        yield _event(error=for_openai(refusal))
        return
    yield _event(type="transcript.text.done", text=said.text)


def _event(**fields: Any) -> str:  # noqa: ANN401  JSON
    return f"data: {json.dumps(fields)}\n\n"
