"""Inputs that cannot change in place, and those for which the provider therefore replaces the resource.

The provider replaces a resource if a changed input is part of the resource's own id, is its region, or is specified in
the SDK's own definitions or replacements.yaml. For other immutable inputs, the provider sends an update that Azure
rejects in the middle of a deployment. A program avoids this with the resource option `replace_on_changes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import yaml

from voice_sandbox.azure import arm
from voice_sandbox.azure.graph import Resource, shorten_type
from voice_sandbox.azure.schema import Shape, load_args_shape, load_resource_shape

_INDEX_PATTERN = re.compile(r"\[\d+\]")
_MAX_DEPTH = 3
"""Maximum depth of nested definitions that contain the resource's own properties."""

_SourcesByPath = dict[str, str]


def _load_sources(table: dict[str, dict[str, list[str]]]) -> dict[str, _SourcesByPath]:
    return {
        kind: {path: source for source, paths in paths_by_source.items() for path in paths}
        for kind, paths_by_source in table.items()
    }


_TABLES = yaml.safe_load(Path(__file__).with_name("replacements.yaml").read_text(encoding="utf-8"))
AZURE_REPLACEMENT_TRIGGERS = _load_sources(_TABLES["replaced"]["azure"])
KUBERNETES_REPLACEMENT_TRIGGERS = _load_sources(_TABLES["replaced"]["kubernetes"])
"""Inputs by type whose change makes the provider replace a resource, with their sources.

Inputs that the SDK's definitions specify are not included.
"""
UNCHANGEABLE_INPUTS_BY_TYPE = _load_sources(_TABLES["refused"])
"""Azure inputs by type that the provider updates although Azure rejects the change, with their sources."""
IMMUTABLE_POOL_INPUTS = (
    UNCHANGEABLE_INPUTS_BY_TYPE["containerservice:AgentPool"] | AZURE_REPLACEMENT_TRIGGERS["containerservice:AgentPool"]
)
"""Immutable inputs for a pool inside a cluster. The provider replaces neither the pool nor the cluster for them."""
UNCHANGEABLE_INPUTS_BY_TYPE["containerservice:ManagedCluster"] |= {
    f"agentPoolProfiles.{path}": source for path, source in IMMUTABLE_POOL_INPUTS.items()
}


def list_replacement_paths(resource: Resource) -> tuple[str, ...]:
    """Return the paths of the inputs whose change makes the provider replace a resource."""
    properties = resource.replace_on_changes
    kind = shorten_type(resource.type)
    if resource.type.startswith("azure-native:"):
        return (
            *properties,
            *arm.list_id_inputs(kind),
            "location",
            *(
                path
                for path in list_immutable_inputs(resource.type)
                if path not in UNCHANGEABLE_INPUTS_BY_TYPE.get(kind, ())
            ),
            *AZURE_REPLACEMENT_TRIGGERS.get(kind, ()),
        )
    if resource.type.startswith("kubernetes:"):
        return (
            *properties,
            "apiVersion",
            "kind",
            "metadata.name",
            "metadata.namespace",
            *KUBERNETES_REPLACEMENT_TRIGGERS.get(kind, ()),
        )
    return properties


def requires_replacement(resource: Resource, path: str) -> bool:
    """Return True if a change at an input path makes the provider replace a resource."""
    return _overlaps_any(path, list_replacement_paths(resource))


def is_immutable(resource: Resource, path: str) -> bool:
    """Return True if an input path cannot change in place: the provider replaces the resource, or Azure rejects it."""
    return _overlaps_any(
        path, (*list_replacement_paths(resource), *UNCHANGEABLE_INPUTS_BY_TYPE.get(shorten_type(resource.type), ()))
    )


def _overlaps_any(path: str, triggers: Iterable[str]) -> bool:
    unindexed_path = _INDEX_PATTERN.sub("", path)
    return any(paths_overlap(trigger, path) or paths_overlap(trigger, unindexed_path) for trigger in triggers)


@cache
def list_immutable_inputs(kind: str) -> tuple[str, ...]:
    """Return the input paths that the SDK's own definitions for a type specify as immutable."""
    shape = load_resource_shape(kind)
    return tuple(_iter_immutable_paths(shape, "", _MAX_DEPTH)) if shape else ()


def _iter_immutable_paths(shape: Shape, path: str, depth: int) -> Iterator[str]:
    for field in shape.inputs.values():
        child_path = f"{path}{field.name}"
        if field.is_immutable:
            yield child_path
        elif (
            field.args_class
            and depth
            and not field.is_list
            and (inner := load_args_shape(shape.module, field.args_class))
        ):
            yield from _iter_immutable_paths(inner, f"{child_path}.", depth - 1)


def paths_overlap(trigger: str, path: str) -> bool:
    """Return True if two paths are equal, or if one contains the other."""
    if trigger in {"*", path}:
        return True
    longer, shorter = (path, trigger) if len(path) > len(trigger) else (trigger, path)
    return longer.startswith((f"{shorter}.", f"{shorter}["))
