"""Cloud-independent description of dashboards. Each cloud has its own type of series and its own format."""

from dataclasses import dataclass
from typing import Generic, TypeVar

SeriesT = TypeVar("SeriesT")
"""Content of a graph: a CloudWatch series, or a Prometheus query."""

MINUTE_S = 60


@dataclass(frozen=True)
class Panel(Generic[SeriesT]):
    """A graph.

    Attributes:
        period_s: Seconds per datapoint, at least the metrics' resolution.
        is_stacked: Whether the series are parts of a sum.
    """

    title: str
    series: tuple[SeriesT, ...]
    period_s: int = MINUTE_S
    is_stacked: bool = False


@dataclass(frozen=True)
class Dashboard(Generic[SeriesT]):
    """A page of graphs.

    Attributes:
        topic: A tier, or ``overview``; the last part of the dashboard's name.
        description: Description as Markdown.
        alarms: Names of the alarms whose state is shown at the top.
        panels: Graphs in reading order; a graph without series is omitted.
    """

    topic: str
    description: str
    alarms: tuple[str, ...]
    panels: tuple[Panel[SeriesT], ...]
