"""Rows in the rejection tables, with their conditions and evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.replacements import paths_overlap

Evaluator = Callable[[Request], Iterable[str]]
"""Function that yields each rejected value in a request with its limit."""

Condition = Callable[[RequestPart], bool]

BAD_REQUEST = "BadRequest"
"""Error code of a row whose source contains none; it corresponds to HTTP status 400."""


@dataclass(frozen=True)
class RejectionRule:
    """A rejection by a service that is not part of Azure's definitions.

    Attributes:
        name: Unique name.
        kind: Type of the resource, such as `containerservice:AgentPool`.
        code: Error code of the response.
        reason: The service's reason for the rejection, as a sentence.
        evaluate: Yields the rejected values of a request.
        remedy: The solution.
        source: Public report of the rejection, or the documentation page that states it.
    """

    name: str
    kind: str
    code: str
    reason: str
    evaluate: Evaluator
    remedy: str
    source: str


# --- Conditions -------------------------------------------------------------------------------------------


def matches_any_request(_: RequestPart) -> bool:
    """Return True for every request."""
    return True


def has_value(path: str, *values: object) -> Condition:
    """Return a condition that is true if the value at a path is one of the given values."""
    return lambda body: body.get(path) in values


def is_set(path: str) -> Condition:
    """Return a condition that is true if a value at a path is set."""
    return lambda body: body.get(path) is not None


def negate(condition: Condition) -> Condition:
    """Return the negation of a condition."""
    return lambda body: not condition(body)


def combine_conditions(*conditions: Condition) -> Condition:
    """Return the conjunction of conditions."""
    return lambda body: all(condition(body) for condition in conditions)


# --- Evaluations -------------------------------------------------------------------------------------------


def forbid(*paths: str, when: Condition = matches_any_request) -> Evaluator:
    """Reject a value at any of the paths."""

    def evaluate(request: Request) -> Iterator[str]:
        if when(request.body):
            for path in paths:
                if request.body.get(path) is not None:
                    value = _format_value(request.body.get(path))
                    yield f"{request.body.to_full_path(path)} is {value}; it must be omitted"

    return evaluate


def require(path: str, *values: object, when: Condition = matches_any_request) -> Evaluator:
    """Reject a request without a value at a path or, if values are given, without one of these values."""

    def evaluate(request: Request) -> Iterator[str]:
        value = request.body.get(path)
        if when(request.body) and (value not in values if values else not value):
            expectation = f"; it must be {' or '.join(map(_format_value, values))}" if values else ""
            yield f"{request.body.to_full_path(path)} is {_format_value(value)}{expectation}"

    return evaluate


def allow_only(path: str, *values: object, when: Condition = matches_any_request) -> Evaluator:
    """Reject a value at a path that is not one of the given values. A missing value is accepted."""

    def evaluate(request: Request) -> Iterator[str]:
        value = request.body.get(path)
        if when(request.body) and value is not None and value not in values:
            valid = " or ".join(map(_format_value, values))
            yield f"{request.body.to_full_path(path)} is {_format_value(value)}; it must be {valid}"

    return evaluate


def evaluate_each(path: str, evaluate: Callable[[RequestPart], Iterable[str]]) -> Evaluator:
    """Evaluate each object in a list."""
    return lambda request: (problem for part in request.body.get_parts(path) for problem in evaluate(part))


def require_unique(path: str, key: Callable[[RequestPart], object], description: str) -> Evaluator:
    """Reject two objects in a list with the same key. Objects whose key is ``None`` are ignored."""

    def evaluate(request: Request) -> Iterator[str]:
        first_parts: dict[object, RequestPart] = {}
        for part in request.body.get_parts(path):
            value = key(part)
            if value is None:
                continue
            if value in first_parts:
                yield f"{first_parts[value].path} and {part.path} both have {description} {value}"
            first_parts.setdefault(value, part)

    return evaluate


def require_range(
    path: str, low: float | None = None, high: float | None = None, when: Condition = matches_any_request
) -> Evaluator:
    """Reject a number outside a range at a path."""

    def evaluate(request: Request) -> Iterator[str]:
        value = request.body.get_number(path)
        if (
            when(request.body)
            and value is not None
            and not (low or value) <= value <= (value if high is None else high)
        ):
            limits = " and ".join(
                f"at {word} {limit:g}" for word, limit in (("least", low), ("most", high)) if limit is not None
            )
            yield f"{request.body.to_full_path(path)} is {value:g}; it must be {limits}"

    return evaluate


def require_unchanged(path: str, *, once: Condition = matches_any_request) -> Evaluator:
    """Reject a changed value at a path, if the previous request satisfies a condition."""

    def evaluate(request: Request) -> Iterator[str]:
        ignored = any(paths_overlap(each, path) for each in request.resource.ignore_changes)
        if request.previous_body is None or ignored or not once(request.previous_body):
            return
        old, new = request.previous_body.get(path), request.body.get(path)
        if old is not None and old != new:
            yield f"{request.body.to_full_path(path)} was {_format_value(old)} and would become {_format_value(new)}"

    return evaluate


def forbid_change(path: str) -> Evaluator:
    """Reject a change at a path, including the addition or removal of a value.

    The changes are those between two previews. The request itself also contains values that are unknown in the preview.
    """

    def evaluate(request: Request) -> Iterator[str]:
        full_path = request.body.to_full_path(path)
        if request.previous_body and any(paths_overlap(full_path, change.path) for change in request.changes):
            old, new = request.previous_body.get(path), request.body.get(path)
            if old != new:
                yield f"{full_path} was {_format_value(old)} and would become {_format_value(new)}"

    return evaluate


def _format_value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case None:
            return "missing"
        case list():
            return f"[{', '.join(map(_format_value, value))}]"
        case _:
            return str(value)
