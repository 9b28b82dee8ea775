"""Archived transcripts: written after the session, found and deleted by its id."""

import asyncio
import base64
import gzip
import hmac
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import duckdb
import httpx2
import pytest
from moto.server import ThreadedMotoServer
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.gateway.tests.running import NO_TLS, GatewayProcess, Hosts, Opened
from voice_blueprint.contract.session_api import CALLER_HEADER
from voice_gateway import archiver
from voice_gateway.archive import Archive, ArchivedTranscript, ArchiveEntry, build_archive_key
from voice_gateway.archiver import Archiver
from voice_runtime import state
from voice_runtime.media import DEFAULT_MEDIA_FORMAT
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.transcripts import EventKind, TimedWord, Transcript, TranscriptStore
from voice_sandbox.loopback import find_free_port

BUCKET = "transcripts-of-tests"
SHOP, OTHER = {CALLER_HEADER: "shop"}, {CALLER_HEADER: "other"}
EMULATOR = "devstoreaccount1"
AZURITE = Path(__file__).parents[3] / ".tools/azurite/node_modules/.bin/azurite-blob"
EMULATOR_KEY = base64.b64encode(bytes(range(64))).decode()


@dataclass(frozen=True)
class Bucket:
    """A bucket as returned by S3."""

    url: str

    @property
    def _client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.url)

    def names(self) -> list[str]:
        return [each["Key"] for each in self._client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]

    def text(self, name: str) -> str:
        return str(self._client.get_object(Bucket=BUCKET, Key=name)["Body"].read().decode())

    def lines(self, name: str) -> list[dict[str, Any]]:
        gzip_json_lines = self._client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return [json.loads(line) for line in gzip.decompress(gzip_json_lines).splitlines()]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    httpx2.post(f"{s3}/moto-api/reset", verify=NO_TLS)
    assert httpx2.put(f"{s3}/{BUCKET}", verify=NO_TLS).status_code == 200
    return Bucket(s3)


def said(utterance: int, text: str, **more: Any) -> Transcript:
    start_ms = utterance * 20
    return Transcript(
        kind=EventKind.FINAL, utterance=utterance, text=text, start_ms=start_ms, end_ms=start_ms + 900, **more
    )


def session(ssrc: int = 7, **more: Any) -> Session:
    return Session(
        ssrc=ssrc,
        id=f"{ssrc:08x}-{'0' * 24}",
        state=SessionState.OPEN,
        kind=SessionKind.GATEWAY,
        caller="shop",
        expires_at=int(time.time()) + 3600,
        media=DEFAULT_MEDIA_FORMAT,
        archived_from=1_790_000_000,
        **more,
    )


async def over(store: Redis, *finals: Transcript, ssrc: int = 7, seconds_ago: int = 5, **more: Any) -> Session:
    """Create a session that ended some seconds ago."""
    made = session(ssrc, **more)
    assert await SessionStore(store).create(made, max_sessions=100)
    for final in finals:
        assert await TranscriptStore(store).publish(ssrc, final)
    await SessionStore(store).close(made)
    await store.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {str(ssrc): time.time() - seconds_ago})
    return made


@pytest.fixture
def start_archiving(store_server: StoreServer, rtp_port: int, bucket: Bucket) -> Iterator[Callable[[], GatewayProcess]]:
    """Starts gateways with an archive."""
    started: list[GatewayProcess] = []

    def begin() -> GatewayProcess:
        gateway = GatewayProcess(store_server, rtp_port, ARCHIVE_URL=f"s3://{BUCKET}", ARCHIVE_ENDPOINT=bucket.url)
        gateway.environment |= {
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"
        }  # fmt: skip
        started.append(gateway.start())
        return gateway

    yield begin
    for gateway in started:
        gateway.kill()


@pytest.fixture
async def archiving(start_archiving: Callable[[], GatewayProcess], hosts: Hosts) -> GatewayProcess:
    assert hosts.present
    return await (await start_archiving().ready()).accepts_callers()


async def opened_by_shop(gateway: GatewayProcess, **request: object) -> Opened:
    async with gateway.client() as client:
        answer = await client.post("/v1/sessions", json={"transport": "websocket", **request}, headers=SHOP)
    assert answer.status_code == 201, answer.text
    return Opened(gateway, answer.json())


