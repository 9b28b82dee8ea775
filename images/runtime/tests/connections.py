"""A transport and a loop for protocols that tests drive step by step."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any


class FakeTransport(asyncio.Transport):
    """A connection whose client reads only what a test says."""

    def __init__(self, peer: tuple[str, int] = ("10.0.0.9", 4711)) -> None:
        super().__init__({"peername": peer})
        self.unread_bytes = 0
        self.written = b""
        self.limits_bytes: tuple[int | None, int | None] = (None, None)
        self.is_reading_now = True
        self.is_closed = self.is_aborted = False
        self.protocol: asyncio.BaseProtocol | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits_bytes = (low, high)

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol
        return self.protocol


class Timer:
    """A call that a test makes when it likes."""

    def __init__(self, delay_s: float, call: Callable[[], object]) -> None:
        self.delay_s = delay_s
        self.fire = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """The running loop, whose timers wait for the test."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        self.timers.append(Timer(delay_s, lambda: callback(*args)))
        return self.timers[-1]

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Timer:
        return self.call_later(0, callback, *args)

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)

    def time(self) -> float:
        return 0.0

    @property
    def delays_s(self) -> list[float]:
        """Delays of the timers that are waiting."""
        return [timer.delay_s for timer in self.timers if not timer.is_cancelled]

    def fire(self, within_s: float = math.inf) -> None:
        """Make the calls that are waiting, if their delay is not longer."""
        waiting = [timer for timer in self.timers if not timer.is_cancelled]
        self.timers = [timer for timer in waiting if timer.delay_s > within_s]
        for timer in waiting:
            if timer.delay_s <= within_s and not timer.is_cancelled:
                timer.fire()
