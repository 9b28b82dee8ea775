"""Typed replies from Valkey, since the client's own types allow any value."""

from collections.abc import Mapping
from typing import Any


def decode_text(value: bytes | str) -> str:
    """Decode a value that was stored as text."""
    return value if isinstance(value, str) else value.decode()


def decode_fields(fields: Mapping[Any, Any]) -> dict[str, str]:
    """Decode a hash whose names and values were stored as text."""
    return {decode_text(name): decode_text(value) for name, value in fields.items()}


def decode_entries(answer: Any) -> list[tuple[str, dict[bytes, bytes]]]:  # noqa: ANN401
    """Return the entries of a stream: ids, and fields as they were stored."""
    return [(decode_text(entry_id), fields) for entry_id, fields in answer or ()]
