"""Searches for the maximum number of streams that a contestant sustains."""

from dataclasses import dataclass, field

from bench.voice.step import LoadResult


@dataclass
class LoadSearch:
    """Doubles the load until it is excessive, and then uses a binary search.

    Attributes:
        next_streams: Number of streams to try next.
        max_sustained_streams: Maximum sustained number of streams.
        min_excessive_streams: Minimum excessive number of streams; ``None`` if every load so far was sustained.
    """

    next_streams: int
    max_sustained_streams: int = 0
    min_excessive_streams: int | None = None
    results: list[LoadResult] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the maximum is known."""
        return self.min_excessive_streams is not None and self.min_excessive_streams - self.max_sustained_streams <= 1

    def record(self, step: LoadResult) -> None:
        """Record the result of a load, and determine the next load."""
        self.results.append(step)
        if step.is_sustained:
            self.max_sustained_streams = step.streams
        else:
            self.min_excessive_streams = step.streams
        self.next_streams = (
            2 * self.max_sustained_streams
            if self.min_excessive_streams is None
            else (self.max_sustained_streams + self.min_excessive_streams) // 2
        )
