"""Azure's own definitions of the deployed resource types: names, types, values, ranges and patterns.

The table is generated from github.com/Azure/bicep-types-az, which Microsoft generates from the services' own OpenAPI
files; `make refresh-azure-types` updates it. It contains the types and properties that our programs use, so that wrong
names, values or numbers are rejected here, as Azure Resource Manager would reject them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from voice_sandbox.azure import arm
from voice_sandbox.azure.schema import load_definitions
from voice_sandbox.azure.values import Secret, Unknown

REQUIRED, READ_ONLY = 1, 2
"""Flags for a property in bicep-types."""
_OPEN_ENUM_PATH = re.compile(r"\.streams\[\d+\]$")
"""Property whose definition only lists examples, since streams are named by their sender, such as Container Insights.
https://learn.microsoft.com/azure/azure-monitor/containers/container-insights-data-collection-configure"""
NUMBER_PROPERTIES = {"amount", "spotMaxPrice", "threshold"}
"""Properties with OpenAPI type `number`. Bicep's types include only integers; the SDK's types distinguish the two."""
RENAMED_PROPERTIES_BY_TYPE: Mapping[str, Mapping[str, str]] = {
    "storage:StorageAccount": {
        "enableHttpsTrafficOnly": "supportsHttpsTrafficOnly",
        "networkRuleSet": "networkAcls",
    }
}
"""Properties for which Microsoft's definitions set another name in clients (`x-ms-client-name`), which the SDK uses."""
_WORD_BOUNDARY_PATTERN = re.compile(r"(?<=[a-z])(?=[A-Z])")

DefinitionNode = Any
"""A type: `any`, `bool`, or an object with one of `int`, `string`, `enum`, `list`, `map`, `object`, `choice`."""


