"""Two ways to let time pass in jumps, so that tests of long waits are fast and exact.

``run_quickly`` replaces the clock of an event loop, and suits code without input and output. ``VirtualTime`` replaces
the pauses of one module, whose tasks may use a real store meanwhile.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    """Advances the time instead of waiting."""

    now = 8.0
    """Shortly after the start of a machine, so that the time doubles within a test."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits, and no timer is running")
        self.now += max(0.0, timeout)
        return super().select(0)


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop without input and output: its time jumps to the next timer."""

    def __init__(self) -> None:
        self._quick_selector = _Selector()
        super().__init__(self._quick_selector)

    def time(self) -> float:
        return self._quick_selector.now


def run_quickly(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a ``QuickLoop``."""
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(main)


class VirtualTime:
    """The pauses of a module's tasks, which end when the test advances the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
        self.now = 0.0
        self._pauses: list[tuple[float, asyncio.Future[None]]] = []
        names = {name: getattr(asyncio, name) for name in asyncio.__all__} | {"sleep": self._pause}
        monkeypatch.setattr(f"{module}.asyncio", SimpleNamespace(**names))

    async def _pause(self, duration_s: float) -> None:
        assert duration_s >= 0
        ended = asyncio.get_running_loop().create_future()
        self._pauses.append((self.now + duration_s, ended))
        await ended

    async def run_for(self, duration_s: float) -> None:
        """Advance the time, and let tasks run at the end of each pause."""
        end = self.now + duration_s + 1e-6
        await self.settle()
        while due := sorted((at, number) for number, (at, _) in enumerate(self._pauses) if at <= end):
            self.now, number = max(self.now, due[0][0]), due[0][1]
            _, ended = self._pauses.pop(number)
            if not ended.done():
                ended.set_result(None)
            await self.settle()
        self.now = end - 1e-6

    @staticmethod
    async def settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
