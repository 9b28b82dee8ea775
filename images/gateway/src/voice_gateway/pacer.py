"""Lets frames out in real time, however they come in."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from voice_gateway.rtp import FRAME_MS

FRAME_S = FRAME_MS / 1000
BUFFER_S = 5.0
"""How far a caller may be ahead of real time: a network that stalled, or a page that was in the background."""
_BUFFER_FRAMES = int(BUFFER_S / FRAME_S)

CATCH_UP_S = 0.2
"""Frames that are late by less go out at once; a longer delay shifts all that follow."""

REMEMBERED_FRAMES = 3000
"""A minute; what asks when a frame was sent asks about an utterance that has just ended."""


class Pacer:
    """A bounded queue of frames, one of which leaves every 20 ms.

    Timers and no task: a thousand sockets make fifty thousand of them a second.
    """

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._frames: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._loop.time() + FRAME_S
        self._changed = asyncio.Event()
        self._sent = 0
        self._sent_at: deque[float] = deque(maxlen=REMEMBERED_FRAMES)

    def put(self, frames: Iterable[bytes]) -> None:
        self._frames.extend(frames)
        if self._timer is None and self._frames:
            now = self._loop.time()
            self._due = max(self._due, now)
            if self._due <= now + FRAME_S:
                self._tick()  # a caller in real time needs no timer, which would be a third of what its frames cost
            else:
                self._timer = self._loop.call_at(self._due, self._tick)

    @property
    def is_full(self) -> bool:
        """Whether the caller is ahead as far as it may be."""
        return len(self._frames) >= _BUFFER_FRAMES

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.is_full:
            await self._change()

    async def empty(self) -> None:
        """Wait until everything is sent."""
        while self._frames:
            await self._change()

    def sent_at(self, frame: int) -> float | None:
        """Return the loop's time at which a frame left, counted from 0; ``None`` when it has not or is forgotten."""
        behind = self._sent - frame
        return self._sent_at[-behind] if 0 < behind <= len(self._sent_at) else None

    def close(self) -> None:
        """Send nothing more."""
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._due = max(self._due, now - CATCH_UP_S) + FRAME_S
        if self._send(self._frames[0]):
            self._frames.popleft()
            self._sent += 1
            self._sent_at.append(now)
            self._changed.set()
        if self._frames:
            self._timer = self._loop.call_at(self._due, self._tick)