def find_definition_problems(kind: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return the violations of Azure's definition, or an empty list for a type that the table lacks.

    Args:
        kind: Type without its package, such as `containerservice:AgentPool`.
        inputs: Inputs of azure-native: without `properties`, and including the resource's location.
    """
    definition_of_type = load_definitions().get(kind)
    return (
        list(_check_node(definition_of_type["body"], build_request_body(kind, inputs, definition_of_type["body"]), ""))
        if definition_of_type
        else []
    )


def build_request_body(kind: str, inputs: Mapping[str, Any], body: DefinitionNode) -> dict[str, Any]:
    """Return the request body that azure-native sends for the inputs of a resource."""
    *parent_fields, name_field = arm.list_id_inputs(kind)
    renamed = RENAMED_PROPERTIES_BY_TYPE.get(kind, {})
    input_values = {
        renamed.get(name, name): value for name, value in inputs.items() if name not in (*parent_fields, name_field)
    }
    if "location" in body["object"]:
        input_values.setdefault("location", "that of the group")  # azure-native looks it up
    if "name" in body["object"] and inputs.get(name_field) is not None:
        input_values["name"] = inputs[name_field]
    if isinstance(input_values.get("autoScalerProfile"), Mapping):
        profile = input_values["autoScalerProfile"].items()
        input_values["autoScalerProfile"] = {
            _WORD_BOUNDARY_PATTERN.sub("-", name).lower(): value for name, value in profile
        }
    if isinstance(input_values.get("criteria"), Mapping):
        criteria = input_values["criteria"].items()
        input_values["criteria"] = {"odata.type" if name == "odataType" else name: value for name, value in criteria}
    identity = input_values.get("identity")
    if isinstance(identity, Mapping) and isinstance(identity.get("userAssignedIdentities"), list):
        identities: dict[str, Any] = {str(number): {} for number, _ in enumerate(identity["userAssignedIdentities"])}
        input_values["identity"] = {**identity, "userAssignedIdentities": identities}
    return input_values


def _nest_properties(definition_of_type: Mapping[str, Any], input_values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move properties that an object's definition does not contain to the nested `properties`.

    azure-native flattens the nested properties at every level.
    """
    if "properties" not in definition_of_type or definition_of_type["properties"][0] & READ_ONLY:
        return input_values
    properties = {
        name: value
        for name, value in input_values.items()
        if name in definition_of_type and not definition_of_type[name][0] & READ_ONLY
    }
    inner = {name: value for name, value in input_values.items() if name not in properties}
    return {**properties, "properties": {**properties.get("properties", {}), **inner}} if inner else properties


def _check_node(node: DefinitionNode, value: Any, at: str) -> Iterator[str]:
    while isinstance(value, Secret):
        value = value.value
    if isinstance(value, Unknown) or value is None or node == "any":
        return
    if node == "bool":
        if not isinstance(value, bool):
            yield f"{at}: {value!r} is neither true nor false"
        return
    ((kind, definition),) = ((kind, definition) for kind, definition in node.items() if kind in _CHECKS_BY_NODE_KIND)
    yield from _CHECKS_BY_NODE_KIND[kind](definition, value, at)


def _check_object(properties: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{at}: {value!r} is not an object"
        return
    value = _nest_properties(properties, value)
    for name, (flags, _) in properties.items():
        if flags & REQUIRED and not flags & READ_ONLY and value.get(name) is None:
            yield f"{_join_child_path(at, name)}: Azure requires it"
    for name, item in value.items():
        if name not in properties:
            yield f"{_join_child_path(at, name)}: Azure has no such property"
        elif properties[name][0] & READ_ONLY:
            yield f"{_join_child_path(at, name)}: it is read-only"
        else:
            yield from _check_node(properties[name][1], item, _join_child_path(at, name))


def _check_choice(definition: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    """Yield the problems of an object whose definition is selected by the value of one of its properties."""
    chosen = value.get(definition["by"]) if isinstance(value, Mapping) else None
    if chosen not in definition["of"]:
        yield f"{_join_child_path(at, definition['by'])}: {chosen!r} is not one of {', '.join(definition['of'])}"
    else:
        yield from _check_node(definition["of"][chosen], value, at)


def _check_list(definition: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{at}: {value!r} is not a list"
        return
    yield from _check_range(definition, len(value), at, "items")
    for number, item in enumerate(value):
        yield from _check_node(definition["of"], item, f"{at}[{number}]")


def _check_map(definition: DefinitionNode, value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{at}: {value!r} is not a map"
        return
    for name, item in value.items():
        yield from _check_node(definition, item, f"{at}[{name}]")


def _check_enum(definition: list[Any], value: Any, at: str) -> Iterator[str]:
    # Definitions allow any string for future API versions, which are not used here.
    if value not in definition and not _OPEN_ENUM_PATH.search(at):
        yield f"{at}: {value!r} is not one of {', '.join(map(str, definition))}"


def _check_string(definition: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{at}: {value!r} is not a string"
        return
    yield from _check_range(definition, len(value), at, "characters")
    if "pattern" in definition and not re.search(definition["pattern"], value):
        yield f"{at}: {value!r} does not match {definition['pattern']}"


def _check_int(definition: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (value != int(value) and at.rpartition(".")[2] not in NUMBER_PROPERTIES):
        yield f"{at}: {value!r} is not an integer"
        return
    yield from _check_range(definition, value, at, "")


def _check_range(definition: Mapping[str, Any], value: float, at: str, unit: str) -> Iterator[str]:
    if not definition.get("min", value) <= value <= definition.get("max", value):
        limits = f"{definition.get('min', '')} to {definition.get('max', '')}"
        yield f"{at}: {value:g} {unit} is not {limits}".replace("  ", " ")


def _join_child_path(at: str, name: str) -> str:
    return f"{at}.{name}".lstrip(".")


_CHECKS_BY_NODE_KIND: Mapping[str, Callable[[Any, Any, str], Iterator[str]]] = {
    "object": _check_object,
    "choice": _check_choice,
    "list": _check_list,
    "map": _check_map,
    "enum": _check_enum,
    "string": _check_string,
    "int": _check_int,
}
