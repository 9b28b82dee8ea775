"""Base class of all launchers, and the formatting of flags."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

FlagValue = str | int | float | bool | Mapping[str, object] | Sequence[str] | None
"""Value of a flag. ``None`` omits the flag, ``True`` renders it without a value, and ``False`` renders its ``--no-``
form. A mapping is rendered as JSON, and a sequence as several arguments of one flag."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  network policies restrict access
LOOPBACK = "127.0.0.1"


class Launcher(ABC):
    """Base class for the command line, environment and files of a process."""

    @abstractmethod
    def build_command(self) -> tuple[str, ...]:
        """Return the argument vector, which starts with the program."""

    def build_environment(self) -> dict[str, str]:
        """Return the variables that are set in addition to those of the image."""
        return {}

    def render_files(self) -> dict[str, str]:
        """Return the content of each file that the program reads, by absolute path."""
        return {}


def format_flags(values: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """Return flags and their values as arguments, in the given order."""
    return tuple(argument for name, value in values.items() for argument in _format_flag(name, value))


def _format_flag(name: str, value: FlagValue) -> Iterator[str]:
    match value:
        case None:
            return
        case True:
            yield name
        case False:
            yield f"--no-{name.removeprefix('--')}"
        case Mapping():
            yield from (name, dump_compact_json(value))
        case str():
            yield from (name, value)
        case int() | float():
            yield from (name, f"{value:g}" if isinstance(value, float) else str(value))
        case _:
            yield from (name, *value)


def dump_compact_json(value: object) -> str:
    """Return JSON without whitespace, with keys in the given order, as a single argument that needs no quoting."""
    return json.dumps(value, separators=(",", ":"))


def build_http_url(port: int, host: str = LOOPBACK) -> str:
    """Return the URL of an HTTP server in the same pod or on the same host."""
    return f"http://{host}:{port}"
