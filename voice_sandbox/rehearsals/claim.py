"""Result of a check on a deployed system."""

from dataclasses import dataclass


@dataclass(frozen=True)
class VerificationResult:
    """A checked condition with its result."""

    text: str
    passed: bool
