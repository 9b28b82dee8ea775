"""Where a value stands in a deployment file."""

from dataclasses import dataclass, field
from pathlib import Path

Location = tuple[str | int, ...]
"""Keys and list indices from the top of the file down to a value."""


@dataclass(frozen=True)
class SourceMap:
    """The line of every value of one file."""

    file: Path = Path("<deployment>")
    lines: dict[Location, int] = field(default_factory=dict)

    def line(self, location: Location) -> int | None:
        """Return the line of a value, or of the nearest thing around it that the file spells out."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return None
