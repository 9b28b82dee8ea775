"""``POST /v1/audio/transcriptions`` and ``GET /v1/models``: files, for OpenAI's clients.

https://platform.openai.com/docs/api-reference/audio/createTranscription. A file is cut into pieces, which wait in the
state store for an ASR host that live calls leave something to do. What answers has begun when the first piece is heard,
so that a refusal has a status of its own; if the rest fails, the answer breaks off.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from typing import Any, BinaryIO

from pydantic import BaseModel, Field, ValidationError
from redis.exceptions import RedisError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from voice_gateway.bearer import caller_of
from voice_gateway.file_audio import Cut, Cutter, cuts
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, answer_openai, for_openai, retry_after, store_away
from voice_gateway.session_routes import Language, check_language
from voice_gateway.subtitles import MEDIA_TYPES, Format, Said, Segment, closing, opening, piece
from voice_runtime import state, tasks
from voice_runtime.file_pieces import FilePieces, Piece, PieceHeard

MODEL = "whisper"
FILE_BYTES = 128 << 20
"""An hour of PCM16 at 16 kHz, and all that is smaller: MP3 and AAC of any hour."""
UPLOAD_S = 600.0
CLOSING = {"Connection": "close"}
FILES_AT_ONCE = 2
"""Of one gateway: each has a decoder process beside the calls."""
AHEAD = 4
"""Pieces of a file that wait or are heard at a time: so many hosts work on it."""
LOOK_EVERY_S = 0.05
KEEP_EVERY_S = state.FILE_PIECE_KEPT_S / 4
PATIENCE_S = 300.0
"""Longest that a piece waits: a load balancer closes what says nothing for 350 s."""
RETRY_S = 5

log = logging.getLogger(__name__)


class Asked(BaseModel):
    """The fields of a form that change something here; a prompt, a temperature and the like do not."""

    language: Language | None = None
    response_format: Format = Format.JSON
    stream: bool = False
    timestamp_granularities: list[str] = Field(default=["segment"], alias="timestamp_granularities[]")


async def models(request: Request) -> Response:
    """Answer with the one model that there is, whatever engine runs behind."""
    try:
        await caller_of(request.app.state.gateway, request)
    except Refusal as refusal:
        return answer_openai(refusal)
    return JSONResponse(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "voice-serve"}]}
    )


async def transcribe(request: Request) -> Response:
    """Answer with what a file says."""
    upload = Upload(request.receive)
    try:
        async with contextlib.AsyncExitStack() as held:
            return await _transcribe(Request(request.scope, upload.receive), upload, held)
    except (HTTPException, RedisError) as error:
        refusal = store_away() if isinstance(error, RedisError) else error
        if refusal.headers != CLOSING:  # who is still sending reads no answer
            await upload.discard()
        return answer_openai(refusal)


async def _transcribe(request: Request, upload: "Upload", held: contextlib.AsyncExitStack) -> Response:
    gateway: Gateway = request.app.state.gateway
    await caller_of(gateway, request)
    held.enter_context(gateway.connection())
    held.enter_context(_place(gateway))
    await _check_room(gateway)
    asked, file = await _read(request, held)
    if asked.language:
        check_language(gateway, asked.language)
    told = _events(gateway, asked, file) if asked.stream else _document(gateway, asked, file)
    lines = await held.enter_async_context(contextlib.aclosing(told))
    first = await upload.unless_gone(anext(lines))
    media_type = "text/event-stream" if asked.stream else MEDIA_TYPES[asked.response_format]
    return _Telling(first, lines, held.pop_all(), media_type)


class Upload:
    """Lets no more in than a file may have."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0
        self._more = True

    async def receive(self) -> Message:
        """Return the next part of the body.

        Raises:
            Refusal: It is too large.
        """
        message = await self._receive()
        self._more = message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > FILE_BYTES:
            raise _too_large()
        return message

    async def unless_gone(self, work: Awaitable[str]) -> str:
        """Return what work returns, unless the client goes first: nobody waits for it then.

        Raises:
            Refusal: It is gone.
        """
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            leaving.cancel()
            await tasks.end([working])
        raise Refusal(400, "gone", "the client has gone")

    async def discard(self) -> None:
        """Read what still comes."""
        with contextlib.suppress(TimeoutError, Refusal):
            async with asyncio.timeout(UPLOAD_S):
                while self._more:
                    await self.receive()


