"""What a picture shows: boxes, arrows between them, and the signals that scale them."""

from dataclasses import dataclass
from enum import StrEnum


class Path(StrEnum):
    """What an arrow carries."""

    AUDIO = "audio"
    CONTROL = "control"
    SUPPORT = "support"


@dataclass(frozen=True)
class Node:
    """A box.

    Attributes:
        id: Unique in the picture.
        tier: The stack that it belongs to; boxes of one tier stand together. ``None``: outside the deployment.
        lines: What to know of it, a line each.
    """

    id: str
    tier: str | None
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """An arrow from who opens a connection, or sends datagrams, to who takes them.

    Attributes:
        lines: Ports and what they are for, in short.
        purpose: The same in full, for a tooltip.
    """

    source: str
    target: str
    path: Path
    lines: tuple[str, ...]
    purpose: str = ""


@dataclass(frozen=True)
class Signal:
    """What changes the size of a fleet.

    Attributes:
        name: Of the alarm, or of the policy that needs no alarm.
        fleet: Node whose size changes.
        metric: Name of the metric that is read.
        condition: When it acts, in full: threshold, statistic, period.
        change: What it does to the fleet.
    """

    name: str
    fleet: str
    metric: str
    condition: str
    change: str

    @property
    def text(self) -> str:
        """Metric, condition and change on one line."""
        return f"{self.metric} {self.condition}: {self.change}"


@dataclass(frozen=True)
class Graph:
    """A whole picture.

    Attributes:
        tiers: Title of each tier that has a box.
        notes: What does not fit into a box.
    """

    title: str
    tiers: dict[str, str]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    signals: tuple[Signal, ...]
    notes: tuple[str, ...] = ()

    def of_tier(self, tier: str | None) -> list[Node]:
        return [node for node in self.nodes if node.tier == tier]

    def signals_of(self, fleet: str) -> list[Signal]:
        return [signal for signal in self.signals if signal.fleet == fleet]
