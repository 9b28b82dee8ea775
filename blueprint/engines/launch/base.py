"""What every launcher offers, and how flags are spelled."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

FlagValue = str | int | float | bool | Mapping[str, object] | Sequence[str] | None
"""``None`` leaves the flag out, ``True`` is the bare flag, ``False`` its ``--no-`` form; a mapping is JSON; a sequence
is the arguments of one flag."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  pods and network policies decide who reaches it
LOOPBACK = "127.0.0.1"


class Launcher(ABC):
    """One process as it is started."""

    @abstractmethod
    def command(self) -> tuple[str, ...]:
        """Return the full argument vector, program first."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the program is given beside those of its image."""
        return {}

    def files(self) -> dict[str, str]:
        """Return the text of each file that the program reads, by absolute path."""
        return {}


def flags(values: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """Return flags and their values as arguments, in the order given."""
    return tuple(argument for name, value in values.items() for argument in _flag(name, value))


def _flag(name: str, value: FlagValue) -> Iterator[str]:
    match value:
        case None:
            return
        case True:
            yield name
        case False:
            yield f"--no-{name.removeprefix('--')}"
        case Mapping():
            yield from (name, compact_json(value))
        case str():
            yield from (name, value)
        case int() | float():
            yield from (name, f"{value:g}" if isinstance(value, float) else str(value))
        case _:
            yield from (name, *value)


def compact_json(value: object) -> str:
    """Return JSON without blanks, keys in the order given: one argument, no quoting surprises."""
    return json.dumps(value, separators=(",", ":"))


def http(port: int, host: str = LOOPBACK) -> str:
    """Return the address of an HTTP server of the same pod or host."""
    return f"http://{host}:{port}"
