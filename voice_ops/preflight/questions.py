"""Checks that query a cloud. Errors are reported as results, and the checks stop if the credentials are rejected."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from voice_ops.preflight.report import CheckResult, CheckStatus


@dataclass(frozen=True)
class RequestFailure:
    """The reason why a request failed, with a remedy.

    Attributes:
        lacks_credentials: Whether all further requests will fail as well.
    """

    result: str
    remedy: str
    lacks_credentials: bool = False


def run_checks(
    area: str,
    questions: Mapping[str, Callable[[], Iterable[CheckResult]]],
    errors: tuple[type[Exception], ...],
    explain_error: Callable[[Exception], RequestFailure],
) -> Iterator[CheckResult]:
    """Run the checks in turn, and stop if the credentials are rejected.

    Args:
        area: The cloud's name in the report.
        questions: Checks by topic; the report contains the topic if a check has no result.
        errors: Exceptions of the cloud's SDK.
        explain_error: Function that explains an exception.
    """
    for index, (topic, rows_for) in enumerate(questions.items()):
        try:
            yield from list(rows_for())
        except errors as error:
            refusal = explain_error(error)
            yield CheckResult(area, topic, CheckStatus.UNKNOWN, refusal.result, remedy=refusal.remedy)
            if refusal.lacks_credentials:
                yield from report_skipped_checks(area, list(questions)[index + 1 :], "the credentials were rejected")
                return


def report_skipped_checks(area: str, topics: Iterable[str], reason: str, remedy: str = "") -> Iterator[CheckResult]:
    """Report the skipped checks. Only the first result contains the remedy."""
    for index, topic in enumerate(topics):
        yield CheckResult(area, topic, CheckStatus.SKIPPED, reason, remedy=remedy if index == 0 else "")


def extract_first_line(text: str, limit: int = 200) -> str:
    """Return the first line of a message, truncated to ``limit`` characters."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
