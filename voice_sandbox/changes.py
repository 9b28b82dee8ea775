"""Operations by a deployment on resources, and the resulting outages, for both clouds."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


class OpType(enum.Enum):
    """Operation on a resource."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    SAME = "same"


def summarize_operations(ops: Iterable[OpType]) -> str:
    """Summarize operations in a line such as "12 to create, 1 to replace, 3 unchanged"."""
    counts = Counter(ops)
    parts = [f"{counts[op]} {'unchanged' if op is OpType.SAME else f'to {op.value}'}" for op in OpType if counts[op]]
    return ", ".join(parts) or "nothing"


@dataclass(frozen=True)
class Outage:
    """A replacement or deletion that causes an outage.

    Attributes:
        name: Name of the resource, which an operator specifies to accept the outage.
        label: Type and name of the resource.
        changes: Settings that cannot change in place; empty for a deletion.
        down: The affected service, and the duration of the outage.
        also_replaced: Number of other resources that are replaced together with this one.
        is_removed: Whether the resource was removed from the file and a deployment does not change it. In this case,
            ``down`` contains the required action.
    """

    name: str
    label: str
    changes: tuple[str, ...]
    down: str
    also_replaced: int = 0
    is_removed: bool = False

    def format_summary(self) -> str:
        """Return a one-line description."""
        if self.is_removed:
            return f"{self.label} was removed from the file: {self.down}"
        more = (
            (f", and {self.also_replaced} resource{'s' * (self.also_replaced > 1)} with it")
            if self.also_replaced
            else ""
        )
        reason = f"{', '.join(self.changes)} cannot change in place" if self.changes else "is deleted"
        return f"{self.label}{more}: {reason}. Unavailable: {self.down}"
