"""Asking a cloud: whatever it refuses becomes an answer, and without credentials nothing more is asked."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ops.preflight.report import Row, Status


@dataclass(frozen=True)
class Refusal:
    """Why a cloud did not answer, and what to do.

    Attributes:
        no_credentials: Whether nothing else will be answered either.
    """

    found: str
    remedy: str
    no_credentials: bool = False


def ask_all(
    area: str,
    questions: Mapping[str, Callable[[], Iterable[Row]]],
    errors: tuple[type[Exception], ...],
    explain: Callable[[Exception], Refusal],
) -> Iterator[Row]:
    """Ask every question in turn; stop where the credentials are refused.

    Args:
        area: The cloud, as the report names it.
        questions: What asks, by what it is about: a report names that when there is no answer.
        errors: What its SDK raises.
        explain: Says what one of them means.
    """
    for index, (about, ask) in enumerate(questions.items()):
        try:
            yield from list(ask())
        except errors as error:
            refusal = explain(error)
            yield Row(area, about, Status.UNANSWERED, refusal.found, remedy=refusal.remedy)
            if refusal.no_credentials:
                yield from not_asked(area, list(questions)[index + 1 :], "the credentials are refused")
                return


def not_asked(area: str, topics: Iterable[str], because: str, remedy: str = "") -> Iterator[Row]:
    """Say what is not asked; the remedy stands with the first of it."""
    for index, about in enumerate(topics):
        yield Row(area, about, Status.NOT_ASKED, because, remedy=remedy if index == 0 else "")


def first_line(text: str, limit: int = 200) -> str:
    """Return the first line of a cloud's message, cut to a length."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
