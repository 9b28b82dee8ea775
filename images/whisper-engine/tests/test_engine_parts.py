"""Readiness, capacity, metrics and shutdown of an engine, with stand-ins for its parts and a clock of its own."""

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from voice_blueprint.contract.metrics import ENGINE_METRICS_PATH
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_runtime.store import StoreSettings
from voice_whisper import engine as engine_module
from voice_whisper import health
from voice_whisper.engine import POLL_INTERVAL_S, Engine, _open_chunk_socket, _Receiver
from voice_whisper.settings import EngineSettings

MIB = 1 << 20
FOUR_SECONDS_OF_64_SESSIONS = 4 * 64 * 16_000 * 2
"""Bytes of 16-bit samples."""


def settings_of(**more: object) -> EngineSettings:
    fixed: dict[str, object] = {"host": "h1", "host_address": "127.0.0.1", "host_kind": "gpu"}
    ports: dict[str, object] = {"chunk_port": 5006, "health_port": 1, "drain_timeout_s": 10}
    return EngineSettings.model_validate(fixed | ports | more)


@pytest.fixture
def engine() -> Engine:
    """An engine that is ready and idle."""
    found: Any = Engine(settings_of(), StoreSettings(host="127.0.0.1", port=1, user="default", tls=False))
    found._transcriber = SimpleNamespace(is_stuck=False, queue_depths=(0, 0), restarts_by_role={"encoder": 1})
    found._admission = Mock(free_slots=3, live_sessions={}, is_closed=False, is_empty=True)
    found._registry, found._batch = AsyncMock(), AsyncMock()
    built: Engine = found
    return built


def make_stuck(engine: Any) -> None:
    engine._transcriber.is_stuck = True


def make_draining(engine: Any) -> None:
    engine._keeper.is_draining = True


def test_an_idle_engine_has_capacity_for_files(engine: Engine) -> None:
    assert engine._find_unready_reason() == ""
    assert engine._has_free_capacity is True


@pytest.mark.parametrize(
    ("free_slots", "queue_depths", "has_capacity"),
    [(2, (0, 0), True), (1, (0, 0), True), (0, (0, 0), False), (1, (1, 0), False), (1, (0, 1), False)],
)
def test_files_wait_for_live_calls(
    engine: Any, free_slots: int, queue_depths: tuple[int, int], has_capacity: bool
) -> None:
    engine._admission.free_slots, engine._transcriber.queue_depths = free_slots, queue_depths
    assert engine._has_free_capacity is has_capacity


@pytest.mark.parametrize(
    ("change", "reason"),
    [(make_stuck, "stuck: there is work, and none of it gets done"), (make_draining, "draining")],
)
def test_an_engine_that_is_not_ready_takes_no_files(
    engine: Engine, change: Callable[[Engine], None], reason: str
) -> None:
    change(engine)
    assert engine._find_unready_reason() == reason
    assert engine._has_free_capacity is False


def test_metrics_are_those_of_the_contract(engine: Any) -> None:
    engine._transcriber.queue_depths = (2, 5)
    assert engine.collect_metrics() == {
        "EncoderQueueDepth": 2,
        "DecoderQueueDepth": 5,
        "FreeSlots": 3,
        "EngineStuck": 0,
        "RealTimeFactor": None,
        "counters": {"malformed": {}, "refused": {}, "dropped": {}, "worker_restarts": {"encoder": 1}},
    }
    make_stuck(engine)
    assert engine.collect_metrics()["EngineStuck"] == 1


@pytest.mark.parametrize(("reason", "status", "body"), [("", 200, "ok"), ("draining", 503, "draining")])
async def test_the_health_port_answers_with_the_reason(reason: str, status: int, body: str) -> None:
    """Queries of a cluster each second leave no lines in the log."""
    server = health.create_server(lambda: reason, lambda: {"FreeSlots": 3})
    assert server.config.access_log is False
    app: Any = server.config.app
    routes = {route.path: route.endpoint for route in app.routes}
    assert routes.keys() == {HEALTH_PATH, ENGINE_METRICS_PATH}
    answer = await routes[HEALTH_PATH](None)
    assert (answer.status_code, answer.body.decode()) == (status, body)
    assert (await routes[ENGINE_METRICS_PATH](None)).body == b'{"FreeSlots":3}'


