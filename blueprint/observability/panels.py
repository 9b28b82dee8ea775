"""A dashboard as data; each cloud has lines of its own kind, and draws them in its own format."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Line = TypeVar("Line")
"""What a graph draws: a CloudWatch series, or a Prometheus query."""

MINUTE_S = 60


@dataclass(frozen=True)
class Panel(Generic[Line]):
    """One graph.

    Attributes:
        period_s: Seconds a point, no less than the metrics' resolution.
        stacked: Whether series are parts of a whole.
    """

    title: str
    series: tuple[Line, ...]
    period_s: int = MINUTE_S
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard(Generic[Line]):
    """A page of graphs.

    Attributes:
        topic: A tier, or ``overview``; last part of the dashboard's name.
        about: What one sees here, as Markdown.
        alarms: Names of the alarms whose state its head shows.
        panels: In reading order; one without series, for want of such a fleet, is left out.
    """

    topic: str
    about: str
    alarms: tuple[str, ...]
    panels: tuple[Panel[Line], ...]
