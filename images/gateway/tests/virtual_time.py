"""Pauses of a task that last as long as the test says."""

import asyncio
from types import SimpleNamespace

import pytest


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
