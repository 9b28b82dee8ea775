"""Errors with location, problem and remedy."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FileProblem:
    """A problem in a deployment file.

    Attributes:
        file: The file.
        line: Line number, starting at 1; ``None`` if no line applies.
        message: The problem, with the value and the remedy.
    """

    file: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}" if self.line else f"{self.file}"
        return f"{location}: {self.message}"


class DeploymentFileError(Exception):
    """A deployment file that cannot be loaded, with all of its problems."""

    def __init__(self, problems: list[FileProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class SettingError(ValueError):
    """An error in a section that is reported at one of its settings.

    Attributes:
        location: Keys and indices from the section down to the setting.
    """

    def __init__(self, location: tuple[str | int, ...], message: str) -> None:
        self.location = location
        super().__init__(message)
