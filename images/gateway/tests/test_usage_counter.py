"""Counting the usage of callers: amounts, the daily limit, and the report of an ended session."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from voice_blueprint.contract.state import SentAudioField
from voice_gateway import usage
from voice_gateway.refusals import Refusal
from voice_gateway.subtitles import FileTranscript, Segment
from voice_gateway.usage import UsageCounter
from voice_runtime import state
from voice_runtime.metrics import Metrics
from voice_runtime.replies import decode_fields
from voice_runtime.sessions import Session, SessionKind, SessionState, SessionStore
from voice_runtime.transcripts import TranscriptStore

DAY = "2026-11-26"
SSRC = 7


def counter(store: Redis, minutes_per_day: int = 0) -> UsageCounter:
    return UsageCounter(store, Metrics("test", "gateway", lambda _: None), minutes_per_day)


async def opened(store: Redis, kind: SessionKind = SessionKind.GATEWAY) -> Session:
    """Return a session that has a record."""
    session = Session(SSRC, "7-7", SessionState.OPEN, kind, "tenant", int(time.time()) + 3600)
    assert await SessionStore(store).create(session, max_sessions=1)
    return session


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """The usage logged so far, on a fixed day."""
    monkeypatch.setattr(usage, "_get_current_day", lambda: DAY)
    caplog.set_level(logging.INFO)
    return lambda: [each.__dict__["fields"] for each in caplog.records if each.message == "usage"]


async def counted(store: Redis, caller: str = "tenant") -> dict[str, float]:
    found = decode_fields(await store.hgetall(state.build_caller_usage_key(caller, DAY)))
    return {name: float(value) for name, value in found.items()}


@pytest.mark.usefixtures("logged")
async def test_audio_is_counted_for_the_session_and_its_caller(store: Redis) -> None:
    session = await opened(store)
    assert await counter(store).count_audio(session, 2.0), "there is no limit"
    assert await counted(store) == {"audio_s": 2.0, "speech_s": 0.0, "characters": 0.0}
    assert (await SessionStore(store).read(SSRC) or pytest.fail("no record")).received_s == 2.0
    for key in (state.build_caller_usage_key("tenant", DAY), state.build_day_callers_key(DAY)):
        assert 0 < await store.ttl(key) <= state.USAGE_RETENTION_S
    assert await store.smembers(state.build_day_callers_key(DAY)) == {b"tenant"}


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize(("audio_s", "may_continue"), [(119.5, True), (120.0, False), (121.0, False)])
async def test_audio_ends_when_the_minutes_of_the_day_are_used_up(
    store: Redis, audio_s: float, may_continue: bool
) -> None:
    limited, session = counter(store, minutes_per_day=2), await opened(store)
    await limited.check_quota("tenant")
    assert await limited.count_audio(session, audio_s) is may_continue
    if may_continue:
        await limited.check_quota("tenant")
    else:
        with pytest.raises(Refusal, match="the 2 minutes that a caller has a day are used up"):
            await limited.check_quota("tenant")
    await counter(store).check_quota("tenant")


@pytest.mark.parametrize(("now", "retry_s"), [(86_400.0, "86400"), (2 * 86_400 - 1.5, "2"), (86_500.0, "86300")])
async def test_a_caller_without_minutes_may_try_again_at_midnight(
    store: Redis, monkeypatch: pytest.MonkeyPatch, now: float, retry_s: str
) -> None:
    monkeypatch.setattr(usage, "_get_current_day", lambda: DAY)
    monkeypatch.setattr(usage, "time", SimpleNamespace(time=lambda: now))
    await store.hset(state.build_caller_usage_key("tenant", DAY), mapping={"audio_s": "60"})
    with pytest.raises(Refusal) as caught:
        await counter(store, minutes_per_day=1).check_quota("tenant")
    assert (caught.value.status_code, caught.value.headers) == (429, {"Retry-After": retry_s})


async def test_the_transcript_of_a_file_is_counted(store: Redis, logged: Callable[[], list[dict[str, Any]]]) -> None:
    left = FileTranscript([Segment("yes", 0.0, 1.0), Segment("no", 1.0, 2.0)], duration_s=3.0, speech_s=1.5)
    await counter(store).count_file("tenant", [left, FileTranscript(duration_s=3.0)])
    assert await counted(store) == {"audio_s": 6.0, "speech_s": 1.5, "characters": 6.0}
    amounts = {"audio_s": 6.0, "speech_s": 1.5, "characters": 6}
    assert logged() == [{"caller": "tenant", "session": "", **amounts}]
    await counter(store).count_file("other", [FileTranscript()])
    assert len(logged()) == 1, "a file of which nothing was transcribed is not logged"
    assert not await counted(store, "other")


class Clock:
    """A clock that only advances while the counter sleeps, and what happens at which time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.events: dict[float, Callable[[], Coroutine[None, None, Any]]] = {}
        monkeypatch.setattr(usage, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": self.sleep}))
        monkeypatch.setattr(usage, "time", SimpleNamespace(time=time.time, monotonic=lambda: self.now))

    async def sleep(self, seconds: float) -> None:
        assert 0.1 < seconds <= 1, "the usage is logged soon after the session ends, without a busy loop"
        self.now += seconds
        for at in [each for each in self.events if each <= self.now]:
            await self.events.pop(at)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def report(usages: UsageCounter, session: Session, timeout_s: float = 0.0) -> None:
    usages.schedule_report(session, timeout_s)
    await usages.wait_for_reports(BUSY_TIMEOUT_S)


@pytest.mark.parametrize(("kind", "already_counted_s"), [(SessionKind.GATEWAY, 4.0), (SessionKind.EXTERNAL, 0.0)])
async def test_an_ended_session_is_logged_with_its_speech(
    store: Redis,
    clock: Clock,
    logged: Callable[[], list[dict[str, Any]]],
    kind: SessionKind,
    already_counted_s: float,
) -> None:
    """Its sockets have counted the audio of a WebSocket before. SRTP does not reach the gateway."""
    session, usages, sessions = await opened(store, kind), counter(store), SessionStore(store)
    await usages.count_audio(session, already_counted_s)
    await store.hset(
        state.build_sent_audio_key(SSRC), mapping={SentAudioField.LAST_SEQUENCE: "199", SentAudioField.CHUNKS: "15"}
    )
    await TranscriptStore(store).mark_transcribed(SSRC, 199, 15, characters=12)
    clock.events[5.0] = lambda: sessions.close(session)
    await report(usages, session)
    assert clock.now == pytest.approx(5.0, abs=1)
    amounts = {"audio_s": 4.0, "speech_s": 1.5, "characters": 12}
    assert logged() == [{"caller": "tenant", "session": session.id, **amounts}]
    assert await counted(store) == amounts
    await report(usages, session)
    assert len(logged()) == 1, "it is logged once"


@pytest.mark.parametrize(("timeout_s", "ends_at_s"), [(10.0, 40.0), (10.2, 40.5)])
async def test_an_ended_session_waits_30_s_for_its_last_transcript(
    store: Redis, clock: Clock, logged: Callable[[], list[dict[str, Any]]], timeout_s: float, ends_at_s: float
) -> None:
    """The record is read every half second."""
    session, usages = await opened(store), counter(store)
    await usages.count_audio(session, 1.0)
    await store.hset(
        state.build_sent_audio_key(SSRC), mapping={SentAudioField.LAST_SEQUENCE: "3", SentAudioField.CHUNKS: "3"}
    )
    await SessionStore(store).close(session)
    await report(usages, session, timeout_s)
    assert clock.now == ends_at_s
    assert [each["characters"] for each in logged()] == [0]


@pytest.mark.usefixtures("clock")
async def test_sessions_without_usage_and_open_or_unknown_ones_are_not_logged(
    store: Redis, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    usages, session = counter(store), await opened(store)
    await report(usages, session)
    assert await SessionStore(store).mark_usage_reported(session), "an open session may still be reported"
    await store.delete(state.build_session_key(SSRC))
    await report(usages, session)
    session = await opened(store)
    await SessionStore(store).close(session)
    await report(usages, session)
    assert logged() == []
    assert await counted(store) == {}


async def test_waiting_for_reports_ends_at_its_timeout(store: Redis) -> None:
    usages = counter(store)
    await usages.wait_for_reports(BUSY_TIMEOUT_S)
    ending = asyncio.create_task(asyncio.sleep(0))
    usages._report_tasks.add(ending)
    await usages.wait_for_reports(1.0)
    assert ending.done()
    usages.schedule_report(await opened(store), 3600)
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        for timeout_s in (0.01, 0.0, -1.0):
            await usages.wait_for_reports(timeout_s)
    assert usages._report_tasks, "the session is not over"
    for task in usages._report_tasks:
        task.cancel()
