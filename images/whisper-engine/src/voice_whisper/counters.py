"""What the engine counts; ``GET /metrics.json`` shows it."""

from collections import Counter, deque
from typing import Any

RATE_OVER_S = 60.0


class Counters:
    """Counts since the start, by reason where there are several.

    Attributes:
        malformed: Datagrams that are no chunks.
        refused: Datagrams of sessions that are not let in.
        dropped: Chunks of sessions that are let in, but that are not heard.
        events: Everything else.
    """

    def __init__(self) -> None:
        self.malformed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._work: deque[tuple[float, float, float]] = deque()

    def worked(self, now: float, processing_s: float, audio_s: float = 0.0) -> None:
        """Take note of a transcript, of what it took, and of the audio that it finishes: none, if it is partial."""
        self._work.append((now, processing_s, audio_s))

    def real_time_factor(self, now: float) -> float | None:
        """Return processing time over audio time of the last minute; ``None`` when nothing was said."""
        while self._work and now - self._work[0][0] > RATE_OVER_S:
            self._work.popleft()
        audio_s = sum(audio for _, _, audio in self._work)
        return sum(processing for _, processing, _ in self._work) / audio_s if audio_s else None

    def shown(self) -> dict[str, Any]:
        return {"malformed": self.malformed, "refused": self.refused, "dropped": self.dropped, **self.events}
