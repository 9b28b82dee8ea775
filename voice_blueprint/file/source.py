"""Location of a value in a deployment file."""

from dataclasses import dataclass, field
from pathlib import Path

Location = tuple[str | int, ...]
"""Keys and list indices from the top of the file down to a value."""


@dataclass(frozen=True)
class SourceMap:
    """Line numbers of all values in a file."""

    file: Path = Path("<deployment>")
    lines: dict[Location, int] = field(default_factory=dict)

    def find_line(self, location: Location) -> int | None:
        """Return the line of a value, or of the nearest enclosing value in the file."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return None
