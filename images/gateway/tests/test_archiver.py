"""Writing ended sessions to an archive, which is a folder here; test_archive.py covers S3 and Azure."""

import asyncio
import gzip
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from obstore.exceptions import BaseError, GenericError
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as StoreConnectionError

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.clocks import VirtualTime
from images.gateway.tests.test_archive import over, said, session
from voice_gateway import archive as archive_module
from voice_gateway.archive import Archive, ArchivedTranscript, ArchiveEntry
from voice_gateway.archiver import Archiver
from voice_runtime import state
from voice_runtime.transcripts import TimedWord


def files(folder: Path, under: str) -> list[Path]:
    return sorted(path for path in (folder / under).rglob("*") if path.is_file())


def lines(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().splitlines()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path.as_uri())


async def test_a_gateway_archives_up_to_16_sessions_at_once(store: Redis, archive: Archive, tmp_path: Path) -> None:
    """Others archive the rest in the meantime."""
    for ssrc in range(1, 20):
        await over(store, said(0, "Apfel"), ssrc=ssrc)
    archiver = Archiver(store, archive)
    await archiver.archive_batch()
    assert len(files(tmp_path, "transcripts")) == 16
    await archiver.archive_batch()
    assert len(files(tmp_path, "transcripts")) == 19


async def test_a_session_is_archived_two_seconds_after_its_end(store: Redis, archive: Archive, tmp_path: Path) -> None:
    """By then, the other tiers have noticed the end."""
    await over(store, said(0, "Apfel"), ssrc=1, seconds_ago=3)
    await over(store, said(0, "Birne"), ssrc=2, seconds_ago=0)
    await over(store, said(0, "Kirsche"), ssrc=3, seconds_ago=-1)
    await Archiver(store, archive).archive_batch()
    assert [path.name for path in files(tmp_path, "transcripts")] == [f"{session(1).id}.jsonl.gz"]


async def test_a_session_that_another_gateway_has_claimed_is_left_to_it(
    store: Redis, archive: Archive, tmp_path: Path
) -> None:
    claim = state.build_archive_claim_key(7)
    await over(store, said(0, "Apfel"))
    await store.set(claim, "1", ex=100)
    await Archiver(store, archive).archive_batch()
    assert files(tmp_path, "transcripts") == []
    await store.delete(claim)
    await Archiver(store, archive).archive_batch()
    assert len(files(tmp_path, "transcripts")) == 1
    assert 50 < await store.ttl(claim) <= 60, "longer than the requests of an archiving gateway, but not for ever"


async def test_a_session_that_has_been_archived_in_the_meantime_is_not_lost(
    store: Redis, archive: Archive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "zrangebyscore", AsyncMock(return_value=[(b"7", time.time() - 9)]))
    await Archiver(store, archive).archive_batch()
    assert caplog.records == []
    assert await store.exists(state.build_archive_claim_key(7))


