"""The search for the most streams that a contestant sustains."""

from dataclasses import dataclass, field

from bench.voice.step import Step


@dataclass
class Search:
    """Doubles the load until it is too much, then halves the gap.

    Attributes:
        next: The load to try.
        sustained: Most streams that were sustained.
        too_many: Fewest that were not; ``None`` while all were.
    """

    next: int
    sustained: int = 0
    too_many: int | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether one stream more was too much."""
        return self.too_many is not None and self.too_many - self.sustained <= 1

    def take(self, step: Step) -> None:
        """Learn from a load."""
        self.steps.append(step)
        if step.is_sustained:
            self.sustained = step.streams
        else:
            self.too_many = step.streams
        self.next = 2 * self.sustained if self.too_many is None else (self.sustained + self.too_many) // 2
