"""Errors that are answers: where the value stands, what is wrong with it, what to do."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a deployment file.

    Attributes:
        file: The file.
        line: Line in it, from 1; ``None`` where no line is to blame.
        message: What is wrong, with the value, and what to do.
    """

    file: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else f"{self.file}"
        return f"{place}: {self.message}"


class DeploymentFileError(Exception):
    """A deployment file that cannot be read as a deployment, with every problem found in it."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
