"""Property values: what travels in Pulumi's protobuf structs, as Python objects."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.struct_pb2 import Struct, Value

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
"""Key that marks a dictionary as something else; `pulumi.runtime.rpc` has the same constants."""

SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a mark, not a secret
UNKNOWN_SENTINEL: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SECRET_TEXT: Final = "[secret]"  # noqa: S105 - what is shown in its place
UNKNOWN_TEXT: Final = "[unknown]"

Properties = Mapping[str, Any]


class Unknown(enum.Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = enum.auto()

    def __repr__(self) -> str:
        return UNKNOWN_TEXT


UNKNOWN: Final = Unknown.UNKNOWN
"""A value that only the provider knows, once the resource exists."""


@dataclass(frozen=True)
class Secret:
    """A value that is shown to nobody.

    Attributes:
        value: The value itself; a `Digest` of it where a graph was read from disk.
    """

    value: Any

    def __repr__(self) -> str:
        return SECRET_TEXT


@dataclass(frozen=True)
class Digest:
    """What is kept of a secret on disk: enough to see that it changed."""

    salt: str
    sha256: str

    @classmethod
    def of(cls, value: Any, salt: str) -> Digest:
        text = salt + json.dumps(value, sort_keys=True, default=repr)
        return cls(salt, hashlib.sha256(text.encode()).hexdigest())


def decode(struct: Struct) -> dict[str, Any]:
    """Return a struct's properties, with `Secret` and `UNKNOWN` in the place of their marks."""
    return {key: _decode(value) for key, value in struct.fields.items()}


def _decode(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            fields = value.struct_value.fields
            if SIGNATURE in fields and fields[SIGNATURE].string_value == SECRET_SIGNATURE:
                return Secret(_decode(fields["value"]))
            return decode(value.struct_value)
        case "list_value":
            return [_decode(item) for item in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return UNKNOWN if value.string_value == UNKNOWN_SENTINEL else value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def encode(properties: Properties) -> Struct:
    """Return properties as a struct, with the marks that Pulumi's SDKs know."""
    struct = Struct()
    struct.update({key: _encode(value) for key, value in properties.items()})
    return struct


def _encode(value: Any) -> Any:
    match value:
        case Unknown():
            return UNKNOWN_SENTINEL
        case Secret():
            return {SIGNATURE: SECRET_SIGNATURE, "value": _encode(value.value)}
        case Mapping():
            return {str(key): _encode(item) for key, item in value.items()}
        case list() | tuple():
            return [_encode(item) for item in value]
        case _:
            return value


def plain(value: Any) -> Any:
    """Return a value for display or JSON: no secret in it, unknowns said as such."""
    match value:
        case Unknown():
            return UNKNOWN_TEXT
        case Secret():
            return SECRET_TEXT
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def reveal(value: Any) -> Any:
    """Return a value without its secret marks, for those who have to work with it."""
    match value:
        case Secret():
            return reveal(value.value)
        case Mapping():
            return {str(key): reveal(item) for key, item in value.items()}
        case list() | tuple():
            return [reveal(item) for item in value]
        case _:
            return value


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a value, in secrets too; keys are no values."""
    match value:
        case str():
            yield value
        case Secret():
            yield from strings(value.value)
        case Mapping():
            for item in value.values():
                yield from strings(item)
        case list() | tuple():
            for item in value:
                yield from strings(item)


def holds_secret(value: Any) -> bool:
    """Whether there is a secret anywhere in a value."""
    match value:
        case Secret():
            return True
        case Mapping():
            return any(holds_secret(item) for item in value.values())
        case list() | tuple():
            return any(holds_secret(item) for item in value)
        case _:
            return False
