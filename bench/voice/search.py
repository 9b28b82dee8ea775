"""The search for the maximum number of streams that a contestant sustains."""

from dataclasses import dataclass, field

from bench.voice.step import Step


@dataclass
class Search:
    """Doubles the load until it is excessive, then uses a binary search.

    Attributes:
        next: The load to try.
        sustained: Maximum sustained number of streams.
        too_many: Minimum excessive number; ``None`` if there is none yet.
    """

    next: int
    sustained: int = 0
    too_many: int | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the limit is found."""
        return self.too_many is not None and self.too_many - self.sustained <= 1

    def take(self, step: Step) -> None:
        """Process the result of a load."""
        self.steps.append(step)
        if step.is_sustained:
            self.sustained = step.streams
        else:
            self.too_many = step.streams
        self.next = 2 * self.sustained if self.too_many is None else (self.sustained + self.too_many) // 2
