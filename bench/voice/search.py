"""Searches for the maximum number of streams that a contestant sustains."""

from dataclasses import dataclass, field

from bench.voice.step import Step


@dataclass
class Search:
    """Doubles the load until it is excessive, and then uses a binary search.

    Attributes:
        next: Number of streams to try next.
        sustained: Maximum sustained number of streams.
        too_many: Minimum excessive number of streams; ``None`` if every load so far was sustained.
    """

    next: int
    sustained: int = 0
    too_many: int | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the maximum is known."""
        return self.too_many is not None and self.too_many - self.sustained <= 1

    def record(self, step: Step) -> None:
        """Record the result of a load, and determine the next load."""
        self.steps.append(step)
        if step.is_sustained:
            self.sustained = step.streams
        else:
            self.too_many = step.streams
        self.next = 2 * self.sustained if self.too_many is None else (self.sustained + self.too_many) // 2