async def test_a_failure_does_not_interrupt_the_other_sessions(
    store: Redis, archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await over(store, said(0, "Apfel"), ssrc=1)
    await over(store, said(0, "Birne"), ssrc=2)
    write = archive.write

    async def write_others(transcript: ArchivedTranscript) -> None:
        if transcript.session.id == session(1).id:
            raise GenericError("full")
        await asyncio.sleep(0.05)
        await write(transcript)

    monkeypatch.setattr(archive, "write", write_others)
    with pytest.raises(BaseError, match="full"):
        await Archiver(store, archive).archive_batch()
    assert [path.name for path in files(tmp_path, "transcripts")] == [f"{session(2).id}.jsonl.gz"]


@pytest.mark.parametrize(("seconds_ago", "is_archived"), [(28, False), (31, True)])
async def test_missing_transcripts_are_waited_for_half_a_minute(
    store: Redis, archive: Archive, tmp_path: Path, seconds_ago: int, is_archived: bool
) -> None:
    await over(store, said(0, "First."), seconds_ago=seconds_ago)
    await store.hset(state.build_sent_audio_key(7), "last_sequence", "200")
    await Archiver(store, archive).archive_batch()
    assert bool(files(tmp_path, "transcripts")) is is_archived
    assert await store.exists(state.build_archive_claim_key(7)) == is_archived, "another gateway may try again"


async def test_index_objects_have_up_to_1000_entries(store: Redis, archive: Archive, tmp_path: Path) -> None:
    """As docs/archive.md describes."""
    entries = [json.dumps({"id": f"{number:04d}"}) for number in range(1002)]
    await store.rpush(state.INDEX_ENTRIES_KEY, *entries)
    await Archiver(store, archive).write_pending_index_entries()
    written = [lines(file) for file in files(tmp_path, "index")]
    assert written == [entries[:1000], entries[1000:]]
    assert not await store.exists(state.INDEX_ENTRIES_KEY)
    assert 50 < await store.ttl(state.INDEX_CLAIM_KEY) <= 60
    await store.rpush(state.INDEX_ENTRIES_KEY, entries[0])
    await Archiver(store, archive).write_pending_index_entries()
    assert await store.llen(state.INDEX_ENTRIES_KEY) == 1, "at most once a minute"


async def test_index_entries_are_kept_for_a_day(store: Redis, archive: Archive) -> None:
    await over(store, said(0, "Apfel"))
    await Archiver(store, archive).archive_batch()
    [entry] = await store.lrange(state.INDEX_ENTRIES_KEY, 0, -1)
    assert json.loads(entry)["key"] == f"transcripts/{session().id}.jsonl.gz"
    assert 86_000 < await store.ttl(state.INDEX_ENTRIES_KEY) <= 86_400


async def test_ended_sessions_are_looked_for_every_second(
    store: Redis, archive: Archive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, archiver = VirtualTime(monkeypatch, "voice_gateway.archiver"), Archiver(store, archive)
    archived_at, failures = list[float](), [GenericError("full"), TimeoutError(), StoreConnectionError(), OSError()]

    async def archive_batch() -> None:
        archived_at.append(clock.now)
        if failures:
            raise failures.pop(0)

    write = AsyncMock()
    monkeypatch.setattr(archiver, "archive_batch", archive_batch)
    monkeypatch.setattr(archiver, "write_pending_index_entries", write)
    running = asyncio.create_task(archiver.run())
    await clock.run_for(6.5)
    running.cancel()
    assert archived_at == pytest.approx([1, 2, 3, 4, 5, 6])
    assert write.await_count == 2
    assert [record.__dict__["fields"]["reason"] for record in caplog.records] == ["GenericError", "TimeoutError"]


def test_an_entry_describes_its_session() -> None:
    ended_at = 1_790_000_100.5
    finals = [said(0, "Bonjour"), said(100, "à tous", language="fr"), said(50, "!", language="en")]
    entry = ArchiveEntry.from_session(session(language="de"), finals, ended_at)
    assert (entry.began_at, entry.ended_at) == ("2026-09-21T14:13:20+00:00", "2026-09-21T14:15:00+00:00")
    assert (entry.language, entry.duration_ms, entry.finals, entry.characters) == ("fr", 2900, 3, 14)
    assert (entry.complete, entry.lost_ms) == (True, 0)
    empty = ArchiveEntry.from_session(session(language="de"), [], ended_at)
    assert (empty.language, empty.duration_ms, empty.finals, empty.characters) == ("de", 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "is_complete"), [({}, True), ({"last_sequence": 5}, False), ({"lost_ms": 20}, False)]
)
def test_an_entry_is_complete_if_all_speech_is_transcribed(changes: dict[str, int], is_complete: bool) -> None:
    entry = ArchiveEntry.from_session(session(**changes), [said(0, "Apfel")], time.time())
    assert (entry.complete, entry.lost_ms) == (is_complete, changes.get("lost_ms", 0))


async def test_an_object_has_a_line_per_final_transcript(archive: Archive, tmp_path: Path) -> None:
    word = TimedWord(text="à", start_ms=0, end_ms=400, confidence=0.9)
    finals = [said(0, "à", language="fr", words=[word]), said(60, "tous")]
    entry = ArchiveEntry.from_session(session(), finals, time.time())
    transcript = ArchivedTranscript.from_session(entry, finals)
    await archive.write(transcript)
    [file] = files(tmp_path, "transcripts")
    assert file.read_bytes() == transcript.pack()
    head, *rows = lines(file)
    about = f'{{"kind": "final", "id": "{entry.id}", '
    assert json.loads(head)["kind"] == "session"
    assert rows == [
        f'{about}"start_ms": 0, "end_ms": 900, "text": "à", "language": "fr", "words": [["à", 0, 400]]}}',
        f'{about}"start_ms": 1200, "end_ms": 2100, "text": "tous"}}',
    ]
    assert await archive.read(entry.id) == transcript
    assert transcript.to_vtt() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.900\nà\n\n00:00:01.200 --> 00:00:02.100\ntous\n\n"
    )
    await archive.delete(entry.id)
    assert await archive.read(entry.id) is None


async def test_index_and_usage_have_an_object_per_day(archive: Archive, tmp_path: Path) -> None:
    day = datetime(2026, 9, 21, 23, 59, tzinfo=UTC)
    await archive.write_index(['{"id": "one"}', '{"id": "two"}', '{"id": "three"}'], day)
    await archive.write_usage(day.date(), "caller\nshop\n")
    [index] = files(tmp_path, "index")
    assert index.relative_to(tmp_path).as_posix() == "index/date=2026-09-21/one.jsonl.gz"
    assert lines(index) == ['{"id": "one"}', '{"id": "two"}', '{"id": "three"}']
    [usage] = files(tmp_path, "usage")
    assert usage.relative_to(tmp_path).as_posix() == "usage/date=2026-09-21/callers.csv"
    assert usage.read_text(encoding="utf-8") == "caller\nshop\n"


@pytest.mark.parametrize(("failures", "is_written"), [(2, True), (3, False)])
async def test_a_failed_request_is_retried_twice(
    monkeypatch: pytest.MonkeyPatch, failures: int, is_written: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    statuses = [503] * failures + [200]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")
        )
        await reader.readexactly(size)
        writer.write(
            f'HTTP/1.1 {statuses.pop(0)} Any\r\nETag: "1"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'.encode()
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, asyncio.timeout(BUSY_TIMEOUT_S):
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        writing = Archive("s3://bucket", endpoint).write_usage(datetime.now(UTC).date(), "")
        if is_written:
            await writing
        else:
            with pytest.raises(BaseError):
                await writing
    assert len(statuses) == (0 if is_written else 1)


def test_equal_content_has_equal_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that writes an object again must not change it."""
    rows = ['{"id": "one"}']
    before = archive_module.gzip_json_lines(rows)
    monkeypatch.setattr("voice_gateway.archive.gzip.time.time", lambda: 2_000_000_000.0)
    assert archive_module.gzip_json_lines(iter(rows)) == before


async def test_a_session_without_a_transcript_is_not_looked_for_again(
    store: Redis, archive: Archive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await over(store, said(0, ""), ssrc=1)
    await store.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {"2": time.time() - 700})
    await Archiver(store, archive).archive_batch()
    assert await store.zcard(state.SESSIONS_TO_ARCHIVE_KEY) == 0
    assert files(tmp_path, "transcripts") == []
    assert [record.__dict__["fields"] for record in caplog.records] == [{"ssrc": 2}], "it has expired"
