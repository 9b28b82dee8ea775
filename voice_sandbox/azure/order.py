"""Checks that resources are created after, and deleted before, the resources that they need.

Pulumi knows the dependencies that a program declares. This module also finds undeclared dependencies. If an id, an
address or a namespace is a literal string, Pulumi creates both resources concurrently, which works in a preview and
sometimes fails in the cloud.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voice_sandbox.azure import arm
from voice_sandbox.azure.errors import DependencyError
from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.azure.values import iter_string_values, reveal_secrets

_MIN_DISTINCTIVE_LENGTH = 12
"""Minimum length of strings whose origin can be determined."""

_COMMON_IDS = {arm.SUBSCRIPTION_ID, arm.TENANT_ID, arm.CLIENT_ID, arm.OBJECT_ID}


@dataclass(frozen=True)
class ImpliedDependency:
    """A dependency between two resources.

    Attributes:
        resource: URN of the dependent resource.
        dependency: URN of the resource that it needs.
        reason: Human-readable reason.
    """

    resource: str
    dependency: str
    reason: str


def find_implied_dependencies(graph: Graph) -> Iterator[ImpliedDependency]:
    """Yield the dependencies in the values of a created graph, whether they are declared or not."""
    owners = _index_owners_by_value(graph)
    namespaces = {
        (resource.provider, resource.id): resource
        for resource in graph.find_resources_of_type("kubernetes:core/v1:Namespace")
    }
    for resource in graph.resources:
        if resource.external or not resource.custom:
            continue
        text = "\n".join(iter_string_values(resource.inputs)).lower()
        id_prefix = f"{(resource.id or '').lower()}/"
        for value, owner in owners.items():
            if owner.urn == resource.urn:
                continue
            if _contains_word(text, value):
                yield ImpliedDependency(
                    resource.urn, owner.urn, f"one of its inputs contains {value}, which {owner.label} provides"
                )
            elif value == (owner.id or "").lower() and id_prefix.startswith(f"{value}/"):
                yield ImpliedDependency(resource.urn, owner.urn, f"it lies in {owner.label}")
        metadata = reveal_secrets(resource.inputs.get("metadata"))
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        if (resource.provider, namespace) in namespaces:
            namespace_resource = namespaces[resource.provider, namespace]
            yield ImpliedDependency(resource.urn, namespace_resource.urn, f"it is in the namespace {namespace}")


def _contains_word(text: str, value: str) -> bool:
    """Return True if a string contains a value as a whole word. For example, `.../aks-2` does not contain `.../aks`."""
    end = text.find(value)
    while end >= 0:
        end += len(value)
        if not (text[end : end + 1].isalnum() or text[end : end + 1] in {"-", "_"}):
            return True
        end = text.find(value, end)
    return False


def _index_owners_by_value(graph: Graph) -> dict[str, Resource]:
    """Return the resource that created each distinctive value, such as a lower-case id, address or principal."""
    owners: dict[str, Resource] = {}
    for resource in graph.resources:
        texts = {text.lower() for text in iter_string_values(resource.inputs)}
        if resource.type.startswith("azure-native:") and not resource.external:
            for text in (resource.id or "", *iter_string_values(_select_computed_outputs(resource))):
                value = text.lower()
                if len(value) >= _MIN_DISTINCTIVE_LENGTH and value not in texts and not value.startswith("microsoft."):
                    owners.setdefault(value, resource)
    return {value: owner for value, owner in owners.items() if value not in _COMMON_IDS}


def _select_computed_outputs(resource: Resource) -> dict[str, object]:
    return {name: value for name, value in resource.outputs.items() if name not in ("name", "location", "type", "tags")}


def validate_creation_order(graph: Graph) -> None:
    """Check the order in which a simulated up creates resources.

    Raises:
        DependencyError: Resources do not wait for their dependencies; the message contains both resources of each pair.
    """
    position = {resource.urn: index for index, resource in enumerate(graph.resources)}
    broken: dict[tuple[str, str], str] = {}
    for need in find_implied_dependencies(graph):
        if need.dependency in graph.find_all_dependencies(need.resource):
            continue
        first = position[need.dependency] < position[need.resource]
        when = "may be created before" if first else "is created before"
        broken.setdefault(
            (need.resource, need.dependency),
            f"{graph[need.resource].label} {when} {graph[need.dependency].label}: {need.reason}, "
            "but does not depend on it; pass an output of that resource, or add it to depends_on",
        )
    if broken:
        raise DependencyError("\n".join(broken.values()))


@dataclass(frozen=True)
class DeletionPlan:
    """Plan for the deletion of stacks.

    Attributes:
        deleted: Resources that a provider deletes, in order.
        retained: Resources that remain, with the reason: they are protected, or a protected resource needs them.
        removed_from_state: Resources that Pulumi removes from its state but keeps in the cloud.
    """

    deleted: tuple[Resource, ...]
    retained: tuple[tuple[Resource, str], ...]
    removed_from_state: tuple[Resource, ...]


def plan_teardown(graphs: Iterable[Graph]) -> DeletionPlan:
    """Plan the deletion of stacks in the reverse order of their creation, and check each step.

    Args:
        graphs: Created stacks, in the order of their creation.

    Raises:
        DependencyError: A resource would be deleted before another one that needs it.
    """
    created = list(graphs)
    resources = [resource for graph in created for resource in graph.resources]
    needs = _collect_all_dependencies(created)
    retained = _find_retention_reasons(resources, needs)
    deleted: list[Resource] = []
    removed_from_state: list[Resource] = []
    alive = {resource.urn: resource for resource in resources}
    managed = {resource.urn for graph in created for resource in graph.iter_managed_resources()}
    for resource in reversed(resources):
        if resource.urn in retained:
            continue
        holder = next((other for other in alive.values() if resource.urn in needs[other.urn]), None)
        if holder:
            raise DependencyError(f"{resource.label} would be deleted before {holder.label}, which needs it")
        del alive[resource.urn]
        if resource.urn in managed:
            (removed_from_state if resource.retain_on_delete else deleted).append(resource)
    staying = [resource for resource in resources if resource.urn in retained and resource.urn in managed]
    reasons = tuple((resource, retained[resource.urn]) for resource in staying)
    return DeletionPlan(tuple(deleted), reasons, tuple(removed_from_state))


def _collect_all_dependencies(graphs: list[Graph]) -> dict[str, set[str]]:
    """Return the dependencies of each resource, including dependencies on values from earlier stacks."""
    combined = Graph("", "", tuple(resource for graph in graphs for resource in graph.resources))
    needs = {resource.urn: set(resource.dependency_reasons) for resource in combined.resources}
    for need in find_implied_dependencies(combined):
        needs[need.resource].add(need.dependency)
    return needs


def _find_retention_reasons(resources: list[Resource], needs: dict[str, set[str]]) -> dict[str, str]:
    reasons = {resource.urn: "protected" for resource in resources if resource.protect}
    waiting = [resource for resource in resources if resource.protect]
    labels = {resource.urn: resource for resource in resources}
    while waiting:
        current = waiting.pop()
        for urn in needs[current.urn] - reasons.keys():
            if urn in labels:
                reasons[urn] = f"needed by {current.label}"
                waiting.append(labels[urn])
    return reasons