class _Telling(StreamingResponse):
    """An answer that has begun; what it holds is given back however it ends."""

    def __init__(self, first: str, rest: AsyncIterator[str], held: contextlib.AsyncExitStack, media_type: str) -> None:
        super().__init__(self._all(first, rest), media_type=media_type, headers={"Cache-Control": "no-store"})
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)

    async def _all(self, first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
        yield first
        async for each in rest:
            yield each


@contextlib.contextmanager
def _place(gateway: Gateway) -> Iterator[None]:
    if gateway.files >= FILES_AT_ONCE:
        raise _no_room(f"this gateway reads {FILES_AT_ONCE} files at a time")
    gateway.files += 1
    try:
        yield
    finally:
        gateway.files -= 1


async def _check_room(gateway: Gateway) -> None:
    if not gateway.fleet.free_slots:
        raise _no_room("live calls need every ASR host")
    if await FilePieces(gateway.store).waiting() >= state.FILE_PIECES_WAITING:
        raise _no_room("other files wait already")


def _too_large() -> Refusal:
    return Refusal(413, "file too large", f"a file has at most {FILE_BYTES >> 20} MiB", CLOSING)


def _no_room(why: str) -> Refusal:
    return Refusal(429, "no capacity", f"{why}; try again", retry_after(RETRY_S))


async def _read(request: Request, held: contextlib.AsyncExitStack) -> tuple[Asked, BinaryIO]:
    length = request.headers.get("Content-Length", "")
    if length.isdigit() and int(length) > FILE_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(UPLOAD_S):
            form = await held.enter_async_context(request.form(max_files=1, max_fields=32))
    except TimeoutError:
        raise Refusal(408, "file too slow", f"the file did not come within {UPLOAD_S:.0f} s", CLOSING) from None
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Refusal(400, "no file", "file: send one, as multipart/form-data")
    fields: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str)}
    name = "timestamp_granularities[]"
    try:
        asked = Asked.model_validate(fields | ({name: form.getlist(name)} if name in form else {}))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(400, "bad request", f"{problem['loc'][0]}: {problem['msg']}") from None
    await file.seek(0)
    return asked, file.file


async def _document(gateway: Gateway, asked: Asked, file: BinaryIO) -> AsyncGenerator[str]:
    said, form = Said(), asked.response_format
    begin = opening(form)
    async for added in _heard(gateway, asked, file, said):
        yield begin + piece(form, said, added)
        begin = ""
    yield begin + closing(form, said, words="word" in asked.timestamp_granularities)


async def _events(gateway: Gateway, asked: Asked, file: BinaryIO) -> AsyncGenerator[str]:
    said = Said()
    is_first = True
    try:
        async for added in _heard(gateway, asked, file, said):
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


async def _heard(gateway: Gateway, asked: Asked, file: BinaryIO, said: Said) -> AsyncGenerator[list[Segment]]:
    """Yield what each piece adds to what is said, in their order.

    Raises:
        Refusal: The file cannot be read, or no host takes its pieces.
    """
    language, cutter = (asked.language or "").partition("-")[0] or None, Cutter()
    waiting = Waiting(FilePieces(gateway.store))
    async with contextlib.aclosing(cuts(file, cutter)) as found, contextlib.aclosing(waiting):
        async for cut in found:
            await waiting.put(cut, language)
            if len(waiting) == AHEAD:
                yield said.add(*await waiting.next())
        while len(waiting):
            yield said.add(*await waiting.next())
    said.duration_s = cutter.length_s


class Waiting:
    """The pieces of a file that are not heard yet."""

    def __init__(self, pieces: FilePieces) -> None:
        self._pieces = pieces
        self._waiting: deque[tuple[Cut, Piece]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, cut: Cut, language: str | None) -> None:
        made = Piece(secrets.token_hex(12), cut.samples.tobytes(), language)
        self._waiting.append((cut, made))
        await self._pieces.put(made)

    async def next(self) -> tuple[Cut, PieceHeard]:
        """Return the first one with what it says.

        Raises:
            Refusal: No host takes it, or an engine fails on it.
        """
        cut, first = self._waiting[0]
        since = kept_at = time.monotonic()
        while True:
            with contextlib.suppress(RedisError):
                heard = await self._pieces.heard(first.name)
                if heard:
                    break
                if time.monotonic() - kept_at >= KEEP_EVERY_S:
                    kept_at = time.monotonic()
                    await self._keep()
            if time.monotonic() - since >= PATIENCE_S:
                raise _no_room(f"no ASR host had time for this file within {PATIENCE_S:.0f} s")
            await asyncio.sleep(LOOK_EVERY_S)
        self._waiting.popleft()
        await self._pieces.forget(first.name)
        if heard.failed:
            raise Refusal(500, "not transcribed", "an engine failed on a part of this file")
        return cut, heard

    async def _keep(self) -> None:
        for _, each in self._waiting:
            if not await self._pieces.keep(each.name):
                await self._pieces.put(each)

    async def aclose(self) -> None:
        """Let go of those that nobody waits for any more."""
        with contextlib.suppress(RedisError):
            for _, each in self._waiting:
                await self._pieces.forget(each.name)
