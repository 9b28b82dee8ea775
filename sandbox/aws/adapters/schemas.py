"""What CloudFormation's own schemas say about a resource type; cfn-lint carries them."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def schema(resource_type: str) -> dict[str, Any]:
    """Return the schema of a type.

    cfn-lint is imported with the first update of a stack: it takes half a second.
    """
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]  # noqa: PLC0415

    found: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource_type).schema
    return found


def create_only(resource_type: str) -> list[list[str]]:
    """Return the properties whose change makes a new resource, each as the path to it.

    `conditionalCreateOnlyProperties` are not among them: whether they can change in place is up to the service, here to
    whether it has a call for it.
    """
    paths: list[str] = schema(resource_type).get("createOnlyProperties", [])
    return [path.split("/")[2:] for path in paths]


def identifier(resource_type: str) -> list[str]:
    """Return the settings that are a resource's name, where all of them are given and not made by AWS."""
    whole = schema(resource_type)
    keys = [path.split("/")[-1] for path in whole.get("primaryIdentifier", [])]
    made = {path.split("/")[-1] for path in whole.get("readOnlyProperties", [])}
    return [] if made & set(keys) else keys
