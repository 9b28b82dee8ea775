"""Frames are sent in real time; test_audio_socket.py covers sockets."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from voice_gateway.pacer import MAX_REDUCED_BUFFER_S, Backlog, Pacer
from voice_gateway.rtp import COMMIT, FRAME_MS


class Clock:
    """An event loop's clock and timers, which only run when the test advances them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, due_at: float, callback: Callable[[], None]) -> SimpleNamespace:
        timer = (due_at, callback)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def run_for(self, duration_s: float) -> None:
        """Advance the time, and run each timer when it is due."""
        end = self.now + duration_s
        while self.timers and min(self.timers)[0] <= end:
            timer = min(self.timers)
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = end

    def block_for(self, duration_s: float) -> None:
        """Advance the time without running timers."""
        self.now += duration_s


class Paced:
    """A pacer with a clock of its own, and the times at which it sent frames, milliseconds from its start."""

    def __init__(self, clock: Clock, backlog: Backlog | None = None) -> None:
        self.clock, self._begin = clock, clock.now
        self.sent: list[tuple[int, bytes]] = []
        self.has_host = True
        self.backlog = backlog or Backlog()
        self.pacer = Pacer(self._send, self.backlog)

    def _send(self, frame: bytes) -> bool:
        if self.has_host:
            self.sent.append((round(1000 * (self.clock.now - self._begin)), frame))
        return self.has_host

    @property
    def times_ms(self) -> list[int]:
        return [at for at, _ in self.sent]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    loop = SimpleNamespace(get_running_loop=lambda: found, Event=asyncio.Event)
    monkeypatch.setattr("voice_gateway.pacer.asyncio", loop)
    return found


async def test_frames_of_a_real_time_caller_are_not_delayed() -> None:
    sent: list[bytes] = []

    def send(frame: bytes) -> bool:
        sent.append(frame)
        return True

    pacer = Pacer(send, Backlog())
    pacer.put([b"1", b"2", b"3"])
    assert sent == [b"1"]
    await pacer.wait_until_empty()
    assert sent == [b"1", b"2", b"3"]


async def test_each_frame_has_its_send_time() -> None:
    left: list[float] = []
    loop = asyncio.get_running_loop()

    def send(_: bytes) -> bool:
        left.append(loop.time())
        return True

    pacer = Pacer(send, Backlog())
    pacer.put([b"frame"] * 5)
    await pacer.wait_until_empty()
    times = [pacer.get_sent_time(frame) for frame in range(5)]
    for before, at, after in zip([0.0, *left], times, left, strict=False):
        assert at is not None
        assert before < at <= after
    assert pacer.get_sent_time(5) is None
    pacer.close()


async def test_audio_after_the_last_commit_can_be_cleared() -> None:
    sent: list[bytes] = []

    def send(frame: bytes) -> bool:
        sent.append(frame)
        return True

    pacer = Pacer(send, Backlog())
    pacer.put([b"1", b"2", COMMIT, b"3", b"4"])
    assert pacer.clear() == 2
    assert pacer.clear() == 0
    await pacer.wait_until_empty()
    assert sent == [b"1", b"2", COMMIT]


async def test_the_total_backlog_of_all_callers_is_limited() -> None:
    """Each caller may be minutes ahead, until all together have filled the gateway.

    A few seconds each are always permitted.
    """
    frame, kept = bytes(640), round(1000 * MAX_REDUCED_BUFFER_S / FRAME_MS)
    backlog = Backlog(max_bytes=640 * (2 * kept - 1))
    first, second = (Pacer(lambda _: True, backlog) for _ in range(2))
    first.put([frame] * (kept + 1))
    assert not first.is_full
    second.put([frame] * kept)
    assert first.is_full
    first.close()
    assert not second.is_full
    second.close()
    assert backlog.waiting_bytes == 0


async def test_a_frame_is_sent_every_20_ms(clock: Clock) -> None:
    paced = Paced(clock)
    clock.run_for(0.02)
    paced.pacer.put([b"1", b"2", b"3", b"4"])
    clock.run_for(1)
    assert paced.sent == [(20, b"1"), (40, b"2"), (60, b"3"), (80, b"4")]
    assert paced.pacer.is_empty
    assert not clock.timers


async def test_frames_in_real_time_need_no_timer(clock: Clock) -> None:
    """A frame may be up to 20 ms early; it is the next frame's turn then."""
    paced = Paced(clock)
    for number in range(5):
        paced.pacer.put([bytes([number])])
        assert not clock.timers
        clock.run_for(0.02)
    assert paced.times_ms == [0, 20, 40, 60, 80]


async def test_a_frame_that_is_more_than_20_ms_early_waits(clock: Clock) -> None:
    paced = Paced(clock)
    for frame in (b"1", b"2", b"3"):
        paced.pacer.put([frame])
    clock.run_for(1)
    assert paced.sent == [(0, b"1"), (40, b"2"), (60, b"3")]