async def asked(gateway: GatewayProcess, opened: Opened, method: str = "GET", **more: Any) -> httpx2.Response:
    async with gateway.client() as client:
        return await client.request(method, f"/v1/sessions/{opened.id}/transcript", **{"headers": SHOP, **more})


async def archived(gateway: GatewayProcess, opened: Opened) -> httpx2.Response:
    """Wait for a session's transcript."""
    end = time.monotonic() + BUSY_TIMEOUT_S
    while (answer := await asked(gateway, opened)).status_code == 404:
        assert time.monotonic() < end, f"not archived: {answer.text} {gateway.lines}"
        await asyncio.sleep(0.2)
    return answer


async def test_a_transcript_is_stored_listed_and_deleted_by_its_caller(
    archiving: GatewayProcess, store: Redis, bucket: Bucket
) -> None:
    opened = await opened_by_shop(archiving, archive=True)
    word = TimedWord(text="Bonjour", start_ms=0, end_ms=400, confidence=0.9)
    for transcript in (said(0, "Bonjour", language="fr", words=[word]), said(60, ""), said(100, "à tous")):
        await TranscriptStore(store).publish(opened.ssrc, transcript)
    early = await asked(archiving, opened)
    assert (early.status_code, early.json()["error"], early.headers["Retry-After"]) == (404, "not archived yet", "5")
    await opened.close()

    answer = await archived(archiving, opened)
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()] == [
        {
            "kind": "final", "id": opened.id, "start_ms": 0, "end_ms": 900, "text": "Bonjour", "language": "fr",
            "words": [["Bonjour", 0, 400]],
        },
        {"kind": "final", "id": opened.id, "start_ms": 2000, "end_ms": 2900, "text": "à tous"},
    ]  # fmt: skip
    vtt = await asked(archiving, opened, params={"format": "vtt"})
    assert vtt.headers["Content-Type"].startswith("text/vtt")
    assert vtt.text == ("WEBVTT\n\n00:00:00.000 --> 00:00:00.900\nBonjour\n\n00:00:02.000 --> 00:00:02.900\nà tous\n\n")
    assert (await asked(archiving, opened, params={"format": "docx"})).status_code == 400

    for refused in (
        await asked(archiving, opened, headers=OTHER),
        await asked(archiving, opened, "DELETE", headers={}),
    ):
        assert (refused.status_code, refused.json()["error"]) == (404, "unknown transcript")
    assert bucket.names() == [f"transcripts/{opened.id}.jsonl.gz"]
    assert (await asked(archiving, opened, "DELETE")).status_code == 204
    assert (await asked(archiving, opened)).status_code == 404
    assert bucket.names() == []


async def test_a_session_without_archive_is_not_stored(archiving: GatewayProcess, store: Redis) -> None:
    opened = await opened_by_shop(archiving)
    await TranscriptStore(store).publish(opened.ssrc, said(0, "Nothing to keep"))
    await opened.close()
    assert not await store.exists(state.SESSIONS_TO_ARCHIVE_KEY)
    assert not await store.exists(state.build_finals_key(opened.ssrc))


async def test_archive_requests_without_an_archive_are_rejected(gateway: GatewayProcess) -> None:
    async with gateway.client() as client:
        answer = await client.post("/v1/sessions", json={"transport": "websocket", "archive": True})
    assert (answer.status_code, answer.json()["error"]) == (400, "no archive")
    opened = await gateway.open()
    assert (await asked(gateway, opened)).json()["error"] == "no archive"


