"""Transcribes files, for all protocols.

A file is split into pieces, which wait in the state store for an ASR host with capacity that live calls do not use. A
response starts when the first piece is transcribed, so that an error before then has its own status. If a later piece
fails, the response is aborted.
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
from voice_gateway.file_audio import AudioSplitter, SpeechSegment, split_file
from voice_gateway.gateway import MAX_CONCURRENT_FILES, UPLOAD_TIMEOUT_S, Gateway
from voice_gateway.refusals import Refusal, build_retry_after_header, build_store_unavailable_refusal
from voice_gateway.session_routes import check_language
from voice_gateway.subtitles import FileTranscript, Segment
from voice_runtime import state, tasks
from voice_runtime.file_pieces import FilePiece, FilePieceQueue, PieceTranscript
from voice_runtime.http import get_client_address

SLOT_TIMEOUT_S = 60.0
"""Maximum time for which an uploaded file waits for a decoding slot."""
CLOSE_CONNECTION_HEADERS = {"Connection": "close"}
MAX_PENDING_PIECES = 4
"""Maximum number of pieces of a file that wait or are transcribed concurrently. This also limits the number of hosts
that work on the file."""
POLL_INTERVAL_S = 0.05
REFRESH_INTERVAL_S = state.FILE_PIECE_RETENTION_S / 4
PIECE_TIMEOUT_S = 300.0
"""Maximum time for which a piece waits, since a load balancer closes a connection after 350 s without data."""
RETRY_AFTER_S = 5
UNAUTHORIZED_STATUS_CODE = 401


@dataclass(frozen=True)
class TranscriptionHints:
    """A caller's hints for a file.

    Attributes:
        language: BCP 47; ``None`` to detect it.
        prompt: Words that are likely to occur.
    """

    language: str | None = None
    prompt: str = ""


@contextlib.asynccontextmanager
async def admit_upload(gateway: Gateway, caller: str) -> AsyncIterator[None]:
    """Admit a caller's upload, and count the upload until it is complete.

    Raises:
        Refusal: There is no capacity for the file.
    """
    if gateway.file_slots.locked():
        raise _build_decoding_slot_refusal()
    await _check_capacity(gateway)
    try:
        async with gateway.uploads.admit(caller):
            yield
    except TimeoutError:
        raise Refusal(
            429,
            "too many uploads",
            "other files come in from this caller; send fewer at a time",
            CLOSE_CONNECTION_HEADERS,
        ) from None


class Upload:
    """A request body of limited size."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0
        self._is_incomplete = True

    async def receive(self) -> Message:
        """Return the next part of the body.

        Raises:
            Refusal: The body is too large.
        """
        message = await self._receive()
        self._is_incomplete = message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > MAX_FILE_BYTES:
            raise build_too_large_refusal()
        return message

    async def run_until_disconnect(self, work: Awaitable[str]) -> str:
        """Return the result of a task, unless the client disconnects first.

        Raises:
            Refusal: The client has disconnected.
        """
        result_task, disconnect_task = asyncio.ensure_future(work), asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait({result_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
            if result_task.done():
                return result_task.result()
        finally:
            disconnect_task.cancel()
            await tasks.cancel_tasks([result_task])
        raise Refusal(400, "gone", "the client has gone")

    def check_declared_size(self, request: Request) -> None:
        """Raise an error if the declared size of a request is too large.

        Raises:
            Refusal: The declared size is too large.
        """
        length = request.headers.get("Content-Length", "")
        if length.isdigit() and int(length) > MAX_FILE_BYTES:
            raise build_too_large_refusal()

    async def discard_body_and_build_error(self, request: Request, error: HTTPException | RedisError) -> HTTPException:
        """Read the remaining body of a request, and return the refusal.

        A client reads the response only after it has sent the whole body.
        """
        refusal = build_store_unavailable_refusal() if isinstance(error, RedisError) else error
        if refusal.headers == CLOSE_CONNECTION_HEADERS:
            return refusal
        gateway: Gateway = request.app.state.gateway
        address = get_client_address(request, forwarded=gateway.settings.forwarded)
        is_authenticated = refusal.status_code != UNAUTHORIZED_STATUS_CODE
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(UPLOAD_TIMEOUT_S)
                if is_authenticated
                else gateway.unauthenticated_uploads.admit(address)
            ):
                await self.discard()
        return refusal

    async def discard(self) -> None:
        """Read and discard the remaining body."""
        with contextlib.suppress(Refusal):
            while self._is_incomplete:
                await self.receive()


class PrefetchedStreamingResponse(StreamingResponse):
    """A streaming response whose first part is already available. It releases its resources when it ends."""

    def __init__(
        self,
        first_part: str,
        remaining_parts: AsyncIterator[str],
        resources: contextlib.AsyncExitStack,
        media_type: str,
    ) -> None:
        super().__init__(
            self._iter_body(first_part, remaining_parts), media_type=media_type, headers={"Cache-Control": "no-store"}
        )
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            await super().__call__(scope, receive, send)

    async def _iter_body(self, first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
        yield first
        async for each in rest:
            yield each


@contextlib.asynccontextmanager
async def reserve_decoding_slot(gateway: Gateway) -> AsyncIterator[None]:
    """Reserve a slot for decoding a file. Wait if all slots are in use."""
    try:
        async with asyncio.timeout(SLOT_TIMEOUT_S):
            await gateway.file_slots.acquire()
    except TimeoutError:
        raise _build_decoding_slot_refusal() from None
    try:
        yield
    finally:
        gateway.file_slots.release()


def _build_decoding_slot_refusal() -> Refusal:
    return _build_capacity_refusal(f"this gateway reads {MAX_CONCURRENT_FILES} files at a time")


async def _check_capacity(gateway: Gateway) -> None:
    if not gateway.fleet.free_slot_count:
        raise _build_capacity_refusal("live calls need every ASR host")
    if await FilePieceQueue(gateway.store).count_queued() >= state.MAX_FILE_PIECES:
        raise _build_capacity_refusal("other files wait already")


def build_too_large_refusal() -> Refusal:
    return Refusal(413, "file too large", f"a file has at most {MAX_FILE_BYTES >> 20} MiB", CLOSE_CONNECTION_HEADERS)


def _build_capacity_refusal(reason: str) -> Refusal:
    return Refusal(429, "no capacity", f"{reason}; try again", build_retry_after_header(RETRY_AFTER_S))


async def transcribe_file(
    gateway: Gateway, hints: TranscriptionHints, file: IO[bytes], transcript: FileTranscript, channel: int | None = None
) -> AsyncGenerator[list[Segment]]:
    """Transcribe a file, and yield the segments of each piece in order.

    Args:
        channel: Channel to transcribe, from 0; ``None`` to mix all.

    Raises:
        Refusal: The file cannot be decoded, no host accepts its pieces, or no engine supports its language.
        ChannelNotFoundError: The file does not have the channel.
    """
    check_language(gateway, hints.language)
    language, splitter = (hints.language or "").partition("-")[0] or None, AudioSplitter()
    pending = PendingPieceQueue(FilePieceQueue(gateway.store))
    file.seek(0)
    async with contextlib.aclosing(split_file(file, splitter, channel)) as segments, contextlib.aclosing(pending):
        async for segment in segments:
            await pending.put(segment, language, hints.prompt)
            if len(pending) == MAX_PENDING_PIECES:
                yield transcript.add(*await pending.wait_for_next_transcript())
        while len(pending):
            yield transcript.add(*await pending.wait_for_next_transcript())
    transcript.duration_s = splitter.total_duration_s


class PendingPieceQueue:
    """The pieces of a file that have not been transcribed yet."""

    def __init__(self, pieces: FilePieceQueue) -> None:
        self._pieces = pieces
        self._pending: deque[tuple[SpeechSegment, FilePiece]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    async def put(self, segment: SpeechSegment, language: str | None, prompt: str) -> None:
        piece = FilePiece(secrets.token_hex(12), segment.samples.tobytes(), language, prompt)
        self._pending.append((segment, piece))
        await self._pieces.put(piece)

    async def wait_for_next_transcript(self) -> tuple[SpeechSegment, PieceTranscript]:
        """Wait for the transcript of the first piece, and return the piece and its transcript.

        Raises:
            Refusal: No host accepts the piece, or an engine fails.
        """
        segment, first = self._pending[0]
        started_at = refreshed_at = time.monotonic()
        while True:
            with contextlib.suppress(RedisError):
                result = await self._pieces.read_result(first.name)
                if result:
                    break
                if time.monotonic() - refreshed_at >= REFRESH_INTERVAL_S:
                    refreshed_at = time.monotonic()
                    await self._refresh()
            if time.monotonic() - started_at >= PIECE_TIMEOUT_S:
                raise _build_capacity_refusal(f"no ASR host had time for this file within {PIECE_TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_INTERVAL_S)
        self._pending.popleft()
        await self._pieces.delete(first.name)
        if result.failed:
            raise Refusal(500, "not transcribed", "an engine failed on a part of this file")
        return segment, result

    async def _refresh(self) -> None:
        for _, each in self._pending:
            if not await self._pieces.refresh(each.name):
                await self._pieces.put(each)

    async def aclose(self) -> None:
        """Discard the pieces of a client that has disconnected."""
        with contextlib.suppress(RedisError):
            for _, each in self._pending:
                await self._pieces.delete(each.name)
