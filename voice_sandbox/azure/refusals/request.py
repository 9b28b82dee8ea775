"""A request to Azure as the service receives it, with its body and the resources that exist at that time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from voice_sandbox.azure.diff import InputChange
from voice_sandbox.azure.graph import Resource, shorten_type
from voice_sandbox.azure.values import Secret, Unknown


@dataclass(frozen=True)
class RequestPart:
    """The body of a request, or an object nested in it.

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

    def get_text(self, path: str) -> str:
        """Return the string at a path, or an empty string for other values."""
        value = self.get(path)
        return value if isinstance(value, str) else ""

    def get_number(self, path: str) -> float | None:
        """Return the number at a path, or `None` for other values."""
        value = self.get(path)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def get_texts(self, path: str) -> list[str]:
        """Return the strings in the list at a path, or an empty list for other values."""
        value = self.get(path)
        return (
            [item for item in map(_to_plain_value, value) if isinstance(item, str)] if isinstance(value, list) else []
        )

    def get_parts(self, path: str) -> list[RequestPart]:
        """Return the objects of the list or the map at a path."""
        value = self.get(path)
        items: Sequence[tuple[str, Any]] = []
        if isinstance(value, Mapping):
            items = [(f".{name}", item) for name, item in value.items()]
        elif isinstance(value, list):
            items = [(f"[{index}]", item) for index, item in enumerate(value)]
        return [
            RequestPart(_to_plain_value(item), f"{self.to_full_path(path)}{name}")
            for name, item in items
            if isinstance(_to_plain_value(item), Mapping)
        ]

    def to_full_path(self, path: str) -> str:
        """Convert a path within this object to a path within the request."""
        return f"{self.path}.{path}" if self.path else path


@dataclass(frozen=True)
class Request:
    """A request to create or update a resource.

    Attributes:
        resource: The resource.
        body: Its inputs, or the part of them that a row evaluates.
        previous_body: The same part of the previous inputs; `None` if the request creates the resource.
        earlier_resources: Resources of all projects with earlier requests, in order.
        later_deletions: Previous resources that are deleted only at the end of the update.
        dependencies: URNs of the resources for which the program waits before it sends this request.
        changes: Changed inputs of the resource, with their paths in the whole request.
    """

    resource: Resource
    body: RequestPart
    previous_body: RequestPart | None = None
    earlier_resources: Sequence[Resource] = ()
    later_deletions: Sequence[Resource] = ()
    dependencies: frozenset[str] = field(default=frozenset())
    changes: Sequence[InputChange] = ()

    def iter_existing_resources(self, kind: str) -> Iterator[tuple[Resource, RequestPart]]:
        """Yield the resources of a type that earlier requests have created."""
        for resource in self.earlier_resources:
            if shorten_type(resource.type) == kind:
                yield resource, RequestPart(resource.inputs)

    def iter_resources_deleted_later(self, kind: str) -> Iterator[tuple[Resource, RequestPart]]:
        """Yield the resources of a type that are deleted only after this request."""
        for resource in self.later_deletions:
            if shorten_type(resource.type) == kind:
                yield resource, RequestPart(resource.inputs)

    def iter_guaranteed_resources(self, kind: str) -> Iterator[tuple[Resource, RequestPart]]:
        """Yield the resources of a type that are guaranteed to exist when the service receives this request."""
        return (
            (resource, body)
            for resource, body in self.iter_existing_resources(kind)
            if resource.urn in self.dependencies
        )

    def find_by_id(self, kind: str, identifier: str) -> RequestPart | None:
        """Return the inputs of the resource with an id, or `None` if this deployment does not create it."""
        for resource, body in self.iter_existing_resources(kind):
            if resource.id and resource.id.lower() == identifier.lower():
                return body
        return None


def _to_plain_value(value: Any) -> Any:
    while isinstance(value, Secret):
        value = value.value
    return None if isinstance(value, Unknown) else value
