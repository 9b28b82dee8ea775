"""Output of the real programs as passed to policies, and functions that mutate it."""

import copy
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from pulumi_policy.deserialize import deserialize_properties

from tests.blueprint.documents import Edits, load_text
from tests.stacks.azure import recorded
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.deployment import Deployment
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.recorder import PreexistingResources, RunMode
from voice_sandbox.azure.values import encode_properties
from voice_stacks.azure.policy.pack import RULES
from voice_stacks.azure.policy.rules import Resource, Rule, Stack, Violation
from voice_stacks.azure.policy.values import Value

Json = dict[str, Any]

DIGESTS: Edits = {
    "images": {image.value: f"sha256:{number:064x}" for number, image in enumerate(Image, start=1)},
    "azure.hub_token_secret": "hub-token",
}
"""Edits that set a digest for every image, so that all workloads have replicas, and a token for gated models."""
CLUSTER, WORKLOADS = "cluster", "workloads"
CALLERS = "workloads with callers"
"""The workloads of the shipped file with callers."""
EDGE = "cluster with callers"
"""The cluster of the same file."""
SHIPPED = {CALLERS: "production-azure", EDGE: "production-azure"}
"""Deployment files of graphs other than those of ``cells.yaml``."""


@dataclass
class Emitted:
    """The resources of one stack, which can be changed: the ``props`` of each are a copy."""

    resources: list[Resource]
    deployment: Edits = field(default_factory=dict)
    file: str = "cells"

    def props(self, kind: str, name: str) -> Json:
        """Return the properties of the only resource of a kind and name."""
        found = [r for r in self.resources if r.type.endswith(f":{kind}") and r.name == name]
        assert len(found) == 1, f"{len(found)} of {kind} {name}"
        assert isinstance(found[0].props.raw, dict)
        return found[0].props.raw

    def pod(self, name: str, kind: str = "Deployment") -> Json:
        """Return the pod specification of a workload."""
        spec: Json = self.props(kind, name)["spec"]["template"]["spec"]
        return spec

    def container(self, name: str, container: str = "engine", kind: str = "Deployment") -> Json:
        """Return a container of a workload, including sidecars and init containers."""
        pod = self.pod(name, kind)
        both = [*pod.get("initContainers", []), *pod["containers"]]
        found: Json = next(entry for entry in both if entry["name"] == container)
        return found

    def drop(self, kind: str, name: str) -> None:
        """Remove a resource."""
        self.props(kind, name)
        self.resources = [r for r in self.resources if not (r.type.endswith(f":{kind}") and r.name == name)]

    def add(self, kind: str, name: str, props: Json) -> None:
        """Add a resource."""
        self.resources.append(Resource(f"urn:pulumi:test::added::{kind}::{name}", kind, name, Value(props)))

    def needs(self, kind: str, name: str, **needs: tuple[str, ...]) -> None:
        """Replace the inputs of a resource's properties."""
        for index, resource in enumerate(self.resources):
            if resource.type.endswith(f":{kind}") and resource.name == name:
                self.resources[index] = Resource(
                    resource.urn, resource.type, name, resource.props, {**resource.dependencies, **needs}
                )


def limits(container: Json, **amounts: str) -> None:
    """Set requests and limits of a container: ``cpu``, ``memory``, ``gpu``."""
    for kind, amount in amounts.items():
        key = "nvidia.com/gpu" if kind == "gpu" else kind
        for side in ("requests", "limits"):
            container["resources"][side][key] = amount


def flag(container: Json, name: str, value: str | None) -> None:
    """Set a flag of a container's command, or remove it."""
    command = container["command"]
    if name in command:
        at = command.index(name)
        del command[at : at + 2]
    if value is not None:
        command += [name, value]


def variable(container: Json, name: str, value: str) -> None:
    """Set a variable of a container."""
    container["env"] = [entry for entry in container["env"] if entry["name"] != name] + [{"name": name, "value": value}]


@functools.cache
def deployment(*edits: tuple[str, object], file: str = "cells") -> Deployment:
    """Load a shipped deployment with digests and further edits."""
    with tempfile.TemporaryDirectory() as folder:
        return load_text(recorded.edit_deployment({**DIGESTS, **dict(edits)}, file), Path(folder))


@functools.cache
def recorded_graph(project: str, mode: RunMode) -> Graph:
    """Run a program, and cache the result."""
    text = recorded.edit_deployment(DIGESTS, SHIPPED.get(project, "cells"))
    if project in {CLUSTER, EDGE}:
        return recorded.record(CLUSTER, text, mode=mode)
    return workloads(text, recorded_graph(EDGE if project == CALLERS else CLUSTER, RunMode.UP), mode)


def workloads(text: str, cluster: Graph, mode: RunMode = RunMode.UP) -> Graph:
    """Run the workloads' program on a cluster."""
    stack = f"local/voice-cluster/{recorded.STACK}"
    return recorded.record(WORKLOADS, text, PreexistingResources().with_stack(stack, cluster), mode)


def emit(project: str, mode: RunMode = RunMode.UP, *, outputs: bool = False) -> Emitted:
    """Return a program's output as a policy receives it: inputs of each resource, or the provider's outputs."""
    return Emitted(copy.deepcopy(_policy_resources(project, mode, outputs)), file=SHIPPED.get(project, "cells"))


@functools.cache
def _policy_resources(project: str, mode: RunMode, outputs: bool) -> list[Resource]:
    return policy_resources(recorded_graph(project, mode), outputs=outputs)


def policy_resources(graph: Graph, *, outputs: bool = False) -> list[Resource]:
    """Return the resources of a graph as passed to a policy."""
    return [
        Resource(
            resource.urn,
            resource.type,
            resource.name,
            Value(
                deserialize_properties(
                    json_format.MessageToDict(
                        encode_properties(resource.outputs if outputs or resource.external else resource.inputs)
                    )
                )
            ),
            dict(resource.property_dependencies),
        )
        for resource in graph.resources
    ]


def findings_in(graph: Emitted) -> list[tuple[Rule, Violation]]:
    """Return the findings of the rules."""
    return violations(Stack(tuple(graph.resources), deployment(*_hashable(graph.deployment), file=graph.file)))


def violations(stack: Stack) -> list[tuple[Rule, Violation]]:
    """Return all violations of a stack."""
    return [(rule, found) for rule in RULES for found in rule.find_violations(stack)]


def _hashable(edits: Edits) -> Iterator[tuple[str, object]]:
    return ((key, tuple(value) if isinstance(value, list) else value) for key, value in edits.items())


Damage = Callable[[Emitted], None]


@dataclass(frozen=True)
class Mutation:
    """A mistake in a program's output.

    Attributes:
        rules: Names of the rules that may refuse it; the first one must.
        says: Expected part of the message.
        blind: Whether existing rules detected the mistake, which was added after them.
        deployment: Additional edits of the deployment file.
    """

    name: str
    project: str
    damage: Damage
    rules: tuple[str, ...]
    says: tuple[str, ...] = ()
    deployment: Mapping[str, object] = field(default_factory=dict)
    blind: bool = False

    def mutated_graph(self) -> Emitted:
        """Return the graph with the mistake."""
        graph = emit(self.project)
        graph.deployment = self.deployment
        self.damage(graph)
        return graph
