"""What a check is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

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


class Check(ABC):
    """One rule about a deployment, with the source of the rule."""

    id: ClassVar[str]
    level: ClassVar[Level]
    about: ClassVar[str]
    """The rule in one sentence, as it reads when it holds."""
    source: ClassVar[str]

    @abstractmethod
    def examine(self, deployment: Deployment) -> Iterator[Violation]:
        """Yield every place where the rule does not hold."""


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
