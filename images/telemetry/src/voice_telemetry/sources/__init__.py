"""Where values come from: one module each."""

from typing import Protocol

from voice_telemetry.sample import Sample


class SourceError(Exception):
    """A source that cannot be read now; the message says why."""


class Source(Protocol):
    """Something that is read once a second."""

    async def read(self) -> list[Sample]:
        """Return what is true now.

        Raises:
            SourceError: It cannot be read. Nothing is published then: missing values are for the alarms to judge.
        """
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...
