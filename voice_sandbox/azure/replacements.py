"""Inputs whose change makes a provider replace a resource instead of updating it in place.

Everywhere in Azure, a change of the region, or of a name or an id that is part of the resource's own id, replaces the
resource. Other immutable inputs are read from the SDK's own definitions if these specify them, otherwise from
replacements.yaml, with sources. If the provider does not know one of them, it attempts an update that the cloud
rejects, so a new resource is required anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from voice_sandbox.azure import arm
from voice_sandbox.azure.graph import Resource, shorten_type
from voice_sandbox.azure.schema import Shape, load_args_shape, load_resource_shape

_INDEX_PATTERN = re.compile(r"\[\d+\]")
_MAX_DEPTH = 3
"""Maximum depth of nested definitions with properties of the resource's own."""

_IMMUTABLE_INPUTS: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load(
    Path(__file__).with_name("replacements.yaml").read_text(encoding="utf-8")
)
AZURE_IMMUTABLE_INPUTS, KUBERNETES_IMMUTABLE_INPUTS = (
    {
        kind: {path: source for source, paths in paths_by_source.items() for path in paths}
        for kind, paths_by_source in _IMMUTABLE_INPUTS[cloud].items()
    }
    for cloud in ("azure", "kubernetes")
)
"""Immutable inputs by type that the SDK's definitions do not specify, with their sources."""
AZURE_IMMUTABLE_INPUTS["containerservice:ManagedCluster"] |= {
    f"agentPoolProfiles.{path}": source for path, source in AZURE_IMMUTABLE_INPUTS["containerservice:AgentPool"].items()
}


def list_replacement_paths(resource: Resource) -> tuple[str, ...]:
    """Return the paths of the inputs whose change replaces a resource."""
    properties = resource.replace_on_changes
    kind = shorten_type(resource.type)
    if resource.type.startswith("azure-native:"):
        return (
            *properties,
            *arm.list_path_inputs(kind),
            "location",
            *list_immutable_inputs(resource.type),
            *AZURE_IMMUTABLE_INPUTS.get(kind, ()),
        )
    if resource.type.startswith("kubernetes:"):
        return (
            *properties,
            "apiVersion",
            "kind",
            "metadata.name",
            "metadata.namespace",
            *KUBERNETES_IMMUTABLE_INPUTS.get(kind, ()),
        )
    return properties


def requires_replacement(resource: Resource, path: str) -> bool:
    """Return True if a change at an input path replaces a resource."""
    unindexed_path = _INDEX_PATTERN.sub("", path)
    return any(
        paths_overlap(trigger, path) or paths_overlap(trigger, unindexed_path)
        for trigger in list_replacement_paths(resource)
    )


@cache
def list_immutable_inputs(kind: str) -> tuple[str, ...]:
    """Return the paths of a type's inputs that the SDK's own definitions specify as immutable."""
    shape = load_resource_shape(kind)
    return tuple(_iter_immutable_paths(shape, "", _MAX_DEPTH)) if shape else ()


def _iter_immutable_paths(shape: Shape, path: str, depth: int) -> Iterator[str]:
    for field in shape.inputs.values():
        child_path = f"{path}{field.name}"
        if field.is_immutable:
            yield child_path
        elif field.args and depth and not field.is_list and (inner := load_args_shape(shape.module, field.args)):
            yield from _iter_immutable_paths(inner, f"{child_path}.", depth - 1)


def paths_overlap(trigger: str, path: str) -> bool:
    """Return True if two paths are equal, or if one contains the other."""
    if trigger in {"*", path}:
        return True
    longer, shorter = (path, trigger) if len(path) > len(trigger) else (trigger, path)
    return longer.startswith((f"{shorter}.", f"{shorter}["))
