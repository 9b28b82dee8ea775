"""Validates a resource's inputs against the installed SDK, like a provider's Check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from voice_sandbox.azure.graph import PROVIDER_PREFIX, STACK_REFERENCE_TYPE
from voice_sandbox.azure.schema import (
    SDK_MODULE_BY_PACKAGE,
    Field,
    Shape,
    load_args_shape,
    load_resource_shape,
    load_type_tokens,
)
from voice_sandbox.azure.values import Properties, Secret, Unknown

_REMOTE_COMPONENTS = ("helm.sh/v4:Chart", "yaml/v2:ConfigFile", "yaml/v2:ConfigGroup", "kustomize/v2:Directory")
_KUBERNETES_TOKEN_PART_COUNT = 3


def find_input_problems(token: str, inputs: Properties) -> list[str]:
    """Return the known reasons why a provider would reject a custom resource."""
    unknown = _find_type_problem(token, inputs)
    if unknown:
        return [unknown]
    shape = load_resource_shape(token)
    return list(_check_properties(shape, inputs, "")) if shape else []


def _find_type_problem(token: str, inputs: Properties) -> str | None:
    package = token.rpartition(":")[2] if token.startswith(PROVIDER_PREFIX) else token.partition(":")[0]
    if token == STACK_REFERENCE_TYPE:
        return None
    if package not in SDK_MODULE_BY_PACKAGE:
        return f"no provider for {package!r} is installed; this project uses {' and '.join(SDK_MODULE_BY_PACKAGE)}"
    if token.startswith(PROVIDER_PREFIX) or token in load_type_tokens(package) or _is_custom_kind(token, inputs):
        return None
    close = get_close_matches(token, load_type_tokens(package), n=1)
    return f"the installed {package} SDK has no such type" + (f"; did you mean {close[0]}?" if close else "")


def _is_custom_kind(token: str, inputs: Properties) -> bool:
    """Return True for an object of a CustomResourceDefinition, whose group and kind are arbitrary."""
    parts = token.split(":")
    if parts[0] != "kubernetes" or len(parts) != _KUBERNETES_TOKEN_PART_COUNT:
        return False
    is_same_kind = (inputs.get("apiVersion"), inputs.get("kind")) == (parts[1], parts[2])
    return is_same_kind and not any(
        module.startswith(f"kubernetes:{parts[1]}:") for module in load_type_tokens("kubernetes")
    )


def find_remote_component_problem(token: str) -> str | None:
    """Return the reason why a provider's remote component cannot run here, or `None` for other types."""
    if token.startswith("kubernetes:") and token.endswith(_REMOTE_COMPONENTS):
        return "this component runs inside the provider's process; use helm.v3.Release or typed resources instead"
    return None


def _check_properties(shape: Shape, properties: Properties, path: str) -> Iterator[str]:
    for name, field in shape.inputs.items():
        if field.is_required and properties.get(name) is None:
            yield f"missing required input {path}{name}"
    for name, value in properties.items():
        field_shape = shape.inputs.get(name)
        if field_shape is None:
            if name not in shape.outputs and not name.startswith("__"):
                close = get_close_matches(name, shape.inputs, n=1)
                yield f"unknown input {path}{name}" + (f"; did you mean {close[0]}?" if close else "")
        elif field_shape.args_class:
            yield from _check_nested_value(shape.module, field_shape, value, f"{path}{name}")


def _check_nested_value(module: str, field: Field, value: Any, path: str) -> Iterator[str]:
    nested = load_args_shape(module, field.args_class or "")
    if nested is None:
        return
    for item_path, item in _iter_known_items(field, value, path):
        if isinstance(item, Mapping):
            yield from _check_properties(nested, item, f"{item_path}.")
        elif item is not None:
            yield f"{item_path} must be an object, not {item!r}"


def _iter_known_items(field: Field, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the known objects in a value, with their paths."""
    while isinstance(value, Secret):
        value = value.value
    nested_values: Iterator[tuple[str, Any]]
    if field.is_list and isinstance(value, list):
        nested_values = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif field.is_map and isinstance(value, Mapping):
        nested_values = ((f"{path}.{key}", item) for key, item in value.items())
    else:
        nested_values = iter([(path, value)])
    for item_path, item in nested_values:
        bare = item.value if isinstance(item, Secret) else item
        if not isinstance(bare, Unknown):
            yield item_path, bare
