"""Usage of callers: counted across all gateways, reported once per session, and limited as configured."""

import asyncio
import csv
import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx2
import numpy as np
import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.issuer import AUDIENCE, Issuer
from images.gateway.tests.running import GatewayProcess, Opened, VadHost, holds
from images.gateway.tests.test_archive import BUCKET, Bucket, bucket, s3, start_archiving
from images.gateway.tests.test_client_sockets import LISTEN, Client, connect, event, only_ssrc, say
from voice_gateway.archive import Archive
from voice_gateway.usage import UsageCounter, UsageRecord
from voice_gateway.usage_report import REPORT_DELAY, UsageReporter, to_csv
from voice_runtime import state
from voice_runtime.metrics import Metrics
from voice_runtime.replies import decode_fields
from voice_runtime.sessions import SessionStore
from voice_runtime.transcripts import EventKind, TranscriptStore

__all__ = ["bucket", "s3", "start_archiving"]

pytestmark = pytest.mark.usefixtures("hosts", "vad")

SECOND = np.zeros(16_000, "<i2").tobytes()


def told(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return [line for line in gateway.logged() if line.get("message") == "usage"]


async def used(store: Redis, caller: str) -> dict[str, float]:
    found = await store.hgetall(state.build_caller_usage_key(caller, datetime.now(UTC).date().isoformat()))
    return {name: float(value) for name, value in decode_fields(found).items()}


async def test_a_session_is_reported_once_with_its_caller(
    start: Start, issuer: Issuer, store: Redis, vad: VadHost
) -> None:
    gateway = await start(JWT_ISSUER=issuer.url, JWT_AUDIENCE=AUDIENCE).ready()
    async with gateway.client() as http, asyncio.timeout(BUSY_TIMEOUT_S):
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        while (await http.post("/v1/sessions", json={"transport": "srtp"}, headers=headers)).status_code != 201:
            await asyncio.sleep(0.1)
    async with connect(gateway, LISTEN, issuer.token(sub="tenant-7")) as connection:
        await connection.send(SECOND)
        ssrc = await only_ssrc(vad, store)
        await vad.heard(ssrc, 50)
        await say(store, ssrc, event(EventKind.FINAL, 1, "nine words"))
        await TranscriptStore(store).mark_transcribed(ssrc, 9, 3, characters=10)
        await Client(connection).send("CloseStream")
        await say(store, ssrc, event(EventKind.END, 2))
        await connection.wait_closed()
    await holds("it is told", lambda: bool(told(gateway)))
    (line,) = told(gateway)
    assert (line["caller"], line["audio_s"], line["characters"]) == ("tenant-7", 1.0, 10)
    assert await used(store, "tenant-7") == {"audio_s": 1.0, "speech_s": 0.0, "characters": 10.0}
    assert not await SessionStore(store).mark_usage_reported(
        (await SessionStore(store).read(ssrc)) or pytest.fail("no record")
    )


async def test_an_active_session_is_not_reported_before_its_end(start: Start, vad: VadHost) -> None:
    gateway = await (await start(RECONNECT_GRACE_S=2).ready()).accepts_callers()
    opened = await gateway.open()
    for _ in range(2):
        async with opened.socket() as connection:
            await connection.send(SECOND)
            await asyncio.sleep(0.3)
            connection.transport.abort()
        await asyncio.sleep(1.2)
    await vad.heard(opened.ssrc, 20)
    await holds("it is told", lambda: bool(told(gateway)))
    await asyncio.sleep(1)
    (line,) = told(gateway)
    assert line["session"] == opened.id
    assert line["audio_s"] == pytest.approx(2.0, abs=0.1)


async def stop_after_a_lost_connection(gateway: GatewayProcess, vad: VadHost) -> Opened:
    """Send a second of audio, lose the connection, and stop the gateway."""
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send(SECOND)
        await vad.heard(opened.ssrc, 50)
        connection.transport.abort()
    await holds("it is closed", lambda: any(line.get("message") == "socket closed" for line in gateway.logged()))
    gateway.terminate()
    assert gateway.wait() == 0
    return opened


async def test_a_stopping_gateway_reports_sessions_whose_callers_do_not_return(start: Start, vad: VadHost) -> None:
    gateway = await (await start(RECONNECT_GRACE_S=2).ready()).accepts_callers()
    opened = await stop_after_a_lost_connection(gateway, vad)
    (line,) = told(gateway)
    assert (line["session"], line["audio_s"]) == (opened.id, 1.0)


async def test_a_stopping_gateway_waits_for_reports_within_its_stop_timeout(start: Start, vad: VadHost) -> None:
    gateway = await (await start(RECONNECT_GRACE_S=300, DRAIN_TIMEOUT_S=0).ready()).accepts_callers()
    await stop_after_a_lost_connection(gateway, vad)
    assert not told(gateway)


def test_the_log_rounds_seconds_to_hundredths(store: Redis, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counter = UsageCounter(store, Metrics("test", "gateway", lambda _: None), 0)
    counter._log_usage("caller", "session", UsageRecord(audio_s=1.23456, speech_s=0.98765, characters=3))
    (record,) = (each for each in caplog.records if each.message == "usage")
    fields = record.__dict__["fields"]
    assert (fields["audio_s"], fields["speech_s"], fields["characters"]) == (1.23, 0.99, 3)


async def test_minutes_per_day_are_limited(start: Start, store: Redis) -> None:
    gateway = await (await start(CALLER_MINUTES_PER_DAY=61).ready()).accepts_callers()
    caller = "127.0.0.1"
    key = state.build_caller_usage_key(caller, datetime.now(UTC).date().isoformat())
    await store.hset(key, mapping={"audio_s": "3659.5"})
    async with connect(gateway, LISTEN) as connection:
        await connection.send(SECOND)
        await asyncio.wait_for(connection.wait_closed(), BUSY_TIMEOUT_S)
        assert (connection.close_code, "used up" in str(connection.close_reason)) == (1008, True)
    since = int(time.time())
    with pytest.raises(websockets.InvalidStatus) as caught:
        await connect(gateway, LISTEN)
    refusal = caught.value.response
    assert refusal.status_code == 429
    assert any(not (at + int(refusal.headers["Retry-After"])) % 86_400 for at in range(since, int(time.time()) + 1))
    assert "the 61 minutes" in json.loads(refusal.body)["detail"]
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{gateway.url}/v1/audio/transcriptions", files={"file": ("x.wav", b"RIFF")})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "daily_quota")
    await store.delete(key)


DAY = date(2026, 11, 25)
MIDNIGHT = datetime(2026, 11, 26, tzinfo=UTC)


async def fill(store: Redis, day: date, caller: str, heard: dict[Any, str], answered: dict[Any, str]) -> None:
    """Write the counters that gateways and agents write."""
    for members, key, counts in (
        (state.build_day_callers_key, state.build_caller_usage_key, heard),
        (state.build_agent_day_callers_key, state.build_agent_usage_key, answered),
    ):
        if counts:
            await store.sadd(members(day.isoformat()), caller)
            await store.hset(key(caller, day.isoformat()), mapping=counts)


def rows(bucket: Bucket, day: date) -> list[dict[str, str]]:
    return list(csv.DictReader(bucket.text(f"usage/date={day.isoformat()}/callers.csv").splitlines()))


@pytest.fixture
def report(store: Redis, bucket: Bucket) -> UsageReporter:
    return UsageReporter(store, Archive(f"s3://{BUCKET}", bucket.url))


async def test_daily_usage_file_has_a_row_per_caller(store: Redis, bucket: Bucket, report: UsageReporter) -> None:
    names = [f"tenant-{number:03d}" for number in range(300)]
    for name in names:
        await fill(store, DAY, name, {"audio_s": "60.125", "speech_s": "30", "characters": "400"}, {})
    await fill(store, DAY, names[0], {}, {"prompt_tokens": "700", "answer_tokens": "30", "spoken_characters": "90"})
    await fill(store, DAY, 'a "quoted", name', {}, {"prompt_tokens": "1"})
    await fill(store, DAY + timedelta(days=1), "of-today", {"audio_s": "1"}, {})
    await report.write_reports(MIDNIGHT + REPORT_DELAY)
    quoted, *tenants = rows(bucket, DAY)
    assert [row["caller"] for row in tenants] == names
    assert tenants[0] == {
        "date": "2026-11-25", "caller": names[0], "audio_s": "60.12", "speech_s": "30.00", "characters": "400",
        "prompt_tokens": "700", "answer_tokens": "30", "spoken_characters": "90",
    }  # fmt: skip
    assert (tenants[1]["prompt_tokens"], quoted["caller"], quoted["prompt_tokens"]) == ("0", 'a "quoted", name', "1")
    assert bucket.names() == ["usage/date=2026-11-25/callers.csv"]


async def test_a_finished_day_is_written_by_one_gateway(store: Redis, bucket: Bucket, report: UsageReporter) -> None:
    await fill(store, DAY, "tenant", {"audio_s": "1"}, {})
    await report.write_reports(MIDNIGHT + REPORT_DELAY - timedelta(seconds=1))
    assert bucket.names() == []
    now = MIDNIGHT + REPORT_DELAY
    await report.write_reports(now)
    assert len(bucket.names()) == 1
    await fill(store, DAY, "tenant", {"audio_s": "2"}, {})
    await asyncio.gather(*(report.write_reports(now + timedelta(hours=hours)) for hours in range(30)))
    assert [row["audio_s"] for row in rows(bucket, DAY)] == ["1.00"]


async def test_a_failed_daily_report_is_written_by_the_next_gateway(
    store: Redis, bucket: Bucket, report: UsageReporter
) -> None:
    await fill(store, DAY, "tenant", {"audio_s": "1"}, {})
    closed = UsageReporter(store, Archive("s3://no-such-bucket", bucket.url))
    with pytest.raises(Exception, match="NoSuchBucket"):
        await closed.write_reports(MIDNIGHT + REPORT_DELAY)
    claim = state.build_usage_report_claim_key(DAY.isoformat())
    assert 0 < await store.ttl(claim) <= 120
    await store.delete(claim)  # simulates expiry
    await report.write_reports(MIDNIGHT + REPORT_DELAY + timedelta(days=1))
    assert rows(bucket, DAY)[0]["caller"] == "tenant"


async def test_a_gateway_writes_its_own_counts(
    start_archiving: Callable[[], GatewayProcess], store: Redis, bucket: Bucket
) -> None:
    """Run the real programs, except for midnight: the day's keys are renamed to those of the day before."""
    gateway = await (await start_archiving().ready()).accepts_callers()
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send(SECOND)
        await connection.send(json.dumps({"type": "end"}))
        await asyncio.wait_for(connection.wait_closed(), BUSY_TIMEOUT_S)
    await holds("it is told", lambda: bool(told(gateway)))
    today, before = (datetime.now(UTC).date() - timedelta(days=days) for days in (0, 1))
    caller = told(gateway)[0]["caller"]
    await store.rename(state.build_day_callers_key(today.isoformat()), state.build_day_callers_key(before.isoformat()))
    await store.rename(
        state.build_caller_usage_key(caller, today.isoformat()),
        state.build_caller_usage_key(caller, before.isoformat()),
    )
    await store.delete(state.build_usage_report_claim_key(before.isoformat()))
    gateway.kill()
    start_archiving()
    await holds("it is written", lambda: bool(bucket.names()))
    assert [(row["caller"], row["audio_s"]) for row in rows(bucket, before)] == [(caller, "1.00")]


def test_a_day_without_usage_has_a_header_row() -> None:
    assert to_csv([]).startswith("date,caller,audio_s,")
