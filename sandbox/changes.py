"""What a deploy does to a resource, and what is away meanwhile: words that both clouds share."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


class Op(enum.Enum):
    """What happens to a resource."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    SAME = "same"


def describe(ops: Iterable[Op]) -> str:
    """Return a line such as "12 to create, 1 to replace, 3 unchanged"."""
    counts = Counter(ops)
    said = [f"{counts[op]} {'unchanged' if op is Op.SAME else f'to {op.value}'}" for op in Op if counts[op]]
    return ", ".join(said) or "nothing"


@dataclass(frozen=True)
class Outage:
    """A replacement or removal that takes something away.

    Attributes:
        name: Name of the resource, which accepts it.
        label: Its type and name.
        changes: Which settings cannot change in place; none where the resource is deleted.
        down: What is away, and for how long.
        along: How many resources it takes along.
    """

    name: str
    label: str
    changes: tuple[str, ...]
    down: str
    along: int = 0

    def text(self) -> str:
        """What it is, on one line."""
        along = f", and {self.along} resource{'s' * (self.along > 1)} with it" if self.along else ""
        why = f"{', '.join(self.changes)} cannot change in place" if self.changes else "is deleted"
        return f"{self.label}{along}: {why}. Away: {self.down}"
