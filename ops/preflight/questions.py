"""Asking a cloud: whatever it refuses becomes an answer, and without credentials nothing more is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ops.preflight.report import Row, Status


@dataclass(frozen=True)
class Question:
    """Something to ask of a cloud.

    Attributes:
        about: What is asked, as a report names it when there is no answer.
        ask: Asks, and yields the answers.
    """

    about: str
    ask: Callable[[], Iterable[Row]]


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
    questions: Sequence[Question],
    errors: tuple[type[Exception], ...],
    explain: Callable[[Exception], Refusal],
) -> Iterator[Row]:
    """Ask every question in turn; stop where the credentials are refused.

    Args:
        area: The cloud, as the report names it.
        questions: What to ask.
        errors: What its SDK raises.
        explain: Says what one of them means.
    """
    for index, question in enumerate(questions):
        try:
            yield from list(question.ask())
        except errors as error:
            refusal = explain(error)
            yield Row(area, question.about, Status.UNANSWERED, refusal.found, remedy=refusal.remedy)
            if refusal.no_credentials:
                yield from not_asked(area, questions[index + 1 :], "the credentials are refused")
                return


def not_asked(area: str, questions: Sequence[Question], because: str, remedy: str = "") -> Iterator[Row]:
    """Say what is not asked; the remedy stands with the first of it."""
    for index, question in enumerate(questions):
        yield Row(area, question.about, Status.NOT_ASKED, because, remedy=remedy if index == 0 else "")


def first_line(text: str, limit: int = 200) -> str:
    """Return the first line of a cloud's message, cut to a length."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
