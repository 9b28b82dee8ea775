"""Property values that Pulumi passes to a policy.

The values are nested. Some are missing, and some are unknown until the provider responds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

UNKNOWN_SENTINELS = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""Pulumi's placeholders for values that only the provider knows (``pulumi_policy.proxy``)."""


@dataclass(frozen=True)
class Value:
    """A nested value. Children of a missing value are missing, and those of an unknown value are unknown."""

    raw: object = None

    def __getitem__(self, key: str) -> "Value":
        if self.is_unknown:
            return self
        return Value(self.raw.get(key)) if isinstance(self.raw, Mapping) else Value()

    def __iter__(self) -> Iterator["Value"]:
        """Yield the items of a list. Other values have no items."""
        if isinstance(self.raw, Sequence) and not isinstance(self.raw, str):
            yield from map(Value, self.raw)

    def __bool__(self) -> bool:
        return bool(self.raw) and not self.is_unknown

    def get(self, *path: str) -> "Value":
        """Return the value at a path of keys."""
        value = self
        for key in path:
            value = value[key]
        return value

    @property
    def is_unknown(self) -> bool:
        """Whether only the provider knows the value."""
        return isinstance(self.raw, str) and self.raw in UNKNOWN_SENTINELS

    @property
    def is_enabled(self) -> bool:
        """Whether the value is known to be true."""
        return self.raw is True

    @property
    def is_disabled(self) -> bool:
        """Whether the value is known to be false or missing."""
        return not self.is_enabled and not self.is_unknown

    @property
    def is_missing(self) -> bool:
        return self.raw is None

    @property
    def text(self) -> str:
        """The text of a string or number; empty for other and unknown values."""
        if self.is_unknown or isinstance(self.raw, bool) or not isinstance(self.raw, str | int | float):
            return ""
        is_whole = isinstance(self.raw, float) and self.raw.is_integer()
        return str(int(self.raw)) if is_whole else str(self.raw)

    @property
    def number(self) -> float | None:
        """The value of a number; ``None`` for other values."""
        return self.raw if isinstance(self.raw, int | float) and not isinstance(self.raw, bool) else None

    def items(self) -> Iterator[tuple[str, "Value"]]:
        """Yield the entries of a mapping. Other values have no entries."""
        if isinstance(self.raw, Mapping):
            yield from ((str(key), Value(item)) for key, item in self.raw.items())

    def as_text_dict(self) -> dict[str, str]:
        """Return the entries of a mapping such as labels, with their values as text."""
        return {key: item.text for key, item in self.items()}

    def iter_nested(self, path: str = "") -> Iterator[tuple[str, "Value"]]:
        yield path, self
        for key, item in self.items():
            yield from item.iter_nested(f"{path}.{key}" if path else key)
        for index, item in enumerate(self):
            yield from item.iter_nested(f"{path}[{index}]")
