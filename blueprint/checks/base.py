"""What a check is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from blueprint.file.model.deployment import Deployment
from blueprint.file.source import Location


class Level(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The deployment cannot work; nothing is synthesized."""
    WARNING = "warning"
    """It works, but an operator should have meant it."""
    INFO = "info"
    """Worth knowing before the deploy."""


@dataclass(frozen=True)
class Violation:
    """One place where a check does not hold.

    Attributes:
        location: Where the value stands in the deployment file.
        message: What is wrong, with the numbers.
        remedy: What to do.
    """

    location: Location
    message: str
    remedy: str


Examine = Callable[[Deployment], Iterator[Violation]]
"""Yields every place of a deployment where a rule does not hold."""


@dataclass(frozen=True)
class Check:
    """One rule about a deployment.

    Attributes:
        about: The rule in one sentence, as it reads when it holds.
        source: Where the rule comes from.
    """

    id: str
    level: Level
    about: str
    source: str
    examine: Examine


def check(id_: str, level: Level, about: str, *, source: str) -> Callable[[Examine], Check]:
    """Make a check of the function below."""
    return lambda examine: Check(id_, level, about, source, examine)


@dataclass(frozen=True)
class Finding:
    """A violation together with the check that found it."""

    check: Check
    violation: Violation
    accepted_because: str | None
    """The operator's reason, when the deployment file accepts this check."""

    @property
    def blocks(self) -> bool:
        """Whether the deployment must not go on."""
        return self.check.level is Level.ERROR and self.accepted_because is None
