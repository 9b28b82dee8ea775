"""Changes that a deployment would make to previously synthesized stacks: updates, replacements and deletions."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from voice_sandbox.aws.adapters.schemas import (
    list_create_only_paths,
    list_identifier_properties,
    list_naming_properties,
    load_resource_schema,
)
from voice_sandbox.aws.adapters.table import RESOURCE_KINDS
from voice_sandbox.aws.cloudformation.template import iter_references
from voice_sandbox.aws.shapes import Json
from voice_sandbox.changes import OpType

TemplatesByStack = Mapping[str, Mapping[str, Any]]
"""Templates by stack name."""
ResourceKey = tuple[str, str]
"""Name of a stack, and logical id of a resource in the stack."""


@dataclass(frozen=True)
class ResourceChange:
    """A change to a resource.

    Attributes:
        op: Operation; a change of type, which CloudFormation rejects, is a delete and a create.
        key: Stack and logical id.
        kind: Type.
        changes: Changed properties of the resource that cannot be updated in place.
        replaced_references: Replaced resources to which the resource refers in properties that cannot change in place.
        changes_type: Whether the created resource replaces one of another type, which CloudFormation rejects.
        downgrades: Properties that the service does not downgrade, with both values.
        keeps_name: Whether the resource would be replaced under the same explicit name, which CloudFormation rejects.
        has_name_conflict: Whether another resource of the stack has the same explicit name, which CloudFormation
            rejects.
    """

    op: OpType
    key: ResourceKey
    kind: str
    changes: tuple[str, ...] = ()
    replaced_references: frozenset[ResourceKey] = frozenset()
    keeps_name: bool = False
    has_name_conflict: bool = False
    changes_type: bool = False
    downgrades: tuple[str, ...] = ()


UPGRADE_ONLY_PROPERTIES = {"AWS::ElastiCache::ReplicationGroup": ("EngineVersion",)}
"""Properties that a service can upgrade in place but never downgrade.
https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/VersionManagement.HowTo.html"""
NON_UNIQUE_NAME_TYPES = frozenset({"AWS::ApiGateway::RestApi"})
"""Types whose service accepts several resources with the same name."""


def diff_stacks(old: TemplatesByStack, new: TemplatesByStack) -> list[ResourceChange]:
    """Return the change to each resource in the old or the new stacks."""
    before, after = _collect_resources(old), _collect_resources(new)
    unchanged_types = {key for key in before.keys() & after.keys() if before[key]["Type"] == after[key]["Type"]}
    changed = {key: tuple(_find_immutable_changes(before[key], after[key])) for key in unchanged_types}
    replaced = {key for key in unchanged_types if changed[key]}
    named = {
        key: frozenset(_find_immutable_references(key, after[key], new)) & unchanged_types for key in unchanged_types
    }
    while affected := {key for key in unchanged_types - replaced if named[key] & replaced}:
        replaced |= affected
    owners: dict[str, set[ResourceKey]] = {}
    for key, body in before.items():
        owners.setdefault(_build_physical_name_key(key, body, replaced), set()).add(key)

    def has_name_conflict(key: ResourceKey) -> bool:
        name = _build_physical_name_key(key, after[key], replaced)
        return bool(name) and after[key]["Type"] not in NON_UNIQUE_NAME_TYPES and bool(owners.get(name, set()) - {key})

    steps = [
        ResourceChange(
            OpType.REPLACE,
            key,
            after[key]["Type"],
            changed[key],
            named[key] & replaced,
            keeps_name=_has_fixed_name(before[key], after[key], named[key] & replaced, key[0]),
            has_name_conflict=has_name_conflict(key),
        )
        if key in replaced
        else ResourceChange(
            OpType.UPDATE if before[key] != after[key] else OpType.SAME,
            key,
            after[key]["Type"],
            downgrades=tuple(_find_downgrades(before[key], after[key])),
        )
        for key in unchanged_types
    ]
    steps += [
        ResourceChange(
            OpType.CREATE, key, after[key]["Type"], has_name_conflict=has_name_conflict(key), changes_type=key in before
        )
        for key in after.keys() - unchanged_types
    ]
    steps += [ResourceChange(OpType.DELETE, key, before[key]["Type"]) for key in before.keys() - unchanged_types]
    return sorted(steps, key=lambda step: (step.key, step.op.value))


def _collect_resources(templates: TemplatesByStack) -> dict[ResourceKey, dict[str, Any]]:
    """Return resources with template parameters replaced by their default values."""
    resources = {}
    for stack, template in templates.items():
        defaults = {name: each.get("Default") for name, each in template.get("Parameters", {}).items()}
        resources.update(
            {(stack, name): _substitute_defaults(body, defaults) for name, body in template["Resources"].items()}
        )
    return resources


def _substitute_defaults(node: Json, defaults: Mapping[str, Json]) -> Any:
    match node:
        case {"Ref": str(name)} if name in defaults:
            return {"Parameter": name, "Default": defaults[name]}
        case dict():
            return {key: _substitute_defaults(item, defaults) for key, item in node.items() if key != "Metadata"}
        case list():
            return [_substitute_defaults(item, defaults) for item in node]
        case _:
            return node


def _find_immutable_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for path in list_create_only_paths(new["Type"]):
        if _find_values_at_path(old.get("Properties"), path) != _find_values_at_path(new.get("Properties"), path):
            yield ".".join(path)


def _find_downgrades(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in UPGRADE_ONLY_PROPERTIES.get(new["Type"], ()):
        before, after = (str(each.get("Properties", {}).get(name, "")) for each in (old, new))
        if before and after and is_older_version(after, before):
            yield f"{name} {before} to {after}"


def is_older_version(version: str, other: str) -> bool:
    """Return True if a version such as ``7.2`` is older than another, compared up to the shorter length."""
    pairs = [(int(one), int(two)) for one, two in zip(version.split("."), other.split("."), strict=False)]
    return [one for one, _ in pairs] < [two for _, two in pairs]


def _find_immutable_references(
    key: ResourceKey, body: Mapping[str, Any], templates: TemplatesByStack
) -> Iterator[ResourceKey]:
    """Yield the resources to which a resource refers in properties that cannot change in place, including imports."""
    for path in list_create_only_paths(body["Type"]):
        for value in _find_values_at_path(body.get("Properties"), path):
            yield from ((key[0], name) for name in iter_references(value))
            for imported in iter_imported_names(value):
                yield from _find_exporting_resources(imported, templates)


def iter_imported_names(node: Json) -> Iterator[str]:
    """Yield the names of the exports that a part of a template imports."""
    match node:
        case {"Fn::ImportValue": str(name)}:
            yield name
        case dict():
            for item in node.values():
                yield from iter_imported_names(item)
        case list():
            for item in node:
                yield from iter_imported_names(item)


def _find_exporting_resources(name: str, templates: TemplatesByStack) -> Iterator[ResourceKey]:
    for stack, template in templates.items():
        for output in template.get("Outputs", {}).values():
            if output.get("Export", {}).get("Name") == name:
                yield from ((stack, named) for named in iter_references(output["Value"]))


def _has_fixed_name(
    old: Mapping[str, Any], new: Mapping[str, Any], because: frozenset[ResourceKey], stack: str
) -> bool:
    name = _build_physical_name_key((stack, ""), new, because)
    return bool(name) and name == _build_physical_name_key((stack, ""), old, because)


def _build_physical_name_key(key: ResourceKey, body: Mapping[str, Any], replaced: Container[ResourceKey]) -> str:
    """Return the stack, the type and the properties that contain a resource's name.

    The result is empty if AWS generates the name, or if the name contains that of a replaced resource.
    """
    stack, kind = key[0], body["Type"]
    names = _list_name_properties(kind)
    values = {
        path: _find_values_at_path(body.get("Properties"), [path]) for path in {*names, *list_naming_properties(kind)}
    }
    if not names or not all(values[path] for path in names):
        return ""
    if any((stack, name) in replaced for value in values.values() for name in iter_references(value)):
        return ""
    return json.dumps([stack, kind, values], sort_keys=True)


def _list_name_properties(resource_type: str) -> list[str]:
    """Return the properties that determine a resource's name. If they are omitted, AWS generates the name."""
    kind = RESOURCE_KINDS.get(resource_type)
    if kind is None:
        return list_identifier_properties(resource_type)
    if kind.name:
        return [kind.name]
    fields = [field.partition("[")[0] for _, field, _, _ in Formatter().parse(kind.id) if field]
    return [field for field in fields if field in load_resource_schema(resource_type)["properties"]]


def _find_values_at_path(properties: Json, path: list[str]) -> list[Any]:
    """Return the values at a path; `*` matches each item of a list or mapping."""
    values = [] if properties is None else [properties]
    for name in path:
        if name == "*":
            values = [item for each in values for item in (each.values() if isinstance(each, dict) else each)]
        else:
            values = [each[name] for each in values if isinstance(each, dict) and name in each]
    return values
