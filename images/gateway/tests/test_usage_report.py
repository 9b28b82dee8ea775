"""The daily usage files: which days are written, by whom, and their rows."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from obstore.exceptions import BaseError
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as StoreConnectionError

from voice_gateway import usage_report
from voice_gateway.usage_report import UsageReporter, to_csv
from voice_runtime import state

TODAY = date(2026, 11, 26)
AFTERNOON = datetime(2026, 11, 26, 15, tzinfo=UTC)
HEADER = "date,caller,audio_s,speech_s,characters,prompt_tokens,answer_tokens,spoken_characters"


class WrittenFiles:
    """An archive that keeps the usage files."""

    def __init__(self) -> None:
        self.tables: dict[date, str] = {}
        self.is_hanging = False

    async def write_usage(self, day: date, table: str) -> None:
        if self.is_hanging:
            await asyncio.Event().wait()
        self.tables[day] = table


def reporter(store: Redis, archive: WrittenFiles) -> UsageReporter:
    found: Any = archive
    return UsageReporter(store, found)


async def use(store: Redis, day: date, caller: str, audio_s: float = 1.0) -> None:
    await store.sadd(state.build_day_callers_key(day.isoformat()), caller)
    await store.hset(state.build_caller_usage_key(caller, day.isoformat()), mapping={"audio_s": str(audio_s)})


def test_a_row_has_the_documented_columns() -> None:
    """The columns are listed in ``docs/clients.md``; a value that was not counted is 0."""
    row = {
        "date": "2026-11-25", "caller": "tenant", "audio_s": "1.239", "speech_s": "0.5", "characters": "3",
        "prompt_tokens": "4", "answer_tokens": "5", "spoken_characters": "6",
    }  # fmt: skip
    assert to_csv([row, {"date": "2026-11-25", "caller": "other"}]).splitlines() == [
        HEADER,
        "2026-11-25,tenant,1.24,0.50,3,4,5,6",
        "2026-11-25,other,0.00,0.00,0,0,0,0",
    ]


async def test_the_two_days_before_are_written_15_minutes_after_midnight(store: Redis) -> None:
    for days in range(5):
        await use(store, TODAY - timedelta(days=days), "tenant")
    archive = WrittenFiles()
    midnight = datetime(2026, 11, 26, tzinfo=UTC)
    await reporter(store, archive).write_reports(midnight + timedelta(minutes=14, seconds=59))
    assert list(archive.tables) == [date(2026, 11, 23), date(2026, 11, 24)]
    await reporter(store, archive).write_reports(midnight + timedelta(minutes=15))
    assert list(archive.tables) == [date(2026, 11, 23), date(2026, 11, 24), date(2026, 11, 25)]


async def test_all_callers_are_listed_once_in_order(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in batches, of which the last is smaller."""
    monkeypatch.setattr(usage_report, "BATCH_SIZE", 2)
    day = TODAY - timedelta(days=1)
    for number in range(5):
        await use(store, day, f"tenant-{number}", number)
        await store.hset(
            state.build_agent_usage_key(f"tenant-{number}", day.isoformat()),
            mapping={"prompt_tokens": f"{number + 10}"},
        )
    archive = WrittenFiles()
    await reporter(store, archive).write_reports(AFTERNOON)
    assert archive.tables[day].splitlines()[1:] == [
        f"2026-11-25,tenant-{number},{number}.00,0.00,0,{number + 10},0,0" for number in range(5)
    ]


async def test_a_day_is_claimed_while_it_is_written_and_done_afterwards(store: Redis) -> None:
    day = TODAY - timedelta(days=1)
    claim = state.build_usage_report_claim_key(day.isoformat())
    await use(store, day, "tenant")
    archive = WrittenFiles()
    archive.is_hanging = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await reporter(store, archive).write_reports(AFTERNOON)
    remaining_s = await store.ttl(claim)
    assert 0 < remaining_s <= 120
    archive.is_hanging = False
    await reporter(store, archive).write_reports(AFTERNOON)
    assert not archive.tables, "another gateway may be writing it"
    await store.delete(claim)  # simulates expiry
    await reporter(store, archive).write_reports(AFTERNOON)
    assert list(archive.tables) == [day]
    assert await store.ttl(claim) > state.USAGE_RETENTION_S - 60


async def test_a_file_is_abandoned_well_before_its_claim_expires(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, another gateway would claim the day while this one is still writing."""
    limits_s: list[float] = []

    def limit(seconds: float) -> AbstractAsyncContextManager[object]:
        limits_s.append(seconds)
        return asyncio.timeout(0.01)

    monkeypatch.setattr(usage_report, "asyncio", SimpleNamespace(timeout=limit))
    await use(store, TODAY - timedelta(days=1), "tenant")
    archive = WrittenFiles()
    archive.is_hanging = True
    with pytest.raises(TimeoutError):
        await reporter(store, archive).write_reports(AFTERNOON)
    [limit_s] = limits_s
    claimed_s = await store.ttl(state.build_usage_report_claim_key("2026-11-25"))
    assert 30 < limit_s < claimed_s - 30


@pytest.mark.parametrize(
    ("failure", "is_logged"),
    [
        (None, False),
        (BaseError("no"), True),
        (TimeoutError(), True),
        (StoreConnectionError(), False),
        (OSError(), False),
    ],
)
async def test_days_are_checked_once_a_minute_on_average(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception | None, is_logged: bool
) -> None:
    """The pause is random, so that gateways take turns, and a failure does not end the checks."""
    pauses_s: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses_s.append(seconds)
        if len(pauses_s) == 2:
            raise asyncio.CancelledError

    async def write_reports(_: UsageReporter, __: datetime) -> None:
        if failure:
            raise failure

    extremes = iter((min, max))
    monkeypatch.setattr(usage_report, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(usage_report, "random", SimpleNamespace(uniform=lambda *limits: next(extremes)(limits)))
    monkeypatch.setattr(UsageReporter, "write_reports", write_reports)
    nothing: Any = None
    with pytest.raises(asyncio.CancelledError):
        await UsageReporter(nothing, nothing).run()
    assert pauses_s == [30.0, 90.0]
    logged = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.__dict__["fields"]["reason"] for each in logged] == [type(failure).__name__] * (2 * is_logged)
