"""Changes between two graphs of the same stack."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.azure.replacements import paths_overlap, requires_replacement
from voice_sandbox.azure.values import Secret, SecretDigest, Unknown
from voice_sandbox.changes import OpType


class ChangeKind(enum.Enum):
    """Kind of change to a property."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class InputChange:
    """A changed input.

    Attributes:
        path: Path, such as `spec.containers[0].image`.
        kind: Kind of the change.
        old: Previous value.
        new: New value.
        requires_replacement: Whether the change makes the provider replace the resource.
    """

    path: str
    kind: ChangeKind
    old: Any = None
    new: Any = None
    requires_replacement: bool = False


@dataclass(frozen=True)
class Step:
    """A change to a resource.

    Attributes:
        op: Operation.
        urn: URN.
        old: Previous resource; `None` for a create.
        new: New resource; `None` for a delete.
        changes: Changed inputs of the resource.
        replace_reason: Reason for a replacement that none of the changes causes.
    """

    op: OpType
    urn: str
    old: Resource | None = None
    new: Resource | None = None
    changes: tuple[InputChange, ...] = field(default=())
    replace_reason: str = ""

    @property
    def resource(self) -> Resource:
        """The new resource, or the previous resource if the step deletes it."""
        current = self.new or self.old
        assert current is not None  # noqa: S101 - a step has at least one of them
        return current


def diff_graphs(old: Graph | None, new: Graph) -> list[Step]:
    """Return a step for every resource.

    The steps for the new graph are followed by the deletions, which begin with dependents.
    """
    before = dict(old.resources_by_urn) if old else {}
    steps: list[Step] = []
    replaced: set[str] = set()
    for resource in new.resources:
        previous_urn = next((urn for urn in (resource.urn, *resource.aliases) if urn in before), None)
        step = _create_step(before.pop(previous_urn) if previous_urn else None, resource, replaced)
        if step.op is OpType.REPLACE:
            replaced.add(step.urn)
        steps.append(step)
    steps += [Step(OpType.DELETE, resource.urn, old=resource) for resource in reversed(before.values())]
    return steps


def count_by_operation(steps: list[Step]) -> Counter[str]:
    """Count the steps that create, update, replace or delete a resource, or leave it unchanged."""
    return Counter(step.op.value for step in steps)


def _create_step(old: Resource | None, new: Resource, replaced: set[str]) -> Step:
    if old is None:
        return Step(OpType.CREATE, new.urn, new=new)
    changes = tuple(_find_input_changes(old, new))
    because = _find_dependency_replace_reason(new, replaced) if new.custom else ""
    if any(change.requires_replacement for change in changes) or because:
        return Step(OpType.REPLACE, new.urn, old, new, changes, because)
    return Step(OpType.UPDATE if changes else OpType.SAME, new.urn, old, new, changes)


def _find_dependency_replace_reason(resource: Resource, replaced: set[str]) -> str:
    """Return the reason why a resource is replaced together with another one, or an empty string."""
    if resource.provider in replaced:
        return "its provider is replaced"
    for name, urns in resource.property_dependencies.items():
        if replaced & set(urns) and requires_replacement(resource, name):
            return f"{name} comes from a resource that is replaced"
    return ""


def _find_input_changes(old: Resource, new: Resource) -> Iterator[InputChange]:
    if not new.custom:
        return
    for change in _diff_values("", old.inputs, new.inputs):
        if not any(paths_overlap(path, change.path) for path in new.ignore_changes):
            replacing = requires_replacement(new, change.path)
            yield InputChange(change.path, change.kind, change.old, change.new, replacing)


def _diff_values(path: str, old: Any, new: Any) -> Iterator[InputChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        before, after = ({f".{key}": item for key, item in value.items()} for value in (old, new))
    elif isinstance(old, list) and isinstance(new, list):
        before, after = ({f"[{index}]": item for index, item in enumerate(value)} for value in (old, new))
    else:
        if not _is_equal(old, new):
            yield InputChange(path, ChangeKind.UPDATE, old, new)
        return
    for part in before | after:
        child_path = f"{path}{part}".removeprefix(".")
        if part not in after:
            yield InputChange(child_path, ChangeKind.DELETE, before[part])
        elif part not in before:
            yield InputChange(child_path, ChangeKind.ADD, new=after[part])
        else:
            yield from _diff_values(child_path, before[part], after[part])


def _is_equal(old: Any, new: Any) -> bool:
    if isinstance(old, Secret) and isinstance(new, Secret):
        if isinstance(old.value, SecretDigest):
            return old.value == SecretDigest.from_value(new.value, old.value.salt)
        return bool(old.value == new.value)
    if isinstance(old, Unknown) or isinstance(new, Unknown):
        return old is new
    return type(old) is type(new) and bool(old == new)
