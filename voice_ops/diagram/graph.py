"""Defines the contents of a diagram: boxes, edges and scaling signals."""

from dataclasses import dataclass
from enum import StrEnum


class TrafficType(StrEnum):
    """Kind of traffic that an edge represents."""

    AUDIO = "audio"
    CONTROL = "control"
    SUPPORT = "support"


@dataclass(frozen=True)
class Node:
    """A box.

    Attributes:
        id: Unique id in the diagram.
        tier: Stack of the box; boxes of a tier are grouped. ``None`` outside of the deployment.
        lines: Lines of details.
    """

    id: str
    tier: str | None
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """An edge from the side that opens a connection, or sends datagrams, to the receiver.

    Attributes:
        lines: Ports and their purposes, abbreviated.
        purpose: Full purpose, for a tooltip.
    """

    source: str
    target: str
    traffic_type: TrafficType
    lines: tuple[str, ...]
    purpose: str = ""


@dataclass(frozen=True)
class ScalingSignal:
    """A metric that scales a fleet.

    Attributes:
        name: Name of the alarm, or of a policy without an alarm.
        fleet: Node that is scaled.
        metric: Name of the metric that is read.
        condition: Full condition: threshold, statistic, period.
        change: Effect on the fleet.
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
    """A whole diagram.

    Attributes:
        tiers: Title of each tier that has a box.
        notes: Information outside of boxes.
    """

    title: str
    tiers: dict[str, str]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    signals: tuple[ScalingSignal, ...]
    notes: tuple[str, ...] = ()

    def list_tier_nodes(self, tier: str | None) -> list[Node]:
        return [node for node in self.nodes if node.tier == tier]

    def list_fleet_signals(self, fleet: str) -> list[ScalingSignal]:
        return [signal for signal in self.signals if signal.fleet == fleet]
