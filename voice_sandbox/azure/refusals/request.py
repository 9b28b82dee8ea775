"""A request to Azure as the service receives it, with its body and the resources that exist at that time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from voice_sandbox.azure.graph import Resource, short_type
from voice_sandbox.azure.values import Secret, Unknown


@dataclass(frozen=True)
class Part:
    """An object in a request, or a nested object.

    Attributes:
        value: The object; other values are treated as an object without properties.
        path: Path in the request; empty for the request itself.
    """

    value: Any
    path: str = ""

    def get(self, path: str) -> Any:
        """Return the value at a path such as `upgradeSettings.maxSurge`, or `None` if it is missing or unknown."""
        value = _to_plain_value(self.value)
        for name in path.split("."):
            value = _to_plain_value(value.get(name)) if isinstance(value, Mapping) else None
        return value

    def text(self, path: str) -> str:
        """Return the text at a path, or an empty text for other values."""
        value = self.get(path)
        return value if isinstance(value, str) else ""

    def number(self, path: str) -> float | None:
        """Return the number at a path, or `None` for other values."""
        value = self.get(path)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def texts(self, path: str) -> list[str]:
        """Return the texts in the list at a path, or an empty list for other values."""
        value = self.get(path)
        return (
            [item for item in map(_to_plain_value, value) if isinstance(item, str)] if isinstance(value, list) else []
        )

    def parts(self, path: str) -> list[Part]:
        """Return the objects of the list or the map at a path."""
        value = self.get(path)
        items: Sequence[tuple[str, Any]] = []
        if isinstance(value, Mapping):
            items = [(f".{name}", item) for name, item in value.items()]
        elif isinstance(value, list):
            items = [(f"[{index}]", item) for index, item in enumerate(value)]
        return [
            Part(_to_plain_value(item), f"{self.path_to(path)}{name}")
            for name, item in items
            if isinstance(_to_plain_value(item), Mapping)
        ]

    def path_to(self, path: str) -> str:
        """Convert a path within this object to a path within the request."""
        return f"{self.path}.{path}" if self.path else path


@dataclass(frozen=True)
class Request:
    """A request to create or update a resource.

    Attributes:
        resource: The resource.
        body: Its inputs, or the part of them that a row evaluates.
        before: Previous inputs; `None` if the request creates the resource.
        earlier: Resources with earlier requests, of all projects, in order.
        deleted_later: Previous resources that are deleted only at the end of the update.
        dependencies: URNs of the resources for which the program waits before it sends this request.
    """

    resource: Resource
    body: Part
    before: Part | None = None
    earlier: Sequence[Resource] = ()
    deleted_later: Sequence[Resource] = ()
    dependencies: frozenset[str] = field(default=frozenset())

    def existing_resources(self, kind: str) -> Iterator[tuple[Resource, Part]]:
        """Yield the resources of a type that earlier requests have created."""
        for resource in self.earlier:
            if short_type(resource.type) == kind:
                yield resource, Part(resource.inputs)

    def resources_deleted_later(self, kind: str) -> Iterator[tuple[Resource, Part]]:
        """Yield the resources of a type that are deleted only after this request."""
        for resource in self.deleted_later:
            if short_type(resource.type) == kind:
                yield resource, Part(resource.inputs)

    def guaranteed_resources(self, kind: str) -> Iterator[tuple[Resource, Part]]:
        """Yield the resources of a type that are guaranteed to exist when the service receives this request."""
        return (
            (resource, body) for resource, body in self.existing_resources(kind) if resource.urn in self.dependencies
        )

    def find_by_id(self, kind: str, identifier: str) -> Part | None:
        """Return the inputs of the resource with an id, or `None` if this deployment does not create it."""
        for resource, body in self.existing_resources(kind):
            if resource.id and resource.id.lower() == identifier.lower():
                return body
        return None


def _to_plain_value(value: Any) -> Any:
    while isinstance(value, Secret):
        value = value.value
    return None if isinstance(value, Unknown) else value
