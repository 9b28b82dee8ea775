"""Pieces of audio files between gateways and ASR hosts, through a real store."""

import pytest
from redis.asyncio import Redis

from voice_runtime import state
from voice_runtime.file_pieces import FilePiece, FilePieceQueue, PieceTranscript

FIRST, SECOND = FilePiece("first", b"\1\2", None), FilePiece("second", b"\3\4", "de")


@pytest.fixture
async def pieces(store: Redis) -> FilePieceQueue:
    found = FilePieceQueue(store)
    await found.put(FIRST)
    await found.put(SECOND)
    return found


async def test_segments_are_assigned_to_one_host_in_order(pieces: FilePieceQueue) -> None:
    assert await pieces.count_queued() == 2
    assert [await pieces.claim("a"), await pieces.claim("b"), await pieces.claim("a")] == [FIRST, SECOND, None]
    assert await pieces.read_result("first") is None
    await pieces.complete("first", PieceTranscript(text="yes"))
    assert await pieces.read_result("first") == PieceTranscript(text="yes")


async def test_segments_of_dead_hosts_are_requeued(pieces: FilePieceQueue, store: Redis) -> None:
    assert await pieces.claim("dies") == FIRST
    assert await pieces.refresh("first")
    assert await pieces.count_queued() == 1
    await store.delete(state.build_file_piece_lease_key("first"))  # simulates expiry
    assert await pieces.refresh("first")
    assert [await pieces.claim("a"), await pieces.claim("a")] == [SECOND, FIRST]


async def test_transcribed_piece_is_not_queued_again(pieces: FilePieceQueue) -> None:
    assert [await pieces.claim("a"), await pieces.claim("a")] == [FIRST, SECOND]
    for piece in (FIRST, SECOND):
        await pieces.complete(piece.name, PieceTranscript(text="yes"))
        assert await pieces.refresh(piece.name)
    assert await pieces.count_queued() == 0


async def test_segments_of_a_dead_gateway_expire(pieces: FilePieceQueue, store: Redis) -> None:
    for key in await store.keys("file:*"):
        assert 0 < await store.ttl(key) <= state.SESSION_RETENTION_S
    assert await store.ttl(state.build_file_piece_key("first")) <= state.FILE_PIECE_RETENTION_S
    await store.delete(state.build_file_piece_key("first"))  # simulates expiry
    assert [await pieces.claim("a"), await pieces.claim("a")] == [None, SECOND]
    await store.delete(state.build_file_piece_key("second"))
    assert not await pieces.renew("second")
    await pieces.complete("second", PieceTranscript(text="late"))
    assert await pieces.read_result("second") is None
    assert not await pieces.refresh("second")


async def test_forgotten_segment_is_deleted_everywhere(pieces: FilePieceQueue, store: Redis) -> None:
    await pieces.delete("first")
    await pieces.delete("second")
    assert await store.keys("file:*") == []


async def test_a_piece_that_was_queued_twice_is_claimed_once(store: Redis) -> None:
    """Two gateways may find concurrently that its host has failed."""
    pieces = FilePieceQueue(store)
    await pieces.put(FilePiece("twice", b"audio", None))
    await store.rpush(state.QUEUED_FILE_PIECES_KEY, "twice")
    claimed = await pieces.claim("a host")
    assert claimed
    assert claimed.name == "twice"
    assert await pieces.count_queued() == 0
