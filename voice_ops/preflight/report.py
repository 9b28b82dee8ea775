"""Preflight report with the subject, result, requirement and remedy of each check."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from rich import box
from rich.console import Console

from voice_ops.output import UntruncatedTable, format_markup


class CheckStatus(StrEnum):
    """Effect of a result on the deploy."""

    PASSED = "fine"
    WARNING = "warning"
    """The deploy works, but a later problem is expected, or the catalogue is out of date."""
    BLOCKING = "blocks"
    UNKNOWN = "unanswered"
    """The request was denied or throttled, or the cloud was unreachable."""
    SKIPPED = "not asked"
    """There are no credentials, or an earlier result makes the check meaningless."""

    @property
    def is_failure(self) -> bool:
        """Whether a result with this status makes the preflight exit with status 1."""
        return self in {CheckStatus.BLOCKING, CheckStatus.UNKNOWN}


MARK_BY_STATUS = {
    CheckStatus.PASSED: "[green]✓[/]",
    CheckStatus.WARNING: "[yellow]![/]",
    CheckStatus.BLOCKING: "[red]✗[/]",
    CheckStatus.UNKNOWN: "[red]?[/]",
    CheckStatus.SKIPPED: "[dim]-[/]",
}


class QuotaIncreaseError(Exception):
    """A cloud rejected a request for an increase. The message contains the reason and a remedy."""


@dataclass(frozen=True)
class QuotaIncrease:
    """A quota increase that is needed but not yet requested.

    Attributes:
        quota: The cloud's name for the quota.
        limit: The current limit.
        desired: The limit to request.
        submit: Function that submits the request and returns the cloud's response; raises `QuotaIncreaseError`.
    """

    quota: str
    limit: int
    desired: int
    submit: Callable[[], str]


@dataclass(frozen=True)
class CheckResult:
    """The result of a check."""

    area: str
    question: str
    status: CheckStatus
    result: str
    needed: str = ""
    remedy: str = ""
    increase: QuotaIncrease | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the result for ``--json``."""
        return {
            "area": self.area,
            "asked": self.question,
            "status": self.status.value,
            "found": self.result,
            "needed": self.needed,
            "remedy": self.remedy,
        }


def create_check_result(
    area: str, question: str, result: str, requirement: str = "", *, blocks: str = "", warns: str = ""
) -> CheckResult:
    """Create the result of a check.

    Args:
        blocks: Remedy, if the result blocks the deploy.
        warns: Remedy, if the result is a warning.
    """
    status = CheckStatus.BLOCKING if blocks else CheckStatus.WARNING if warns else CheckStatus.PASSED
    return CheckResult(area, question, status, result, requirement, blocks or warns)


def print_report(console: Console, rows: Iterable[CheckResult]) -> None:
    """Print a table of results for each area, followed by the remedies."""
    for area, members in groupby(rows, key=lambda row: row.area):
        answers = list(members)
        table = UntruncatedTable(title=area, title_justify="left", box=box.SIMPLE_HEAD)
        for heading in ("", "asked", "found", "needed"):
            table.add_column(heading)
        for row in answers:
            table.add_row(format_markup(MARK_BY_STATUS[row.status]), row.question, row.result, row.needed)
        console.print(table)
        for row in answers:
            if row.remedy:
                console.print(format_markup(f"  {MARK_BY_STATUS[row.status]} {{}}", row.question), soft_wrap=True)
                console.print(f"    → {row.remedy}", soft_wrap=True)


def format_summary(rows: Iterable[CheckResult]) -> str:
    """Return a line with the number of results by status."""
    statuses = [row.status for row in rows]
    return ", ".join(f"{statuses.count(status)} {status.value}" for status in CheckStatus if status in statuses)