async def test_after_a_pause_frames_are_again_sent_in_real_time(clock: Clock) -> None:
    """The pause is no delay that would have to be made up for."""
    paced = Paced(clock)
    paced.pacer.put([b"1"])
    clock.run_for(1)
    paced.pacer.put([b"2", b"3"])
    clock.run_for(1)
    assert paced.times_ms == [0, 1000, 1020]


@pytest.mark.parametrize(
    ("delay_ms", "at_once", "following_ms"), [(100, 5, [20, 40]), (200, 10, [20, 40]), (1000, 11, [20, 40])]
)
async def test_delayed_frames_are_sent_at_once_up_to_a_fifth_of_a_second(
    clock: Clock, delay_ms: int, at_once: int, following_ms: list[int]
) -> None:
    """Frames that a busy process has delayed by more are sent later, each 20 ms after the one before."""
    paced = Paced(clock)
    clock.run_for(0.02)
    paced.pacer.put([b"frame"] * 14)
    clock.block_for(delay_ms / 1000)
    resumed_ms = 20 + delay_ms
    clock.run_for(0.001)
    assert len(paced.sent) - 1 == at_once
    clock.run_for(0.05)
    assert paced.times_ms[1 + at_once :] == [resumed_ms + each for each in following_ms]


async def test_a_frame_without_a_host_is_sent_again_20_ms_later(clock: Clock) -> None:
    paced = Paced(clock)
    paced.has_host = False
    paced.pacer.put([b"one", b"two"])
    clock.run_for(0.05)
    assert paced.backlog.waiting_bytes == 6
    assert paced.pacer.get_sent_time(0) is None
    paced.has_host = True
    clock.run_for(0.05)
    assert paced.sent == [(60, b"one"), (80, b"two")]
    assert paced.backlog.waiting_bytes == 0


async def test_send_times_of_the_last_minute_are_known(clock: Clock) -> None:
    paced = Paced(clock)
    paced.pacer.put([b"frame"] * 3001)
    clock.run_for(61)
    assert len(paced.sent) == 3001
    for frame in (1, 2, 2999, 3000):
        sent_at = paced.pacer.get_sent_time(frame)
        assert sent_at is not None
        assert round(1000 * (sent_at - 1000)) == paced.times_ms[frame]
    assert paced.pacer.get_sent_time(0) is None, "more than a minute ago"
    assert paced.pacer.get_sent_time(3001) is None, "not sent yet"
    assert paced.pacer.get_sent_time(3100) is None


async def test_a_caller_may_be_five_minutes_ahead(clock: Clock) -> None:
    paced = Paced(clock)
    paced.has_host = False
    paced.pacer.put([b"x"] * (300 * 50 - 1))
    assert not paced.pacer.is_full
    paced.pacer.put([b"x"])
    assert paced.pacer.is_full
    waiting = asyncio.create_task(paced.pacer.wait_until_not_full())
    await asyncio.sleep(0)
    assert not waiting.done()
    paced.has_host = True
    clock.run_for(0.04)
    await waiting


@pytest.mark.parametrize(("waiting_bytes", "is_full"), [(2**28 - 1, False), (2**28, True), (2**28 + 640, True)])
async def test_a_gateway_buffers_256_mib_for_all_callers(clock: Clock, waiting_bytes: int, is_full: bool) -> None:
    """The limit in docs/security.md, above which each caller may be five seconds ahead."""
    backlog = Backlog()
    assert backlog.waiting_bytes == 0
    backlog.waiting_bytes = waiting_bytes
    assert backlog.is_full is is_full
    paced = Paced(clock, backlog)
    paced.has_host = False
    paced.pacer.put([b""] * 249)
    assert not paced.pacer.is_full
    paced.pacer.put([b""])
    assert paced.pacer.is_full is is_full


async def test_cleared_audio_is_no_longer_buffered(clock: Clock) -> None:
    paced = Paced(clock)
    paced.pacer.put([b"sent", COMMIT, b"one", b"two"])
    assert paced.pacer.clear() == 2
    assert paced.backlog.waiting_bytes == len(COMMIT)
    waiting = asyncio.create_task(paced.pacer.wait_until_empty())
    await asyncio.sleep(0)
    assert not waiting.done(), "the notice is still to be sent"
    clock.run_for(1)
    await waiting
    assert [frame for _, frame in paced.sent] == [b"sent", COMMIT]


async def test_clearing_all_audio_ends_the_wait_for_it(clock: Clock) -> None:
    paced = Paced(clock)
    paced.pacer.put([b"sent", b"one", b"two"])
    waiting = asyncio.create_task(paced.pacer.wait_until_empty())
    await asyncio.sleep(0)
    assert paced.pacer.clear() == 2
    await waiting
    assert not clock.timers
    clock.run_for(0.04)
    paced.pacer.put([b"next"])
    assert paced.sent == [(0, b"sent"), (40, b"next")]


async def test_a_closed_pacer_sends_nothing_more(clock: Clock) -> None:
    paced = Paced(clock)
    paced.pacer.put([b"sent", b"one", COMMIT])
    assert not paced.pacer.is_empty
    paced.pacer.close()
    clock.run_for(1)
    assert paced.times_ms == [0]
    assert paced.backlog.waiting_bytes == 0
    await paced.pacer.wait_until_empty()
