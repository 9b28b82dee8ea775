"""Frames leave in real time; how they leave from a socket is in test_audio_socket.py."""

import asyncio
import heapq
from collections.abc import Callable

import pytest

from voice_gateway.pacer import CATCH_UP_S, FRAME_S, Pacer
from voice_gateway.rtp import COMMIT


async def test_the_frame_of_a_caller_in_real_time_waits_for_no_timer() -> None:
    sent: list[bytes] = []

    def send(frame: bytes) -> bool:
        sent.append(frame)
        return True

    pacer = Pacer(send)
    pacer.put([b"1", b"2", b"3"])
    assert sent == [b"1"]
    await pacer.empty()
    assert sent == [b"1", b"2", b"3"]


def test_what_is_no_audio_delays_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent commits after each question; each commit that took a frame's time would stay on the call for ever."""
    clock = Clock()
    left: list[tuple[float, bytes]] = []
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)

    def send(frame: bytes) -> bool:
        left.append((round(clock.now, 3), frame))
        return True

    pacer = Pacer(send)
    for number in range(200):
        clock.run_until((number + 1) * FRAME_S)
        pacer.put([b"frame"])
        if number % 10 == 9:
            pacer.put([COMMIT])
    assert [at for at, frame in left if frame == COMMIT] == [
        round((number + 1) * 10 * FRAME_S, 3) for number in range(20)
    ]
    assert len(left) == 220
    assert pacer.sent_at(99) == pytest.approx(100 * FRAME_S), "a frame's time is asked for by its place in the audio"


class Clock:
    """A loop whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now, self._made = 0.0, 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> object:
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, call))
        return self

    def run_until(self, when: float) -> None:
        while self._timers and self._timers[0][0] <= when:
            at, _, call = heapq.heappop(self._timers)
            self.now = max(self.now, at)
            call()
        self.now = when


@pytest.mark.parametrize("stalls", ["caller", "host"])
def test_a_stall_delays_the_caller_for_no_longer_than_it_takes_to_make_up_for_it(
    stalls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second of it: nothing comes, and then all at once; or all comes, and nobody takes it."""
    clock = Clock()
    left: list[float] = []
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    stall = range(50, 100)

    def send(_: bytes) -> bool:
        takes = not (stalls == "host" and round(clock.now / FRAME_S) in stall)
        left.extend([clock.now] * takes)
        return takes

    pacer = Pacer(send)
    for number in range(200):
        clock.run_until((number + 1) * FRAME_S)
        if stalls == "host" or number not in stall:
            pacer.put([b"frame"] * (len(stall) + 1 if stalls == "caller" and number == stall.stop else 1))
    assert len(left) == 200, "audio still waits two seconds after a stall of one"
    for first, later in zip(left, left[20:], strict=False):
        assert later - first >= 20 * FRAME_S / 2 - CATCH_UP_S, "the VAD tier takes four times real time"
    assert all(at >= number * FRAME_S for number, at in enumerate(left)), "a frame leaves before it can be spoken"
