"""Converts template properties to API arguments, since templates are less strict about names and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

Json = Any
"""A JSON value. Its format is known to botocore's service models at run time, not to a type checker."""


class UnknownPropertyError(ValueError):
    """A property that the service's API does not have, or that has the wrong format."""


def conform_to_shape(shape: Shape, value: Json, path: str) -> Json:
    """Return `value` in the format of an API's input shape.

    Names are matched case-insensitively (`LogGroupName` matches `logGroupName`), and scalars are converted ("5" becomes
    5, and "true" becomes true). A policy document becomes its JSON text, and a list of tags becomes a map if the API
    requires a map. A value in place of a structure with a single member becomes that member.

    Args:
        shape: botocore's shape of the operation's input.
        value: A property value of a template.
        path: Path of the value, for the error message.

    Raises:
        UnknownPropertyError: The API has no such member, or the value cannot be converted.
    """
    if isinstance(shape, StructureShape):
        return _convert_structure(shape, value, path)
    if isinstance(shape, ListShape):
        return _convert_list(shape, value, path)
    if isinstance(shape, MapShape):
        pairs = _convert_to_map(value, path)
        return {str(key): conform_to_shape(shape.value, item, f"{path}.{key}") for key, item in pairs.items()}
    try:
        return _convert_scalar(shape.type_name, value)
    except (TypeError, ValueError, KeyError) as error:
        raise UnknownPropertyError(f"{path}: {value!r} is not of type {shape.type_name}") from error


def find_member_name(shape: Shape | None, name: str) -> str | None:
    """Return the name of a member as the structure spells it, or None if the structure has no such member."""
    members = shape.members if isinstance(shape, StructureShape) else {}
    return (
        name
        if name in members
        else next((candidate for candidate in members if candidate.lower() == name.lower()), None)
    )


def _convert_structure(shape: StructureShape, value: Json, path: str) -> Json:
    if getattr(shape, "is_document_type", False):
        return value
    if not isinstance(value, Mapping):
        if len(shape.members) != 1:
            raise UnknownPropertyError(f"{path}: expected an object, found {value!r}")
        value = {next(iter(shape.members)): value}
    result = {}
    for key, item in value.items():
        name = find_member_name(shape, key)
        if name is None:
            raise UnknownPropertyError(
                f"{path}: unknown property {key} (the API accepts {', '.join(sorted(shape.members))})"
            )
        result[name] = conform_to_shape(shape.members[name], item, f"{path}.{key}")
    return result


def _convert_list(shape: ListShape, value: Json, path: str) -> list[Any]:
    if isinstance(value, Mapping) and isinstance(shape.member, StructureShape):
        value = [{"Key": key, "Value": item} for key, item in value.items()]
    elif not isinstance(value, (list, tuple)):
        value = [value]
    return [conform_to_shape(shape.member, item, f"{path}[{index}]") for index, item in enumerate(value)]


def _convert_to_map(value: Json, path: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        pairs = [{key.lower(): item for key, item in entry.items()} for entry in value]
        if all({"key", "value"} <= set(pair) for pair in pairs):
            return {pair["key"]: pair["value"] for pair in pairs}
    raise UnknownPropertyError(f"{path}: expected an object, found {value!r}")


def _convert_scalar(kind: str, value: Json) -> Json:
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}[str(value).lower()]
    if kind in {"integer", "long"}:
        return int(value)
    if kind in {"float", "double"}:
        return float(value)
    return value
