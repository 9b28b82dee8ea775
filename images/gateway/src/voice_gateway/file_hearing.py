"""Transcription of files, for all protocols.

A file is split into pieces, which wait in the state store for an ASR host with capacity left by live calls. A response
starts when the first piece is transcribed, so that an error has its own status; if a later piece fails, the response is
aborted.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import IO

from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from voice_blueprint.contract.session_api import MAX_FILE_BYTES
from voice_gateway.file_audio import Cut, Cutter, cuts
from voice_gateway.gateway import FILES_AT_ONCE, UPLOAD_S, Gateway
from voice_gateway.refusals import Refusal, retry_after, store_unavailable
from voice_gateway.session_routes import check_language
from voice_gateway.subtitles import Said, Segment
from voice_runtime import state, tasks
from voice_runtime.file_pieces import FilePieces, Piece, PieceHeard
from voice_runtime.http import client_address

PLACE_WITHIN_S = 60.0
"""Maximum time for which an uploaded file waits until another one is decoded."""
CLOSING = {"Connection": "close"}
AHEAD = 4
"""Maximum number of pieces of a file that wait or are transcribed concurrently, and therefore of hosts that work on
it."""
LOOK_EVERY_S = 0.05
KEEP_EVERY_S = state.FILE_PIECE_KEPT_S / 4
PATIENCE_S = 300.0
"""Maximum time for which a piece waits: a load balancer closes a connection after 350 s without data."""
RETRY_S = 5
UNAUTHORIZED = 401


@dataclass(frozen=True)
class Hints:
    """A caller's hints for a file.

    Attributes:
        language: BCP 47; ``None`` to detect it.
        prompt: Words that are likely to occur.
    """

    language: str | None = None
    prompt: str = ""


@contextlib.asynccontextmanager
async def admitted(gateway: Gateway, caller: str) -> AsyncIterator[None]:
    """Admit a caller's upload, and count it while it is received.

    Raises:
        Refusal: There is no capacity for the file.
    """
    if gateway.files.locked():
        raise _no_place()
    await _check_room(gateway)
    try:
        async with gateway.uploads.admit(caller):
            yield
    except TimeoutError:
        raise Refusal(
            429, "too many uploads", "other files come in from this caller; send fewer at a time", CLOSING
        ) from None


class Upload:
    """Limits the size of a request body."""

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
        if self._bytes > MAX_FILE_BYTES:
            raise too_large()
        return message

    async def run_until_disconnect(self, work: Awaitable[str]) -> str:
        """Return the result of a task, unless the client disconnects first.

        Raises:
            Refusal: The client has disconnected.
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

    def check(self, request: Request) -> None:
        """Raise an error if the declared size of a request is too large.

        Raises:
            Refusal: It is too large.
        """
        length = request.headers.get("Content-Length", "")
        if length.isdigit() and int(length) > MAX_FILE_BYTES:
            raise too_large()

    async def refused(self, request: Request, error: HTTPException | RedisError) -> HTTPException:
        """Return the refusal of a request.

        The remaining body is read first, since a client reads a response only after sending it.
        """
        refusal = store_unavailable() if isinstance(error, RedisError) else error
        if refusal.headers == CLOSING:
            return refusal
        gateway: Gateway = request.app.state.gateway
        address = client_address(request, forwarded=gateway.settings.forwarded)
        known = refusal.status_code != UNAUTHORIZED
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UPLOAD_S) if known else gateway.strangers.admit(address):
                await self.discard()
        return refusal

    async def discard(self) -> None:
        """Read and discard the remaining body."""
        with contextlib.suppress(Refusal):
            while self._more:
                await self.receive()


class Answer(StreamingResponse):
    """A response that has started; its resources are released at its end."""

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


@contextlib.asynccontextmanager
async def place(gateway: Gateway) -> AsyncIterator[None]:
    """Reserve a slot for decoding a file, waiting if all are in use."""
    try:
        async with asyncio.timeout(PLACE_WITHIN_S):
            await gateway.files.acquire()
    except TimeoutError:
        raise _no_place() from None
    try:
        yield
    finally:
        gateway.files.release()


def _no_place() -> Refusal:
    return _no_room(f"this gateway reads {FILES_AT_ONCE} files at a time")


async def _check_room(gateway: Gateway) -> None:
    if not gateway.fleet.free_slots:
        raise _no_room("live calls need every ASR host")
    if await FilePieces(gateway.store).waiting() >= state.FILE_PIECES_WAITING:
        raise _no_room("other files wait already")


def too_large() -> Refusal:
    return Refusal(413, "file too large", f"a file has at most {MAX_FILE_BYTES >> 20} MiB", CLOSING)


def _no_room(why: str) -> Refusal:
    return Refusal(429, "no capacity", f"{why}; try again", retry_after(RETRY_S))


async def heard(
    gateway: Gateway, hints: Hints, file: IO[bytes], said: Said, channel: int | None = None
) -> AsyncGenerator[list[Segment]]:
    """Yield the transcript of each piece in order.

    Args:
        channel: Channel to transcribe, from 0; ``None`` to mix all.

    Raises:
        Refusal: The file cannot be decoded, no host accepts its pieces, or no engine supports its language.
        NoChannelError: The file does not have the channel.
    """
    check_language(gateway, hints.language)
    language, cutter = (hints.language or "").partition("-")[0] or None, Cutter()
    waiting = Waiting(FilePieces(gateway.store))
    file.seek(0)
    async with contextlib.aclosing(cuts(file, cutter, channel)) as found, contextlib.aclosing(waiting):
        async for cut in found:
            await waiting.put(cut, language, hints.prompt)
            if len(waiting) == AHEAD:
                yield said.add(*await waiting.next())
        while len(waiting):
            yield said.add(*await waiting.next())
    said.duration_s = cutter.length_s


class Waiting:
    """The pieces of a file that are not transcribed yet."""

    def __init__(self, pieces: FilePieces) -> None:
        self._pieces = pieces
        self._waiting: deque[tuple[Cut, Piece]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, cut: Cut, language: str | None, prompt: str) -> None:
        made = Piece(secrets.token_hex(12), cut.samples.tobytes(), language, prompt)
        self._waiting.append((cut, made))
        await self._pieces.put(made)

    async def next(self) -> tuple[Cut, PieceHeard]:
        """Return the first one with its transcript.

        Raises:
            Refusal: No host accepts it, or an engine fails.
        """
        cut, first = self._waiting[0]
        since = kept_at = time.monotonic()
        while True:
            with contextlib.suppress(RedisError):
                answer = await self._pieces.heard(first.name)
                if answer:
                    break
                if time.monotonic() - kept_at >= KEEP_EVERY_S:
                    kept_at = time.monotonic()
                    await self._keep()
            if time.monotonic() - since >= PATIENCE_S:
                raise _no_room(f"no ASR host had time for this file within {PATIENCE_S:.0f} s")
            await asyncio.sleep(LOOK_EVERY_S)
        self._waiting.popleft()
        await self._pieces.forget(first.name)
        if answer.failed:
            raise Refusal(500, "not transcribed", "an engine failed on a part of this file")
        return cut, answer

    async def _keep(self) -> None:
        for _, each in self._waiting:
            if not await self._pieces.keep(each.name):
                await self._pieces.put(each)

    async def aclose(self) -> None:
        """Discard the pieces of a client that has disconnected."""
        with contextlib.suppress(RedisError):
            for _, each in self._waiting:
                await self._pieces.forget(each.name)