def test_datagrams_are_counted_for_the_address_of_their_sender() -> None:
    admission = Mock()
    _Receiver(admission).datagram_received(b"chunk", ("10.0.0.9", 5006))
    admission.receive.assert_called_once_with(b"chunk", "10.0.0.9")


class Clock:
    """Time since the start of the machine. It passes only during sleeps, in steps that are exact binary fractions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.5
        self.timeouts: list[float] = []
        self.at: dict[float, Callable[[], None]] = {}
        self.install(monkeypatch)
        monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(engine_module, "POLL_INTERVAL_S", 0.25)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patched = SimpleNamespace(**vars(asyncio) | {"sleep": self.sleep, "timeout": self.timeout})
        monkeypatch.setattr(engine_module, "asyncio", patched)

    async def sleep(self, duration_s: float) -> None:
        self.now += duration_s
        for at in [each for each in self.at if each <= self.now]:
            self.at.pop(at)()

    def timeout(self, duration_s: float) -> asyncio.Timeout:
        self.timeouts.append(duration_s)
        return asyncio.timeout(60)


async def test_a_draining_engine_admits_sessions_until_all_tiers_know(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tiers notice within the three seconds after which a host without heartbeat counts as failed."""
    clock, is_closed = Clock(monkeypatch), dict[float, bool]()

    def look() -> None:
        is_closed[clock.now] = engine._admission.is_closed

    clock.at |= {3.25: look, 3.75: look}
    engine._admission.is_empty = False
    clock.at[5.5] = lambda: setattr(engine._admission, "is_empty", True)
    await engine._drain()
    assert is_closed == {3.25: False, 3.75: True}
    assert engine._keeper.is_draining is True
    assert clock.now == 5.5
    engine._registry.remove.assert_awaited_once_with("h1")
    engine._batch.flush.assert_awaited_once_with()


async def test_an_idle_engine_ends_once_all_tiers_know(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    await engine._drain()
    assert clock.now == 0.5 + 3


async def test_a_draining_engine_looks_for_the_end_ten_times_per_second(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks = Clock(monkeypatch), list[float]()
    monkeypatch.setattr(engine_module, "POLL_INTERVAL_S", POLL_INTERVAL_S)

    async def sleep(duration_s: float) -> None:
        looks.append(duration_s)
        clock.now += 1

    monkeypatch.setattr(clock, "sleep", sleep)
    clock.install(monkeypatch)
    await engine._drain()
    assert looks == [pytest.approx(1 / 10)] * 3


@pytest.mark.parametrize(("delay_s", "ends_at"), [(0, 9.5), (0.125, 9.625)])
async def test_sessions_that_do_not_end_are_left_to_other_hosts(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, delay_s: float, ends_at: float
) -> None:
    """A second of the drain time of ten remains for the registry, half of it for waiting."""
    clock = Clock(monkeypatch)
    clock.at[5.0] = lambda: setattr(clock, "now", clock.now + delay_s)
    engine._admission.is_empty, engine._admission.live_sessions = False, {1: None, 2: None}
    engine._registry.remove.side_effect = TimeoutError("no reply")
    caplog.set_level("INFO")
    await engine._drain()
    assert clock.now == ends_at
    assert clock.timeouts == [0.5]
    assert caplog.messages == [
        "draining: 2 sessions are live",
        "the host could not be removed from the state store: no reply",
        "drained: 2 sessions are left to other hosts",
    ]


@pytest.mark.parametrize(("granted", "is_warned"), [(7 * MIB, True), (8 * MIB, False), (9 * MIB, False)])
def test_a_small_receive_buffer_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, granted: int, is_warned: bool
) -> None:
    """The kernel reports twice the size (socket(7)), which contains four seconds of 64 sessions."""
    receiver = Mock(**{"getsockopt.return_value": 2 * granted})
    monkeypatch.setattr(socket, "socket", lambda *_: receiver)
    assert _open_chunk_socket(settings_of()) is receiver
    ((_, option, size),) = (each.args for each in receiver.setsockopt.call_args_list)
    assert option == socket.SO_RCVBUF
    assert FOUR_SECONDS_OF_64_SESSIONS <= size < 1.1 * FOUR_SECONDS_OF_64_SESSIONS
    receiver.bind.assert_called_once_with(("127.0.0.1", 5006))
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"receive buffer of {granted} bytes instead of {size}"
    ] * is_warned
