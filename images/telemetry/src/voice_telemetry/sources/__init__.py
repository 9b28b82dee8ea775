"""Sources of values, one module each."""

from typing import Protocol

from voice_telemetry.sample import Sample


class SourceError(Exception):
    """A source that cannot be read. The message contains the reason."""


class Source(Protocol):
    """A source that is read once per second."""

    async def read(self) -> list[Sample]:
        """Return the current values.

        Raises:
            SourceError: The source cannot be read. Nothing is published then, and alarms evaluate the missing values.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...
