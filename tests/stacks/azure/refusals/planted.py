"""Cases of refusals: a shipped file's resources, changed so that a service refuses or accepts them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.stacks.azure.recorded import STACK, cluster, edit_deployment, record
from voice_sandbox.azure.diff import diff_graphs
from voice_sandbox.azure.graph import Graph, Resource, shorten_type
from voice_sandbox.azure.recorder import PreexistingResources
from voice_sandbox.azure.refusals import Rejection, find_rejections

REMOVED = object()
"""Marks a removed value."""

Values = Mapping[str, object]
Damage = Callable[[tuple[Resource, ...]], tuple[Resource, ...]]
Change = Values | Damage

GROUPS = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups"
HUB_SUBNETS = f"{GROUPS}/hub/providers/Microsoft.Network/virtualNetworks/hub/subnets"
ZONE = f"{GROUPS}/dns/providers/Microsoft.Network/privateDnsZones"
FILES = {
    "production": edit_deployment({}, "production-azure"),
    "cells": edit_deployment({}),
    "both": edit_deployment({}, "both"),
    "public": edit_deployment({"azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}}),
    "existing": edit_deployment(
        {
            "azure.access": {
                "kind": "existing-network",
                "nodes_subnet_id": f"{HUB_SUBNETS}/nodes",
                "endpoints_subnet_id": f"{HUB_SUBNETS}/endpoints",
                "egress": "route-table",
            }
        }
    ),
    "peered": edit_deployment(
        {
            "azure.access": {
                "kind": "peering",
                "network_id": f"{GROUPS}/hub/providers/Microsoft.Network/virtualNetworks/hub",
                "through_gateway": True,
            }
        }
    ),
    "reserved": edit_deployment(
        {
            "azure.pools.3.purchase": {
                "option": "capacity-reservation",
                "group_id": f"{GROUPS}/gpus/providers/Microsoft.Compute/capacityReservationGroups/gpus",
            },
        }
    ),
    "zone": edit_deployment({"azure.existing": {"private_dns_zones": [f"{ZONE}/privatelink.westus3.azmk8s.io"]}}),
}


@dataclass(frozen=True)
class Case:
    """A row of the table, with a refused and an accepted request.

    Attributes:
        row: Name of the row.
        kind: Type of the resource whose request is refused.
        name: Name of the resource in the program.
        wrong: Refused values by path, or a change of the whole stack.
        right: Values or change of an accepted request.
        says: Expected part of the response.
        file: The deployment file.
        update: Whether the resource already exists as in the file.
    """

    row: str
    kind: str
    name: str
    wrong: Change
    right: Change = field(default_factory=dict)
    says: str = ""
    file: str = "production"
    update: bool = False

    def answers(self, change: Change) -> list[Rejection]:
        """Return the responses to the changed stacks."""
        stacks = graphs(self.file)
        changed = [change_graph(graph, self.kind, self.name, change) for graph in stacks]
        steps = [step for old, new in zip(stacks, changed, strict=True) for step in diff_graphs(old, new)]
        return find_rejections(changed, steps if self.update else ())


@cache
def graphs(file: str) -> tuple[Graph, Graph]:
    """Return the output of both projects for a file."""
    first = cluster(FILES[file])
    stack = f"local/voice-cluster/{STACK}"
    return first, record("workloads", FILES[file], PreexistingResources().with_stack(stack, first))


def change_graph(graph: Graph, kind: str, name: str, change: Change) -> Graph:
    """Return a graph with one changed resource, or with a change of all resources."""
    if callable(change):
        return replace(graph, resources=change(graph.resources))
    return replace(
        graph, resources=tuple(_change_resource(r, change) if _is(r, kind, name) else r for r in graph.resources)
    )


def _is(resource: Resource, kind: str, name: str) -> bool:
    return (shorten_type(resource.type), resource.name) == (kind, name)


def _change_resource(resource: Resource, values: Values) -> Resource:
    inputs = copy.deepcopy(dict(resource.inputs))
    for path, value in values.items():
        set_at_path(inputs, path, value)
    return replace(resource, inputs=inputs)


def set_at_path(inputs: dict[str, Any], path: str, value: object) -> None:
    """Set a value at a path; numbers are list indexes, and one beyond the end appends."""
    *above, last = path.split(".")
    at: Any = inputs
    for part in above:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
    if isinstance(at, list):
        index = int(last)
        at[index : index + 1] = [] if value is REMOVED else [value]
    elif value is REMOVED:
        at.pop(last, None)
    else:
        at[last] = value


def without_resource(kind: str, name: str) -> Damage:
    """Remove a resource."""
    return lambda resources: tuple(resource for resource in resources if not _is(resource, kind, name))


def copy_resource(kind: str, name: str, copied: str, **values: object) -> Damage:
    """Add a copy of a resource with another name in the program."""

    def damage(resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
        added = [
            replace(_change_resource(r, values), name=copied, urn=f"{r.urn}-{copied}")
            for r in resources
            if _is(r, kind, name)
        ]
        return (*resources, *added)

    return damage


def changed(kind: str, name: str, **values: object) -> Damage:
    """Change a resource other than the refused one; double underscores in names of values are dots."""
    dotted = {path.replace("__", "."): value for path, value in values.items()}
    return lambda resources: tuple(_change_resource(r, dotted) if _is(r, kind, name) else r for r in resources)


def without_dependency(kind: str, name: str, other: str) -> Damage:
    """Remove a resource's dependencies on resources with a name."""

    def damage(resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
        gone = {resource.urn for resource in resources if resource.name == other}
        return tuple(
            replace(resource, dependencies=tuple(urn for urn in resource.dependencies if urn not in gone))
            if _is(resource, kind, name)
            else resource
            for resource in resources
        )

    return damage
