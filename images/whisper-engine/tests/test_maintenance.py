"""The periodic work of a host, one step at a time, with stand-ins and a fixed clock."""

from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from voice_runtime.hosts import Host
from voice_whisper import maintenance
from voice_whisper.maintenance import QUIET_TIMEOUT_S, HostMaintenance

NOW = 1000.0
SETTINGS = SimpleNamespace(host="h1", host_kind="gpu", host_address="10.0.0.1", zone="a", sessions=4)


class Work:
    """A keeper and its parts."""

    def __init__(self) -> None:
        self.admission = Mock(live_sessions={}, is_closed=False, free_slots=3, languages=("de",))
        self.admission.release = AsyncMock()
        self.registry, self.journal, self.sessions = AsyncMock(), AsyncMock(), AsyncMock()
        self.keeper = HostMaintenance(
            SETTINGS,  # type: ignore[arg-type]
            self.admission,
            self.registry,
            self.journal,
            self.sessions,
            is_stuck=lambda: False,
        )

    async def heartbeat(self) -> Host:
        await self.keeper.send_heartbeat()
        host: Host = self.registry.send_heartbeat.await_args.args[0]
        return host


async def test_a_draining_host_announces_no_free_slots() -> None:
    work = Work()
    host = await work.heartbeat()
    assert (host.id, host.free_slots, host.slots, host.draining) == ("h1", 3, 4, False)
    assert (host.address, host.zone, host.languages) == ("10.0.0.1", "a", ("de",))
    work.keeper.is_draining = True
    host = await work.heartbeat()
    assert (host.free_slots, host.slots, host.draining) == (0, 4, True)


@pytest.mark.parametrize(
    ("quiet_s", "is_busy", "is_over", "released"),
    [
        (QUIET_TIMEOUT_S, False, True, True),
        (QUIET_TIMEOUT_S, False, False, False),
        (QUIET_TIMEOUT_S, True, True, False),
        (QUIET_TIMEOUT_S - 0.5, False, True, False),
        (QUIET_TIMEOUT_S + 0.5, False, True, True),
    ],
)
async def test_a_closed_session_is_released_after_two_seconds_without_speech(
    monkeypatch: pytest.MonkeyPatch, quiet_s: float, is_busy: bool, is_over: bool, released: bool
) -> None:
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: NOW))
    work = Work()
    work.admission.live_sessions[7] = SimpleNamespace(is_busy=is_busy, last_audio_at=NOW - quiet_s)
    work.sessions.read.return_value = SimpleNamespace(is_over=is_over)
    await work.keeper._release_closed_sessions()
    assert [call.args for call in work.admission.release.await_args_list] == ([(7,)] if released else [])
    is_queried = quiet_s >= QUIET_TIMEOUT_S and not is_busy
    assert work.sessions.read.await_count == is_queried, "the store is not queried during speech"
