"""What a preflight answers: rows of what was asked, what was found, what is needed and what to do."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from rich import box
from rich.console import Console
from rich.markup import escape

from ops.output import WholeTable


class Status(StrEnum):
    """What an answer means for the deploy."""

    FINE = "fine"
    WARNING = "warning"
    """The deploy works; something will be in its way later, or the catalogue is out of date."""
    BLOCKS = "blocks"
    UNANSWERED = "unanswered"
    """It was asked and the cloud did not say: denied, throttled, not reached."""
    NOT_ASKED = "not asked"
    """There are no credentials, or an earlier answer makes the question meaningless."""

    @property
    def fails(self) -> bool:
        """Whether the preflight exits with 1 for it."""
        return self in {Status.BLOCKS, Status.UNANSWERED}


MARKS = {
    Status.FINE: "[green]✓[/]",
    Status.WARNING: "[yellow]![/]",
    Status.BLOCKS: "[red]✗[/]",
    Status.UNANSWERED: "[red]?[/]",
    Status.NOT_ASKED: "[dim]-[/]",
}


class IncreaseError(Exception):
    """A cloud did not take a request for an increase; the text says why and what to do."""


@dataclass(frozen=True)
class Increase:
    """An increase of one quota that would help and that nobody has requested yet.

    Attributes:
        quota: The quota as its cloud names it.
        limit: Its limit now.
        desired: The limit to ask for.
        file: Files the request with the cloud and returns what it says; raises `IncreaseError`.
    """

    quota: str
    limit: int
    desired: int
    file: Callable[[], str]


@dataclass(frozen=True)
class Row:
    """One answer."""

    area: str
    asked: str
    status: Status
    found: str
    needed: str = ""
    remedy: str = ""
    increase: Increase | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the answer for ``--json``."""
        return {
            "area": self.area,
            "asked": self.asked,
            "status": self.status.value,
            "found": self.found,
            "needed": self.needed,
            "remedy": self.remedy,
        }


def answer(area: str, asked: str, found: str, needed: str = "", *, blocks: str = "", warns: str = "") -> Row:
    """Return an answer: one that blocks the deploy or warns has a remedy for that, any other one is fine."""
    status = Status.BLOCKS if blocks else Status.WARNING if warns else Status.FINE
    return Row(area, asked, status, found, needed, blocks or warns)


def print_report(console: Console, rows: Iterable[Row]) -> None:
    """Print a table for each area, each with what to do about its answers."""
    for area, members in groupby(rows, key=lambda row: row.area):
        answers = list(members)
        table = WholeTable(title=area, title_justify="left", box=box.SIMPLE_HEAD)
        for heading in ("", "asked", "found", "needed"):
            table.add_column(heading)
        for row in answers:
            table.add_row(MARKS[row.status], *map(escape, (row.asked, row.found, row.needed)))
        console.print(table)
        for row in answers:
            if row.remedy:
                console.print(f"  {MARKS[row.status]} {escape(row.asked)}", soft_wrap=True)
                console.print(f"    → {escape(row.remedy)}", soft_wrap=True)


def summary(rows: Iterable[Row]) -> str:
    """Return a line that counts the answers by what they mean."""
    statuses = [row.status for row in rows]
    return ", ".join(f"{statuses.count(status)} {status.value}" for status in Status if status in statuses)
