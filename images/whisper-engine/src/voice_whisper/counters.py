"""Counters of the engine, shown by ``GET /metrics.json``."""

from collections import Counter, deque
from typing import Any

RATE_WINDOW_S = 60.0


class Counters:
    """Counters since the start of the engine, by reason if there are several reasons.

    Attributes:
        malformed: Invalid datagrams.
        refused: Datagrams of sessions that are not admitted.
        dropped: Chunks of admitted sessions that are not transcribed.
        events: All other events.
    """

    def __init__(self) -> None:
        self.malformed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._work: deque[tuple[float, float, float]] = deque()

    def record_work(self, now: float, processing_s: float, audio_s: float = 0.0) -> None:
        """Record a transcript with its processing time, and the audio that it completes (0 for a partial)."""
        self._work.append((now, processing_s, audio_s))

    def calculate_real_time_factor(self, now: float) -> float | None:
        """Return the ratio of processing time to audio time in the last minute, or ``None`` without speech."""
        while self._work and now - self._work[0][0] > RATE_WINDOW_S:
            self._work.popleft()
        audio_s = sum(audio for _, _, audio in self._work)
        return sum(processing for _, processing, _ in self._work) / audio_s if audio_s else None

    def as_dict(self) -> dict[str, Any]:
        return {"malformed": self.malformed, "refused": self.refused, "dropped": self.dropped, **self.events}
