"""The result of a run of a Pulumi program: its resources and the edges between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from voice_sandbox.azure.values import Properties

STACK_TYPE = "pulumi:pulumi:Stack"
STACK_REFERENCE_TYPE = "pulumi:pulumi:StackReference"
PROVIDER_PREFIX = "pulumi:providers:"


@dataclass(frozen=True)
class Resource:
    """A resource of a program, with its options.

    Attributes:
        urn: Unique name in Pulumi.
        type: Type token, such as `azure-native:containerservice:AgentPool`.
        name: Name in the program.
        parent: URN of its parent; `None` for the stack itself.
        custom: Whether a provider manages it; False for a component.
        id: Id that the provider has assigned; `None` in a preview and for components.
        inputs: Inputs of the program, with names filled in as by the provider.
        outputs: Outputs of the provider: the inputs, and computed values (`UNKNOWN` in a preview).
        dependencies: Sorted URNs of all resources to which its inputs or its `depends_on` refer.
        property_dependencies: Sorted URNs by input.
        provider: URN of an explicit provider.
        protect: Whether Pulumi refuses to delete it.
        retain_on_delete: Whether a deletion keeps it in the cloud.
        deleted_with: URN of the resource whose deletion includes this one.
        aliases: Previous URNs.
        delete_before_replace: The option of that name; `None` for the provider's default.
        ignore_changes: Input paths whose changes are ignored.
        replace_on_changes: Input paths whose changes replace it.
        additional_secret_outputs: Outputs that are secret.
        timeouts: Custom timeouts by operation, such as `{"create": "60m"}`.
        external: Whether it was created elsewhere and is only read.
    """

    urn: str
    type: str
    name: str
    parent: str | None = None
    custom: bool = True
    id: str | None = None
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provider: str | None = None
    protect: bool = False
    retain_on_delete: bool = False
    deleted_with: str | None = None
    aliases: tuple[str, ...] = ()
    delete_before_replace: bool | None = None
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    additional_secret_outputs: tuple[str, ...] = ()
    timeouts: Mapping[str, str] = field(default_factory=dict)
    external: bool = False

    @property
    def label(self) -> str:
        """Readable type and name, such as `containerservice:AgentPool "gpu"`."""
        return f'{shorten_type(self.type)} "{self.name}"'

    @property
    def dependency_reasons(self) -> dict[str, str]:
        """Reason for each dependency, by URN. A dependency is created before the resource and deleted after it."""
        reasons: dict[str, str] = {}
        if self.parent:
            reasons[self.parent] = "its parent"
        if self.provider:
            reasons[self.provider] = "its provider"
        if self.deleted_with:
            reasons[self.deleted_with] = "it is deleted with it"
        reasons |= dict.fromkeys(self.dependencies, "it depends on it")
        for name, urns in self.property_dependencies.items():
            reasons |= dict.fromkeys(urns, f"its input {name} comes from it")
        return reasons


@dataclass(frozen=True)
class Graph:
    """All resources of a stack, in the order of their registration.

    Attributes:
        project: Project name.
        stack: Stack name.
        resources: The resources; the stack itself is the first.
        outputs: Exports of the stack.
    """

    project: str
    stack: str
    resources: tuple[Resource, ...] = ()
    outputs: Properties = field(default_factory=dict)

    @cached_property
    def resources_by_urn(self) -> dict[str, Resource]:
        return {resource.urn: resource for resource in self.resources}

    def __getitem__(self, urn: str) -> Resource:
        return self.resources_by_urn[urn]

    def __contains__(self, urn: object) -> bool:
        return urn in self.resources_by_urn

    def __len__(self) -> int:
        return len(self.resources)

    def find_resources_of_type(self, kind: str) -> list[Resource]:
        """Return the resources of a type, which may be short, such as `containerservice:AgentPool`."""
        return [resource for resource in self.resources if kind in (resource.type, shorten_type(resource.type))]

    def get_resource(self, name: str, kind: str | None = None) -> Resource:
        """Return the only resource with a name, and optionally a type.

        Raises:
            KeyError: There is not exactly one such resource.
        """
        matches = [
            resource
            for resource in (self.find_resources_of_type(kind) if kind else self.resources)
            if resource.name == name
        ]
        if len(matches) != 1:
            raise KeyError(f"{len(matches)} resources are called {name!r}" + (f" and are a {kind}" if kind else ""))
        return matches[0]

    def list_children(self, urn: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.parent == urn]

    def find_all_dependencies(self, urn: str) -> set[str]:
        """Return the URNs of all direct and indirect dependencies of a resource.

        As in Pulumi's own SDKs, a dependency on a component includes its children; the dependency on a parent does not.
        """
        matches: set[str] = set()
        waiting = list(self.resources_by_urn[urn].dependency_reasons)
        while waiting:
            current = waiting.pop()
            if current not in matches and current in self.resources_by_urn:
                matches.add(current)
                waiting.extend(self.resources_by_urn[current].dependency_reasons)
        return matches

    def iter_managed_resources(self) -> Iterator[Resource]:
        """Yield the resources that a provider would create.

        Components, providers and resources that are only read are excluded.
        """
        for resource in self.resources:
            if resource.custom and not resource.external and not resource.type.startswith(PROVIDER_PREFIX):
                yield resource

    def count_by_type(self) -> Counter[str]:
        """Count the managed resources by short type."""
        return Counter(shorten_type(resource.type) for resource in self.iter_managed_resources())


def make_urn(stack: str, project: str, parent: str | None, kind: str, name: str) -> str:
    """Return the Pulumi URN for a resource, which includes the parents' types."""
    qualified = kind
    if parent:
        above = parent.split("::", 3)[2]
        if above != STACK_TYPE:
            qualified = f"{above}${kind}"
    return f"urn:pulumi:{stack}::{project}::{qualified}::{name}"


def shorten_type(kind: str) -> str:
    """Return a type without redundant parts, such as `containerservice:AgentPool` or `apps/v1:Deployment`."""
    for prefix in ("azure-native:", "kubernetes:", "pulumi:pulumi:", "pulumi:"):
        if kind.startswith(prefix):
            return kind.removeprefix(prefix)
    return kind


def format_resource_label(graph: Graph | Mapping[str, Resource], urn: str) -> str:
    """Return the label of a resource. If the graph does not contain the resource, the label is derived from the URN."""
    resources_by_urn = graph.resources_by_urn if isinstance(graph, Graph) else graph
    if urn in resources_by_urn:
        return resources_by_urn[urn].label
    _, types, name = urn.rsplit("::", 2)
    return f'{shorten_type(types.rpartition("$")[2])} "{name}"'
