"""Sends frames in real time, regardless of when they arrive."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from voice_gateway.rtp import BYE, COMMIT, FRAME_MS

FRAME_S = FRAME_MS / 1000
MAX_BUFFER_S = 300.0
"""Maximum time by which a caller may be ahead of real time, such as with a recording that is sent at once, or after a
page was in the background. OpenAI and Deepgram buffer minutes as well."""
MAX_REDUCED_BUFFER_S = 5.0
"""Maximum time per caller while the audio from all callers together exceeds the backlog limit."""
MAX_BACKLOG_BYTES = 256 << 20
"""Maximum audio that a gateway buffers for all callers together, which corresponds to 27 callers with a full buffer."""
_BUFFER_FRAMES, _REDUCED_BUFFER_FRAMES = (round(each / FRAME_S) for each in (MAX_BUFFER_S, MAX_REDUCED_BUFFER_S))

MAX_CATCH_UP_S = 0.2
"""Maximum delay of frames that are sent immediately to catch up. A longer delay shifts all following frames."""

MAX_STORED_SEND_TIMES = 3000
"""Maximum number of stored send times: one minute of frames. They are only needed for an utterance that has just
ended."""

NOTICES = frozenset({BYE, COMMIT})


class Backlog:
    """Buffered audio of all pacers in a process.

    Attributes:
        waiting_bytes: Total size of the buffered audio.
    """

    def __init__(self, max_bytes: int = MAX_BACKLOG_BYTES) -> None:
        self._max_bytes = max_bytes
        self.waiting_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether all callers together have reached the limit."""
        return self.waiting_bytes >= self._max_bytes


class Pacer:
    """A bounded queue that sends a frame every 20 ms.

    The queue uses timers instead of tasks, since a thousand sockets need fifty thousand timers per second.
    """

    def __init__(self, send: Callable[[bytes], bool], backlog: Backlog) -> None:
        self._send = send
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._frames: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = self._loop.time() + FRAME_S
        self._changed = asyncio.Event()
        self._sent_count = 0
        self._sent_at: deque[float] = deque(maxlen=MAX_STORED_SEND_TIMES)

    def put(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._frames.append(frame)
            self._backlog.waiting_bytes += len(frame)
        if self._timer is None and self._frames:
            now = self._loop.time()
            self._due_at = max(self._due_at, now)
            if self._due_at <= now + FRAME_S:
                self._tick()  # audio in real time needs no timer, which would cost a third of the CPU time per frame
            else:
                self._timer = self._loop.call_at(self._due_at, self._tick)

    def clear(self) -> int:
        """Remove the frames after the last notice, and return their number."""
        dropped = 0
        while self._frames and self._frames[-1] not in NOTICES:
            self._backlog.waiting_bytes -= len(self._frames.pop())
            dropped += 1
        self._stop_if_empty()
        return dropped

    @property
    def is_empty(self) -> bool:
        """Whether all frames have been sent."""
        return not self._frames

    @property
    def is_full(self) -> bool:
        """Whether the caller has reached its limit."""
        return len(self._frames) >= (_REDUCED_BUFFER_FRAMES if self._backlog.is_full else _BUFFER_FRAMES)

    async def wait_until_not_full(self) -> None:
        while self.is_full:
            await self._wait_for_change()

    async def wait_until_empty(self) -> None:
        """Wait until all frames have been sent."""
        while self._frames:
            await self._wait_for_change()

    def get_sent_time(self, frame_number: int) -> float | None:
        """Return the loop's time at which a frame was sent. Frames are counted from 0.

        The result is ``None`` if the frame has not been sent, or if its time is no longer stored.
        """
        frames_ago = self._sent_count - frame_number
        return self._sent_at[-frames_ago] if 0 < frames_ago <= len(self._sent_at) else None

    def close(self) -> None:
        """Stop sending, and discard the remaining frames."""
        self._backlog.waiting_bytes -= sum(map(len, self._frames))
        self._frames.clear()
        self._stop_if_empty()

    def _stop_if_empty(self) -> None:
        if not self._frames and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._changed.set()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._due_at = max(self._due_at, now - MAX_CATCH_UP_S) + FRAME_S
        if self._send(self._frames[0]):
            self._backlog.waiting_bytes -= len(self._frames.popleft())
            self._sent_count += 1
            self._sent_at.append(now)
            self._changed.set()
        if self._frames:
            self._timer = self._loop.call_at(self._due_at, self._tick)
