"""Sources of values. Each source has a module."""

from typing import Protocol

from voice_telemetry.sample import Sample


class SourceError(Exception):
    """The source cannot be read. The message contains the reason."""


class Source(Protocol):
    """A source that is read once per second."""

    async def read(self) -> list[Sample]:
        """Return the current values.

        Raises:
            SourceError: The source cannot be read. Nothing is published, so alarms treat the values as missing.
        """
        ...

    async def close(self) -> None:
        """Close the source's connections."""
        ...
