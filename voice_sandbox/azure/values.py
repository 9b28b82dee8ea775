"""Property values: Pulumi's protobuf structs as Python objects."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.struct_pb2 import Struct, Value

SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
"""Key that marks a dictionary as a special value; `pulumi.runtime.rpc` has the same constants."""

SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a mark, not a secret
UNKNOWN_SENTINEL: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SECRET_PLACEHOLDER: Final = "[secret]"  # noqa: S105 - what is shown in its place
UNKNOWN_PLACEHOLDER: Final = "[unknown]"

Properties = Mapping[str, Any]


class Unknown(enum.Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = enum.auto()

    def __repr__(self) -> str:
        return UNKNOWN_PLACEHOLDER


UNKNOWN: Final = Unknown.UNKNOWN
"""A value that is not known until the provider has created the resource."""


@dataclass(frozen=True)
class Secret:
    """A value that is not displayed.

    Attributes:
        value: The value itself, or its `Digest` if the graph was read from disk.
    """

    value: Any

    def __repr__(self) -> str:
        return SECRET_PLACEHOLDER


@dataclass(frozen=True)
class SecretDigest:
    """The stored form of a secret, which is sufficient to detect a change."""

    salt: str
    sha256: str

    @classmethod
    def from_value(cls, value: Any, salt: str) -> SecretDigest:
        text = salt + json.dumps(value, sort_keys=True, default=repr)
        return cls(salt, hashlib.sha256(text.encode()).hexdigest())


def decode_struct(struct: Struct) -> dict[str, Any]:
    """Convert a struct to properties, with `Secret` and `UNKNOWN` in place of their signatures."""
    return {key: _decode_value(value) for key, value in struct.fields.items()}


def _decode_value(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            fields = value.struct_value.fields
            if SIGNATURE_KEY in fields and fields[SIGNATURE_KEY].string_value == SECRET_SIGNATURE:
                return Secret(_decode_value(fields["value"]))
            return decode_struct(value.struct_value)
        case "list_value":
            return [_decode_value(item) for item in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return UNKNOWN if value.string_value == UNKNOWN_SENTINEL else value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of a value, and return the result."""
    match value:
        case Mapping():
            return {str(key): map_leaves(item, change) for key, item in value.items()}
        case list() | tuple():
            return [map_leaves(item, change) for item in value]
        case _:
            return change(value)


def encode_properties(properties: Properties) -> Struct:
    """Convert properties to a struct with the signatures of Pulumi's SDKs."""
    struct = Struct()
    struct.update(map_leaves(properties, _mark_secret))
    return struct


def _mark_secret(leaf: Any) -> Any:
    if isinstance(leaf, Secret):
        return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": map_leaves(leaf.value, _mark_secret)}
    return UNKNOWN_SENTINEL if isinstance(leaf, Unknown) else leaf


def to_display_value(value: Any) -> Any:
    """Return a value for display or JSON, with placeholders for secrets and unknown values."""
    return map_leaves(value, lambda leaf: repr(leaf) if isinstance(leaf, Unknown | Secret) else leaf)


def reveal_secrets(value: Any) -> Any:
    """Return a value with its secrets in plain form, for processing."""
    return map_leaves(value, lambda leaf: reveal_secrets(leaf.value) if isinstance(leaf, Secret) else leaf)


def _iter_leaf_values(value: Any) -> Iterator[Any]:
    """Yield every leaf of a value, without keys."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _iter_leaf_values(item)
    else:
        yield value


def iter_string_values(value: Any) -> Iterator[str]:
    """Yield every string in a value, including secrets."""
    return (leaf for leaf in _iter_leaf_values(reveal_secrets(value)) if isinstance(leaf, str))


def contains_secret(value: Any) -> bool:
    """Return True if a value contains a secret."""
    return any(isinstance(leaf, Secret) for leaf in _iter_leaf_values(value))
