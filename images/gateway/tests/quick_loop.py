"""An event loop whose time passes in jumps, so that tests of long waits are fast and exact."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

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
