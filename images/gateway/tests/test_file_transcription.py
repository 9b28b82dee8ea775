"""Uploads of limited size, and the pieces of a file that wait for an ASR host."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.types import Message

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.served_gateway import make_gateway, serving_gateway
from voice_gateway import file_transcription
from voice_gateway.file_audio import AudioSplitter, SpeechSegment
from voice_gateway.file_transcription import (
    PendingPieceQueue,
    PrefetchedStreamingResponse,
    TranscriptionHints,
    Upload,
    admit_upload,
    reserve_decoding_slot,
    transcribe_file,
)
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_gateway.subtitles import FileTranscript
from voice_runtime import state
from voice_runtime.fair_admission import FairAdmissionController
from voice_runtime.file_pieces import FilePiece, FilePieceQueue, PieceTranscript

MIB = 1 << 20
MAX_FILE_MIB = 128
"""Maximum size of a file in docs/clients.md."""
CLOCK_START_S = 1.0
"""A monotonic clock may start at any value."""


@pytest.fixture
async def gateway(store: Redis) -> AsyncIterator[Gateway]:
    async with serving_gateway(store) as gateway:
        yield gateway


# --- Uploads --------------------------------------------------------------------------------------------


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def upload_of(*messages: Message) -> Upload:
    """Return an upload whose body does not continue after these messages."""
    rest = list(messages)

    async def receive() -> Message:
        if not rest:
            await asyncio.Event().wait()
        return rest.pop(0)

    return Upload(receive)


async def test_a_body_has_at_most_128_mib() -> None:
    upload = upload_of(*[part(bytes(MIB))] * MAX_FILE_MIB, part(b"1", more=False))
    for _ in range(MAX_FILE_MIB):
        await upload.receive()
    with pytest.raises(Refusal, match="a file has at most 128 MiB") as caught:
        await upload.receive()
    assert (caught.value.status_code, caught.value.headers) == (413, {"Connection": "close"})


def request_with(gateway: Gateway | None = None, **headers: str) -> Request:
    raw = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    app = SimpleNamespace(state=SimpleNamespace(gateway=gateway))
    return Request({"type": "http", "headers": raw, "app": app, "client": ("127.0.0.1", 1)})


@pytest.mark.parametrize("length", [None, "0", str(MAX_FILE_MIB * MIB), "many"])
def test_a_declared_size_of_up_to_128_mib_is_accepted(length: str | None) -> None:
    request = request_with() if length is None else request_with(content_length=length)
    upload_of().check_declared_size(request)


def test_a_larger_declared_size_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        upload_of().check_declared_size(request_with(content_length=str(MAX_FILE_MIB * MIB + 1)))
    assert caught.value.status_code == 413


@pytest.mark.parametrize(
    "last", [part(b"b", more=False), {"type": "http.request", "body": b"b"}, {"type": "http.disconnect"}]
)
async def test_a_body_is_discarded_up_to_its_end(last: Message) -> None:
    """A message without ``more_body`` is the last one (ASGI specification, "HTTP")."""
    upload = upload_of(part(b"a"), last)
    await asyncio.wait_for(upload.discard(), BUSY_TIMEOUT_S)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(upload.receive(), 0.01)  # everything has been read
    await asyncio.wait_for(upload.discard(), BUSY_TIMEOUT_S)


async def test_an_oversized_body_is_not_discarded() -> None:
    await asyncio.wait_for(upload_of(*[part(bytes(MIB))] * (MAX_FILE_MIB + 1)).discard(), BUSY_TIMEOUT_S)


async def test_the_body_of_a_refused_request_is_read_first(gateway: Gateway) -> None:
    upload = upload_of(part(b"a"), part(b"b", more=False))
    refusal = Refusal(403, "foreign", "no")
    assert await upload.discard_body_and_build_error(request_with(gateway), refusal) is refusal
    await asyncio.wait_for(upload.discard(), BUSY_TIMEOUT_S)


async def test_the_body_is_not_read_if_the_connection_is_closed(gateway: Gateway) -> None:
    refusal = Refusal(413, "file too large", "no", {"Connection": "close"})
    answering = upload_of().discard_body_and_build_error(request_with(gateway), refusal)
    assert await asyncio.wait_for(answering, BUSY_TIMEOUT_S) is refusal


async def test_an_unavailable_store_is_a_refusal(gateway: Gateway) -> None:
    upload = upload_of(part(b"", more=False))
    error = await upload.discard_body_and_build_error(request_with(gateway), RedisError())
    assert (error.status_code, error.headers) == (503, {"Retry-After": "2"})


async def test_only_an_upload_without_a_key_has_little_time(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway.unauthenticated_uploads = FairAdmissionController(64, 0.01)
    for status, is_short in ((401, True), (400, False), (402, False)):
        answering = asyncio.ensure_future(
            upload_of(part(b"a")).discard_body_and_build_error(request_with(gateway), Refusal(status, "", ""))
        )
        await asyncio.wait({answering}, timeout=BUSY_TIMEOUT_S if is_short else 0.2)
        assert answering.done() == is_short
        answering.cancel()
    monkeypatch.setattr(file_transcription, "UPLOAD_TIMEOUT_S", 0.01)
    answering = asyncio.ensure_future(
        upload_of(part(b"a")).discard_body_and_build_error(request_with(gateway), Refusal(400, "", ""))
    )
    assert (await asyncio.wait_for(answering, BUSY_TIMEOUT_S)).status_code == 400


async def test_work_is_cancelled_when_its_client_disconnects() -> None:
    cancelled = asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    with pytest.raises(Refusal, match="the client has gone") as caught:
        await upload_of({"type": "http.disconnect"}).run_until_disconnect(work())
    assert caught.value.status_code == 400
    assert cancelled.is_set()


async def test_work_of_a_present_client_has_its_result() -> None:
    async def work() -> str:
        return "text"

    assert await upload_of().run_until_disconnect(work()) == "text"


# --- Admission ------------------------------------------------------------------------------------------


def check_capacity_refusal(refusal: Refusal, reason: str) -> None:
    assert (refusal.status_code, refusal.detail) == (429, f"{reason}; try again")
    assert refusal.headers == {"Retry-After": "5"}


@pytest.mark.parametrize("files", [0, 1, 2])
async def test_a_gateway_reads_two_files_at_a_time(gateway: Gateway, files: int) -> None:
    async with contextlib.AsyncExitStack() as reserved:
        for _ in range(files):
            await reserved.enter_async_context(reserve_decoding_slot(gateway))
        if files < 2:
            await reserved.enter_async_context(admit_upload(gateway, "caller"))
            return
        with pytest.raises(Refusal) as caught:
            await reserved.enter_async_context(admit_upload(gateway, "caller"))
        check_capacity_refusal(caught.value, "this gateway reads 2 files at a time")
    await reserved.enter_async_context(admit_upload(gateway, "caller"))
    await reserved.aclose()


async def test_an_uploaded_file_waits_for_a_slot_for_a_while(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with reserve_decoding_slot(gateway), contextlib.AsyncExitStack() as third:
        async with reserve_decoding_slot(gateway):
            waiting = asyncio.ensure_future(third.enter_async_context(reserve_decoding_slot(gateway)))
            await asyncio.wait({waiting}, timeout=0.05)
            assert not waiting.done()
        await asyncio.wait_for(waiting, BUSY_TIMEOUT_S)
        monkeypatch.setattr(file_transcription, "SLOT_TIMEOUT_S", 0.01)
        with pytest.raises(Refusal) as caught:
            async with reserve_decoding_slot(gateway):
                pass
    check_capacity_refusal(caught.value, "this gateway reads 2 files at a time")


async def test_live_calls_have_priority(store: Redis) -> None:
    with pytest.raises(Refusal) as caught:
        async with admit_upload(make_gateway(store), "caller"):
            pass
    check_capacity_refusal(caught.value, "live calls need every ASR host")


async def test_the_queue_of_all_files_is_limited(gateway: Gateway, store: Redis) -> None:
    await store.rpush(state.QUEUED_FILE_PIECES_KEY, *map(str, range(state.MAX_FILE_PIECES - 1)))
    async with admit_upload(gateway, "caller"):
        pass
    for _ in range(2):
        await store.rpush(state.QUEUED_FILE_PIECES_KEY, "last")
        with pytest.raises(Refusal) as caught:
            async with admit_upload(gateway, "caller"):
                pass
        check_capacity_refusal(caught.value, "other files wait already")


async def test_the_caller_with_the_most_uploads_loses_its_oldest(gateway: Gateway) -> None:
    gateway.uploads = FairAdmissionController(1, BUSY_TIMEOUT_S)
    with pytest.raises(Refusal, match="other files come in from this caller") as caught:
        async with admit_upload(gateway, "caller"), admit_upload(gateway, "other"):
            await asyncio.sleep(BUSY_TIMEOUT_S)
    assert (caught.value.status_code, caught.value.headers) == (429, {"Connection": "close"})


async def test_a_response_releases_its_resources_after_its_last_part() -> None:
    sent: list[Message] = []
    resources = contextlib.AsyncExitStack()
    released: list[int] = []
    resources.callback(lambda: released.append(len(sent)))

    async def rest() -> AsyncIterator[str]:
        yield "two"
        yield "three"

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    response = PrefetchedStreamingResponse("one", rest(), resources, "text/plain")
    await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    assert [message.get("body") for message in sent[1:]] == [b"one", b"two", b"three", b""]
    assert (sent[0]["status"], released) == (200, [len(sent)])
    assert (b"cache-control", b"no-store") in sent[0]["headers"]


# --- The pieces of a file -------------------------------------------------------------------------------


def cut(number: int) -> SpeechSegment:
    return SpeechSegment(10.0 * number, np.full(16_000, number, np.int16))


class FakePieces(FilePieceQueue):
    """Pieces whose transcripts come late, on a clock that only sleeping advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[float], PieceTranscript | None]) -> None:
        self.now = CLOCK_START_S
        self.answer = answer
        self.sleeps: list[float] = []
        self.refreshed: list[float] = []
        self.added: list[str] = []
        self.deleted: list[str] = []
        self.lost: set[str] = set()
        monkeypatch.setattr(file_transcription, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(file_transcription, "asyncio", SimpleNamespace(sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    async def put(self, piece: FilePiece) -> None:
        self.added.append(piece.name)

    async def read_result(self, name: str) -> PieceTranscript | None:
        assert name == self.added[len(self.deleted)], "the first one that is not transcribed"
        return self.answer(self.now - CLOCK_START_S)

    async def refresh(self, name: str) -> bool:
        self.refreshed.append(self.now - CLOCK_START_S)
        return name not in self.lost

    async def delete(self, name: str) -> None:
        self.deleted.append(name)


async def wait_for_transcript(pieces: FakePieces, count: int = 1) -> tuple[SpeechSegment, PieceTranscript]:
    pending = PendingPieceQueue(pieces)
    for number in range(count):
        await pending.put(cut(number), None, "")
    return await pending.wait_for_next_transcript()


async def test_a_piece_waits_for_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load balancer would close a connection after 350 s without data."""
    pieces = FakePieces(monkeypatch, lambda _: None)
    with pytest.raises(Refusal) as caught:
        await wait_for_transcript(pieces)
    check_capacity_refusal(caught.value, "no ASR host had time for this file within 300 s")
    assert pieces.now - CLOCK_START_S == pytest.approx(300, abs=0.2)


async def test_a_waiting_client_polls_several_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = FakePieces(monkeypatch, lambda now: PieceTranscript(text="late") if now >= 1 else None)
    _, transcript = await wait_for_transcript(pieces)
    assert transcript.text == "late"
    assert 10 <= len(pieces.sleeps) <= 40
    assert (pieces.refreshed, pieces.deleted) == ([], pieces.added)


async def test_waiting_pieces_are_refreshed_four_times_in_their_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    interval_s = state.FILE_PIECE_RETENTION_S / 4
    pieces = FakePieces(monkeypatch, lambda now: PieceTranscript() if now >= 4.5 * interval_s else None)
    await wait_for_transcript(pieces, count=2)
    expected = [number * interval_s for number in range(1, 5) for _ in range(2)]
    assert pieces.refreshed == pytest.approx(expected, abs=1)


async def test_a_lost_piece_is_added_again(monkeypatch: pytest.MonkeyPatch) -> None:
    interval_s = state.FILE_PIECE_RETENTION_S / 4
    pieces = FakePieces(monkeypatch, lambda now: PieceTranscript() if now >= 1.5 * interval_s else None)
    pending = PendingPieceQueue(pieces)
    for number in range(3):
        await pending.put(cut(number), None, "")
    first, second, third = pieces.added
    pieces.lost = {second}
    await pending.wait_for_next_transcript()
    assert pieces.added == [first, second, third, second]
    assert len(set(pieces.added)) == 3


async def test_an_outage_of_the_store_only_delays_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(now: float) -> PieceTranscript | None:
        if now < 60:
            raise RedisError
        return PieceTranscript(text="late")

    _, transcript = await wait_for_transcript(FakePieces(monkeypatch, answer))
    assert transcript.text == "late"

    def fail(_: float) -> PieceTranscript | None:
        raise RedisError

    with pytest.raises(Refusal, match="within 300 s"):
        await wait_for_transcript(FakePieces(monkeypatch, fail))


async def test_a_failed_piece_is_a_server_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="an engine failed on a part of this file") as caught:
        await wait_for_transcript(FakePieces(monkeypatch, lambda _: PieceTranscript(failed=True)))
    assert caught.value.status_code == 500


async def test_pieces_of_a_client_that_disconnects_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = FakePieces(monkeypatch, lambda _: PieceTranscript())
    pending = PendingPieceQueue(pieces)
    for number in range(3):
        await pending.put(cut(number), None, "")
    assert len(pending) == 3
    await pending.wait_for_next_transcript()
    assert len(pending) == 2
    await pending.aclose()
    assert pieces.deleted == pieces.added


# --- A whole file ---------------------------------------------------------------------------------------


def split_into(monkeypatch: pytest.MonkeyPatch, count: int) -> list[tuple[bytes, int | None]]:
    """Replace the decoder: each file has this number of segments, and lasts 99 s."""
    read: list[tuple[bytes, int | None]] = []

    async def split(file: IO[bytes], splitter: AudioSplitter, channel: int | None) -> AsyncIterator[SpeechSegment]:
        read.append((file.read(), channel))
        for number in range(count):
            yield cut(number)
        list(splitter.push(np.zeros(99 * 16_000, np.int16)))

    monkeypatch.setattr(file_transcription, "split_file", split)
    return read


@pytest.mark.parametrize(
    ("hints", "sent"),
    [
        (TranscriptionHints(), (None, "")),
        (TranscriptionHints("en-US", "Valkey"), ("en", "Valkey")),
        (TranscriptionHints("de"), ("de", "")),
    ],
)
async def test_a_file_is_transcribed_in_order(
    gateway: Gateway,
    store: Redis,
    monkeypatch: pytest.MonkeyPatch,
    hints: TranscriptionHints,
    sent: tuple[str | None, str],
) -> None:
    """At most four pieces wait at a time, which also limits the number of hosts that work on the file."""
    read = split_into(monkeypatch, 6)
    file, transcript = io.BytesIO(b"audio"), FileTranscript()
    file.seek(3)
    claimed: list[FilePiece] = []
    most_queued = 0

    async def hear() -> None:
        nonlocal most_queued
        pieces = FilePieceQueue(store)
        while len(claimed) < 6:
            await asyncio.sleep(0.05)
            most_queued = max(most_queued, await pieces.count_queued())
            if most_queued < 4 or (piece := await pieces.claim("host")) is None:
                continue
            claimed.append(piece)
            await pieces.complete(piece.name, PieceTranscript(text=f"Part {len(claimed)}."))

    hearing = asyncio.create_task(hear())
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        added = [each async for each in transcribe_file(gateway, hints, file, transcript, 1)]
        await hearing
    assert read == [(b"audio", 1)]
    assert most_queued == 4
    assert [[segment.text for segment in each] for each in added] == [[f"Part {number}."] for number in range(1, 7)]
    assert {(piece.language, piece.prompt) for piece in claimed} == {sent}
    assert [piece.audio for piece in claimed] == [cut(number).samples.tobytes() for number in range(6)]
    assert (transcript.duration_s, transcript.speech_s) == (99, 6)
    assert await store.keys("file:*") == []


async def test_work_for_a_client_that_disconnects_is_removed(
    gateway: Gateway, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_into(monkeypatch, 6)
    transcribing: Any = transcribe_file(gateway, TranscriptionHints(), io.BytesIO(), FileTranscript())
    waiting = asyncio.ensure_future(anext(transcribing))
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while await FilePieceQueue(store).count_queued() < 4:
            await asyncio.sleep(0.02)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert await store.keys("file:*") == []
