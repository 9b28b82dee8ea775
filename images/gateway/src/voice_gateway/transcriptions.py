"""``POST /v1/audio/transcriptions`` and ``GET /v1/models``: transcription of files, for OpenAI's clients.

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
from voice_gateway.refusals import Refusal, to_openai_error, to_openai_response
from voice_gateway.session_routes import Language
from voice_gateway.subtitles import (
    MEDIA_TYPES_BY_FORMAT,
    FileTranscript,
    TranscriptFormat,
    format_diarized_json,
    format_footer,
    format_header,
    format_segments,
)

MODEL_ID = "whisper"
MODEL_DESCRIPTION = {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "voice-serve"}


class TranscriptionForm(BaseModel):
    """The supported fields in the form. Other fields, such as a temperature, have no effect."""

    language: Language | None = None
    prompt: str = ""
    keywords: list[str] = Field(default=[], alias="keywords[]")
    response_format: TranscriptFormat = TranscriptFormat.JSON
    stream: bool = False
    timestamp_granularities: list[str] = Field(default=["segment"], alias="timestamp_granularities[]")

    @property
    def hints(self) -> TranscriptionHints:
        """The caller's hints for its file."""
        words = ". ".join(filter(None, [self.prompt, ", ".join(self.keywords)]))
        return TranscriptionHints(self.language, words[:MAX_PROMPT_CHARACTERS])


async def list_models(request: Request) -> Response:
    """Respond with the list of models, which contains one model regardless of the engine."""
    return await _build_model_response(request, {"object": "list", "data": [MODEL_DESCRIPTION]})


async def get_model(request: Request) -> Response:
    """Respond with the description of a model."""
    return await _build_model_response(request, MODEL_DESCRIPTION if request.path_params["model"] == MODEL_ID else None)


async def _build_model_response(request: Request, body: dict[str, Any] | None) -> Response:
    try:
        await authenticate_request(request.app.state.gateway, request)
    except Refusal as refusal:
        return to_openai_response(refusal)
    if body is None:
        return to_openai_response(
            Refusal(404, "model not found", f"the model here is {MODEL_ID!r}; a request may name any")
        )
    return JSONResponse(body)


async def transcribe(request: Request) -> Response:
    """Respond with the transcript of a file."""
    upload = Upload(request.receive)
    try:
        async with contextlib.AsyncExitStack() as resources:
            return await _transcribe(Request(request.scope, upload.receive), upload, resources)
    except (HTTPException, RedisError) as error:
        return to_openai_response(await upload.discard_body_and_build_error(request, error))


async def _transcribe(request: Request, upload: Upload, resources: contextlib.AsyncExitStack) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await authenticate_request(gateway, request)
    resources.enter_context(gateway.count_connection())
    async with admit_upload(gateway, caller):
        upload.check_declared_size(request)
        options, file = await _read_form(request, resources)
    await resources.enter_async_context(reserve_decoding_slot(gateway))
    transcripts = [
        FileTranscript()
        for _ in range(MAX_CHANNELS if options.response_format is TranscriptFormat.DIARIZED_JSON else 1)
    ]
    if options.response_format is TranscriptFormat.DIARIZED_JSON:
        output = _generate_diarized_document(gateway, options, file, transcripts)
    else:
        output = (_generate_events if options.stream else _generate_document)(gateway, options, file, transcripts[0])
    resources.push_async_callback(gateway.usage.count_file, caller, transcripts)
    lines = await resources.enter_async_context(contextlib.aclosing(output))
    first = await upload.run_until_disconnect(anext(lines))
    media_type = "text/event-stream" if options.stream else MEDIA_TYPES_BY_FORMAT[options.response_format]
    return PrefetchedStreamingResponse(first, lines, resources.pop_all(), media_type)


async def _read_form(request: Request, resources: contextlib.AsyncExitStack) -> tuple[TranscriptionForm, IO[bytes]]:
    try:
        async with asyncio.timeout(UPLOAD_TIMEOUT_S):
            form = await resources.enter_async_context(request.form(max_files=1, max_fields=32))
    except TimeoutError:
        raise Refusal(
            408, "file too slow", f"the file did not come within {UPLOAD_TIMEOUT_S:.0f} s", CLOSE_CONNECTION_HEADERS
        ) from None
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Refusal(400, "no file", "file: send one, as multipart/form-data")
    fields: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str)}
    lists = {name: form.getlist(name) for name in ("timestamp_granularities[]", "keywords[]") if name in form}
    try:
        options = TranscriptionForm.model_validate(fields | lists)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(400, "bad request", f"{problem['loc'][0]}: {problem['msg']}") from None
    await file.seek(0)
    return options, file.file


async def _generate_document(
    gateway: Gateway, options: TranscriptionForm, file: IO[bytes], transcript: FileTranscript
) -> AsyncGenerator[str]:
    form = options.response_format
    begin = format_header(form)
    async for added in transcribe_file(gateway, options.hints, file, transcript):
        yield begin + format_segments(form, transcript, added)
        begin = ""
    yield begin + format_footer(form, transcript, words="word" in options.timestamp_granularities)


async def _generate_diarized_document(
    gateway: Gateway, options: TranscriptionForm, file: IO[bytes], transcripts: list[FileTranscript]
) -> AsyncGenerator[str]:
    """Yield a document whose speakers are the channels of the file.

    Raises:
        Refusal: The file has one channel.
    """
    try:
        # The last channel is transcribed first, so that a file without it is refused before the response starts.
        for channel in reversed(range(MAX_CHANNELS)):
            async for _ in transcribe_file(gateway, options.hints, file, transcripts[channel], channel):
                yield format_segments(TranscriptFormat.DIARIZED_JSON, transcripts[channel], [])
    except ChannelNotFoundError:
        raise Refusal(
            400, "bad request", "response_format: diarized_json needs a channel for each speaker, and this file has one"
        ) from None
    yield format_diarized_json(transcripts)


async def _generate_events(
    gateway: Gateway, options: TranscriptionForm, file: IO[bytes], transcript: FileTranscript
) -> AsyncGenerator[str]:
    is_first = True
    try:
        async for added in transcribe_file(gateway, options.hints, file, transcript):
            for segment in added:
                yield _format_event(
                    type="transcript.text.delta", delta=segment.text if is_first else f" {segment.text}"
                )
                is_first = False
    except Refusal as refusal:
        if is_first:
            raise
        yield _format_event(error=to_openai_error(refusal))
        return
    yield _format_event(type="transcript.text.done", text=transcript.text)


def _format_event(**fields: Any) -> str:  # noqa: ANN401  JSON
    return f"data: {json.dumps(fields)}\n\n"
