"""What must be true of a deployed system."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One thing that must be true, and whether it is."""

    text: str
    holds: bool
