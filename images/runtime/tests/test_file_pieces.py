"""Pieces of audio files between gateways and ASR hosts, through a real store."""

import pytest
from redis.asyncio import Redis

from voice_blueprint.contract.state import FilePieceField
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
    await store.rpush(state.QUEUED_FILE_PIECES_KEY, "first")  # two gateways found that its host has failed
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


async def test_a_host_renews_its_lease_until_its_transcript_is_stored(pieces: FilePieceQueue, store: Redis) -> None:
    lease = state.build_file_piece_lease_key("first")
    assert await pieces.claim("a") == FIRST
    assert await store.get(lease) == b"a"
    await store.expire(lease, 1)
    assert await pieces.renew("first") is True
    assert 1 < await store.ttl(lease) <= state.FILE_PIECE_LEASE_TTL_S
    await pieces.complete("first", PieceTranscript(text="yes"))
    assert not await store.exists(lease)


async def test_a_claim_of_a_leased_piece_fails_and_leaves_the_lease(pieces: FilePieceQueue, store: Redis) -> None:
    await store.set(state.build_file_piece_lease_key("first"), "another")
    assert await pieces.claim("a") is None
    assert await store.get(state.build_file_piece_lease_key("first")) == b"another"
    assert await pieces.count_queued() == 2


async def test_a_piece_is_read_with_its_callers_hints(store: Redis) -> None:
    pieces = FilePieceQueue(store)
    for piece in (FilePiece("a", b"\1", "de", "Valkey"), FilePiece("b", b"\2", None), FilePiece("c", b"\3", "en")):
        await pieces.put(piece)
        assert await pieces.claim("host") == piece


async def test_a_record_without_hints_has_none(pieces: FilePieceQueue, store: Redis) -> None:
    await store.hdel(state.build_file_piece_key("first"), FilePieceField.LANGUAGE, FilePieceField.PROMPT)
    assert await pieces.claim("a") == FIRST


async def test_a_stored_transcript_has_no_defaults(pieces: FilePieceQueue, store: Redis) -> None:
    """The transcript of a silent piece is as short as possible; a reader has the same defaults."""
    await pieces.complete("first", PieceTranscript())
    assert await store.hget(state.build_file_piece_key("first"), FilePieceField.TRANSCRIPT) == b"{}"
    found = await pieces.read_result("first")
    assert found == PieceTranscript(text="", language=None, words=[], failed=False)
    await pieces.complete("second", PieceTranscript(failed=True))
    found = await pieces.read_result("second")
    assert found
    assert found.failed is True


async def test_a_waiting_piece_is_not_queued_twice(pieces: FilePieceQueue) -> None:
    """A gateway refreshes its pieces while they wait, are in progress and are done."""
    for _ in range(2):
        assert await pieces.refresh("first") is True
        assert await pieces.refresh("second") is True
    assert await pieces.count_queued() == 2
    assert await pieces.claim("a") == FIRST
    assert await pieces.refresh("first") is True
    assert await pieces.count_queued() == 1
    assert await pieces.refresh("unknown") is False