async def test_a_long_meeting_is_archived_beyond_its_event_stream(
    store: Redis, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_TRANSCRIPT_EVENTS", 10)
    meeting = await over(store, *(said(50 * each, f"sentence {each}") for each in range(300)))
    assert await store.xlen(state.build_transcript_key(meeting.ssrc)) < 300, "its beginning is gone from the events"
    archive = Archive(f"s3://{BUCKET}", bucket.url)
    await Archiver(store, archive).archive_batch()
    found = await archive.read(meeting.id)
    assert found
    texts = [line["text"] for line in found.lines]
    assert texts == [f"sentence {each}" for each in range(300)]
    assert found.session == ArchiveEntry(
        id=meeting.id, caller="shop", began_at="2026-09-21T14:13:20+00:00", ended_at=found.session.ended_at,
        language=None, duration_ms=299 * 1000 + 900, finals=300, characters=len("".join(texts)),
        complete=True, lost_ms=0, key=build_archive_key(meeting.id),
    )  # fmt: skip


async def test_sessions_have_separate_objects_and_shared_index_objects(store: Redis, bucket: Bucket) -> None:
    for ssrc in range(1, 41):
        await over(store, said(0, f"Apfel {ssrc}"), ssrc=ssrc)
    await over(store, said(0, ""), ssrc=99)
    archivers = [Archiver(store, Archive(f"s3://{BUCKET}", bucket.url)) for _ in range(3)]
    while await store.zcard(state.SESSIONS_TO_ARCHIVE_KEY):
        await asyncio.gather(*(each.archive_batch() for each in archivers))
    await asyncio.gather(*(each.write_pending_index_entries() for each in archivers))
    transcripts = [name for name in bucket.names() if name.startswith("transcripts/")]
    index = [name for name in bucket.names() if name.startswith("index/")]
    assert len(transcripts) == 40, "one without words has none"
    assert len(index) == 1
    assert index[0].startswith(f"index/date={datetime.now(UTC):%Y-%m-%d}/")
    entries = bucket.lines(index[0])
    assert sorted(entry["key"] for entry in entries) == sorted(transcripts)
    assert "Apfel" not in json.dumps(entries), "no word of a transcript"
    assert not await store.exists(state.INDEX_ENTRIES_KEY)
    await over(store, said(0, "Birne"), ssrc=100)
    await archivers[0].archive_batch()
    await archivers[0].write_pending_index_entries()
    assert [name for name in bucket.names() if name.startswith("index/")] == index, "not more than once a minute"


async def test_duckdb_reads_the_index_and_the_transcripts(store: Redis, tmp_path: Path) -> None:
    archive = Archive(tmp_path.as_uri())
    for ssrc in (1, 2):
        await over(store, *(said(50 * each, f"sentence {each}", language="en") for each in range(ssrc)), ssrc=ssrc)
    writer = Archiver(store, archive)
    await writer.archive_batch()
    await writer.write_pending_index_entries()
    index = duckdb.read_json(f"{tmp_path}/index/**/*.jsonl.gz", hive_partitioning=True)
    found = index.order("finals DESC").project("key, finals, date, complete").fetchall()
    assert [row[1:] for row in found] == [(2, datetime.now(UTC).date(), True), (1, datetime.now(UTC).date(), True)]
    transcript = duckdb.read_json(f"{tmp_path}/{found[0][0]}").filter("kind = 'final'")
    texts = transcript.order("start_ms").project("start_ms, text").fetchall()
    assert texts == [(0, "sentence 0"), (1000, "sentence 1")]


async def test_the_archiver_waits_for_pending_transcripts(store: Redis, bucket: Bucket) -> None:
    kept = await over(store, said(0, "First."))
    await store.hset(state.build_sent_audio_key(kept.ssrc), "last_sequence", "200")
    archive = Archive(f"s3://{BUCKET}", bucket.url)
    await Archiver(store, archive).archive_batch()
    assert await archive.read(kept.id) is None
    await TranscriptStore(store).publish(kept.ssrc, said(100, "Last."))
    await TranscriptStore(store).mark_transcribed(kept.ssrc, 200, 2)
    await Archiver(store, archive).archive_batch()
    found = await archive.read(kept.id)
    assert found
    assert [line["text"] for line in found.lines] == ["First.", "Last."]


async def test_lost_speech_is_reported_without_waiting(store: Redis, bucket: Bucket) -> None:
    kept = await over(store, said(0, "First."), seconds_ago=31)
    await store.hset(state.build_sent_audio_key(kept.ssrc), "last_sequence", "200")
    archive = Archive(f"s3://{BUCKET}", bucket.url)
    await Archiver(store, archive).archive_batch()
    found = await archive.read(kept.id)
    assert found
    assert not found.session.complete


async def test_while_the_archive_is_unavailable_sessions_wait(
    store: Redis, bucket: Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await over(store, said(0, "Patience."))
    unavailable = Archiver(store, Archive(f"s3://{BUCKET}", f"http://127.0.0.1:{find_free_port()}"))
    monkeypatch.setattr(archiver, "SCAN_INTERVAL_S", 0.01)
    running = asyncio.create_task(unavailable.run())
    end = time.monotonic() + BUSY_TIMEOUT_S
    while "transcripts are not archived" not in caplog.messages:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    running.cancel()
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert await store.zcard(state.SESSIONS_TO_ARCHIVE_KEY) == 1
    await store.delete(state.build_archive_claim_key(kept.ssrc))  # the claim of a gateway that failed expires
    archive = Archive(f"s3://{BUCKET}", bucket.url)
    await Archiver(store, archive).archive_batch()
    assert await archive.read(kept.id)


async def test_a_transcript_that_is_lost_is_logged(
    store: Redis, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    await store.zadd(state.SESSIONS_TO_ARCHIVE_KEY, {"7": time.time() - 700})
    await Archiver(store, Archive(f"s3://{BUCKET}", bucket.url)).archive_batch()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert not await store.zcard(state.SESSIONS_TO_ARCHIVE_KEY)


async def test_archive_waits_for_a_caller_to_reconnect(store: Redis) -> None:
    sessions, kept = SessionStore(store), session()
    assert await sessions.create(kept, max_sessions=1)
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, "7") == kept.expires_at
    await sessions.start_grace_period(kept, 20)
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, "7") == pytest.approx(time.time() + 20, abs=5)
    await sessions.resume(kept)
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, "7") == kept.expires_at
    await sessions.close(kept)
    closed_at = await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, "7")
    await sessions.close(kept)
    assert await store.zscore(state.SESSIONS_TO_ARCHIVE_KEY, "7") == closed_at
    await sessions.start_grace_period(replace(kept, ssrc=8), 20)
    assert await store.zcard(state.SESSIONS_TO_ARCHIVE_KEY) == 1, "another session is not archived"


