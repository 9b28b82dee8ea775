"""Reports the goals of a benchmark. If a goal is missed, the exit code is 1.

`bench.vad` runs in its own environment, so this module imports only the standard library.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A measured value and its limit.

    Attributes:
        value: The measured value. NaN means that there is no measurement, so the goal is missed.
        unit: Unit of value and limit, with a leading space.
        is_minimum: Whether the limit is a minimum. Otherwise, the limit is a maximum.
    """

    name: str
    value: float
    limit: float
    unit: str = ""
    is_minimum: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the value is within the limit."""
        return self.value >= self.limit if self.is_minimum else self.value <= self.limit

    def __str__(self) -> str:
        verdict, bound = "holds" if self.is_met else "MISSED", "at least" if self.is_minimum else "at most"
        return f"{verdict:6}  {self.name}: {self.value:,.4g}{self.unit}, {bound} {self.limit:,.4g}{self.unit}"


def report_goals(goals: Iterable[Goal]) -> None:
    """Print each goal, and exit if a goal is missed.

    Raises:
        ValueError: There are no goals.
        SystemExit: A goal is missed. The exit status is 1.
    """
    judged = list(goals)
    if not judged:
        raise ValueError("a benchmark requires at least one goal")
    for goal in judged:
        print(goal, flush=True)
    if not all(goal.is_met for goal in judged):
        raise SystemExit(1)
