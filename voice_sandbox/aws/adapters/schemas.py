"""CloudFormation's own resource type schemas, which are included in cfn-lint."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def load_resource_schema(resource_type: str) -> dict[str, Any]:
    """Return the schema of a type.

    cfn-lint is imported by the first call, since the import takes half a second.
    """
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]  # noqa: PLC0415

    schema: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource_type).schema
    return schema


def list_create_only_paths(resource_type: str) -> list[list[str]]:
    """Return the paths of the properties whose change requires a new resource.

    `conditionalCreateOnlyProperties` are not included. Whether they can change in place depends on the service: here,
    on whether the table has a call for the change.
    """
    paths: list[str] = load_resource_schema(resource_type).get("createOnlyProperties", [])
    return [path.split("/")[2:] for path in paths]


def list_naming_properties(resource_type: str) -> list[str]:
    """Return the properties in a template that are part of the resource's identifier."""
    type_schema = load_resource_schema(resource_type)
    keys = [path.split("/")[-1] for path in type_schema.get("primaryIdentifier", [])]
    generated = {path.split("/")[-1] for path in type_schema.get("readOnlyProperties", [])}
    return [key for key in keys if key not in generated]


def list_identifier_properties(resource_type: str) -> list[str]:
    """Return the properties that identify a resource, or an empty list if AWS generates one of them."""
    keys = list_naming_properties(resource_type)
    return keys if len(keys) == len(load_resource_schema(resource_type).get("primaryIdentifier", [])) else []