@pytest.mark.nightly
async def test_an_azure_container_stores_and_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = find_free_port()
    assert AZURITE.exists(), "`make test-nightly` installs it"
    command: list[str | Path] = [
        AZURITE,
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--silent",
    ]
    monkeypatch.setenv("AZURITE_ACCOUNTS", f"{EMULATOR}:{EMULATOR_KEY}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", EMULATOR)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", EMULATOR_KEY)
    emulator = subprocess.Popen(command, cwd=tmp_path)
    try:
        endpoint = f"http://127.0.0.1:{port}/{EMULATOR}"
        await _make_container(endpoint)
        archive = Archive(f"az://{BUCKET}", endpoint)
        kept = session()
        transcript = ArchivedTranscript.from_session(
            ArchiveEntry.from_session(kept, [said(0, "Grüezi")], time.time()), [said(0, "Grüezi")]
        )
        await archive.write(transcript)
        await archive.write(transcript)
        assert await archive.read(kept.id) == transcript
        await archive.write_index([json.dumps({"id": kept.id})], datetime.now(UTC))
        await archive.delete(kept.id)
        assert await archive.read(kept.id) is None
    finally:
        emulator.kill()
        emulator.wait()


async def _make_container(endpoint: str) -> None:
    """Create the container, signed with the emulator's key."""
    end = time.monotonic() + BUSY_TIMEOUT_S
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    empty = "\n" * 11
    text = f"PUT{empty}\nx-ms-date:{date}\nx-ms-version:2021-08-06\n/{EMULATOR}/{EMULATOR}/{BUCKET}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(EMULATOR_KEY), text.encode(), "sha256")).decode()
    headers = {
        "x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Length": "0",
        "Authorization": f"SharedKey {EMULATOR}:{signature}",
    }  # fmt: skip
    async with httpx2.AsyncClient() as client:
        while True:
            try:
                answer = await client.put(f"{endpoint}/{BUCKET}?restype=container", headers=headers)
            except httpx2.TransportError:
                assert time.monotonic() < end, "the emulator does not start"
                await asyncio.sleep(0.2)
                continue
            assert answer.status_code == 201, answer.text
            return
