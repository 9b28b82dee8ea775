"""The periodic work of a host, one step at a time, with stand-ins and a fixed clock."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import pytest

from voice_blueprint.contract.state import HOST_HEARTBEAT_INTERVAL_S
from voice_runtime.hosts import Host
from voice_whisper import maintenance
from voice_whisper.maintenance import HostMaintenance

NOW = 3.0
"""Seconds since the start of the machine."""
SETTINGS = SimpleNamespace(host="h1", host_kind="gpu", host_address="10.0.0.1", zone="a", sessions=4)


class Work:
    """A keeper and its parts."""

    def __init__(self) -> None:
        self.is_stuck = False
        self.admission = Mock(live_sessions={}, is_closed=False, free_slots=3, languages=("de",))
        self.admission.release, self.admission.adopt = AsyncMock(), AsyncMock()
        self.registry, self.journal, self.sessions = AsyncMock(), AsyncMock(), AsyncMock()
        self.journal.read_host_sessions.return_value, self.journal.renew.return_value = [], []
        self.keeper = HostMaintenance(
            SETTINGS,  # type: ignore[arg-type]
            self.admission,
            self.registry,
            self.journal,
            self.sessions,
            is_stuck=lambda: self.is_stuck,
        )

    async def heartbeat(self) -> Host:
        await self.keeper.send_heartbeat()
        host: Host = self.registry.send_heartbeat.await_args.args[0]
        return host


class Clock:
    """A clock that stands still."""

    now = NOW

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(maintenance, "time", found)
    return found


async def test_a_draining_host_announces_no_free_slots() -> None:
    work = Work()
    host = await work.heartbeat()
    assert (host.id, host.free_slots, host.slots, host.draining) == ("h1", 3, 4, False)
    assert (host.address, host.zone, host.languages) == ("10.0.0.1", "a", ("de",))
    work.keeper.is_draining = True
    host = await work.heartbeat()
    assert (host.free_slots, host.slots, host.draining) == (0, 4, True)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("quiet_s", "is_busy", "is_over", "released"),
    [
        (2.0, False, True, True),
        (2.0, False, False, False),
        (2.0, True, True, False),
        (1.5, False, True, False),
        (2.5, False, True, True),
    ],
)
async def test_a_closed_session_is_released_after_two_seconds_without_speech(
    quiet_s: float, is_busy: bool, is_over: bool, released: bool
) -> None:
    work = Work()
    work.admission.live_sessions[7] = SimpleNamespace(is_busy=is_busy, last_audio_at=NOW - quiet_s)
    work.sessions.read.return_value = SimpleNamespace(is_over=is_over)
    await work.keeper._release_closed_sessions()
    assert [call.args for call in work.admission.release.await_args_list] == ([(7,)] if released else [])
    is_queried = quiet_s >= 2 and not is_busy
    assert work.sessions.read.await_count == is_queried, "the store is not queried during speech"


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("change", "released"), [(None, True), ("record", True), ("speech", False), ("release", False), ("takeover", False)]
)
async def test_a_session_that_changes_during_the_query_is_not_released(change: str | None, released: bool) -> None:
    work = Work()
    session = SimpleNamespace(is_busy=False, last_audio_at=NOW - 2.5)
    live = work.admission.live_sessions
    live[7] = session

    async def read(_: int) -> Any:
        if change == "record":
            return None
        if change == "speech":
            session.is_busy = True
        if change == "release":
            live.clear()
        if change == "takeover":
            live[7] = SimpleNamespace(is_busy=False, last_audio_at=NOW)
        return SimpleNamespace(is_over=True)

    work.sessions.read = read
    await work.keeper._release_closed_sessions()
    assert work.admission.release.await_count == released


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize(
    ("idle_s", "is_assigned", "is_closed"),
    [
        (2, True, False),
        (119.75, True, False),
        (120, True, False),
        (121, True, False),
        (0, False, False),
        (0, True, True),
    ],
)
async def test_idle_sessions_are_released(
    clock: Clock, idle_s: float, is_assigned: bool, is_closed: bool, is_busy: bool
) -> None:
    """After two minutes without audio, if their audio goes elsewhere, or if the host leaves."""
    later = clock.now = 150.0
    work = Work()
    work.admission.is_closed = is_closed
    work.admission.live_sessions[7] = SimpleNamespace(
        is_busy=is_busy, last_audio_at=later - idle_s, is_assigned_to_host=is_assigned
    )
    await work.keeper._release_idle_sessions()
    released = not is_busy and (idle_s >= 120 or not is_assigned or is_closed)
    assert work.admission.release.await_args_list == [call(7)] * released


async def test_a_stuck_host_leaves_its_sessions_to_others(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.is_stuck = True
    work.admission.live_sessions |= {7: None, 8: None}
    work.admission.drop.side_effect = work.admission.live_sessions.pop
    for _ in range(2):
        await work.keeper.send_heartbeat()
        await work.keeper._renew_leases()
        await work.keeper._adopt_orphans()
    assert work.admission.is_closed is True
    assert work.admission.drop.call_args_list == [call(7), call(8)]
    assert work.registry.remove.await_args_list == [call("h1")] * 2
    work.registry.send_heartbeat.assert_not_awaited()
    work.journal.renew.assert_not_awaited()
    work.journal.find_orphaned_sessions.assert_not_awaited()
    assert caplog.messages == ["2 sessions are left to other hosts until this one works"]


@pytest.mark.parametrize("is_draining", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_host_that_works_again_resumes_its_sessions(is_closed: bool, is_draining: bool) -> None:
    work = Work()
    work.admission.is_closed, work.keeper.is_draining = is_closed, is_draining
    work.journal.read_host_sessions.return_value, work.journal.renew.return_value = [7, 8, 9], [8]
    await work.heartbeat()
    is_resumed = is_closed and not is_draining
    assert work.admission.is_closed is (is_closed and is_draining)
    resumed = sorted(work.admission.adopt.await_args_list, key=lambda each: each.args)
    assert resumed == ([call(7, is_own=True), call(9, is_own=True)] if is_resumed else [])
    assert work.journal.read_host_sessions.await_args_list == [call("h1")] * is_resumed


async def test_lost_leases_are_dropped_and_orphans_adopted() -> None:
    work = Work()
    work.admission.live_sessions |= {7: None, 8: None}
    work.journal.renew.return_value, work.journal.find_orphaned_sessions.return_value = [8], [3, 4]
    await work.keeper._renew_leases()
    await work.keeper._adopt_orphans()
    assert work.journal.renew.await_args_list == [call([7, 8])]
    assert work.admission.drop.call_args_list == [call(8)]
    assert work.admission.adopt.await_args_list == [call(3), call(4)]


async def test_work_is_repeated_as_often_as_others_expect_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without audio is released within a quarter of the interval at which the host announces free slots.

    A failing host loses chunks of at most 50 ms, and a transcript that is due begins within 50 ms.
    """
    seconds: dict[str, float] = {}

    async def note(interval_s: float, name: str, _: Callable[[], Awaitable[None]]) -> None:
        seconds[name] = interval_s

    monkeypatch.setattr(maintenance, "run_periodically", note)
    work = Work()
    await work.keeper.run(AsyncMock())
    assert seconds == {
        "the heartbeat": HOST_HEARTBEAT_INTERVAL_S,
        "the leases": HOST_HEARTBEAT_INTERVAL_S,
        "the search for orphans": HOST_HEARTBEAT_INTERVAL_S,
        "the search for closed sessions": 2,
        "the release of sessions": HOST_HEARTBEAT_INTERVAL_S * 0.25,
        "the journal": 0.05,
        "the clock": 0.05,
    }
    work.journal.read_host_sessions.assert_awaited_once_with("h1")
