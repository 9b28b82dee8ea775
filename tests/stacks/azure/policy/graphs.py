"""What the real programs emit, as a policy sees it, and ways to damage it."""

import copy
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from pulumi_policy.deserialize import deserialize_properties

from blueprint.contract.images import Image
from blueprint.file.model.deployment import Deployment
from sandbox.azure.graph import Graph
from sandbox.azure.recorder import Existing, Mode
from sandbox.azure.values import encode
from stacks.azure.policy.pack import RULES
from stacks.azure.policy.rules import Found, Resource, Rule, Stack
from stacks.azure.policy.values import Value
from tests.blueprint.documents import Edits, load_text
from tests.stacks.azure import recorded

Json = dict[str, Any]

DIGESTS: Edits = {
    "images": {image.value: f"sha256:{number:064x}" for number, image in enumerate(Image, start=1)},
    "azure.hub_token_secret": "hub-token",
}
"""Every image is there, so that nothing is held back; and a token for gated models."""
CLUSTER, WORKLOADS = "cluster", "workloads"


@dataclass
class Emitted:
    """The resources of one stack, to be changed: ``props`` of each are its own copy."""

    resources: list[Resource]
    deployment: Edits = field(default_factory=dict)

    def props(self, kind: str, name: str) -> Json:
        """Return the properties of the one resource of a kind and name."""
        found = [r for r in self.resources if r.type.endswith(f":{kind}") and r.name == name]
        assert len(found) == 1, f"{len(found)} of {kind} {name}"
        assert isinstance(found[0].props.raw, dict)
        return found[0].props.raw

    def pod(self, name: str, kind: str = "Deployment") -> Json:
        """Return the pod specification of a workload."""
        spec: Json = self.props(kind, name)["spec"]["template"]["spec"]
        return spec

    def container(self, name: str, container: str = "engine", kind: str = "Deployment") -> Json:
        """Return a container of a workload, sidecars and init containers too."""
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
        """Replace what properties of a resource are computed from."""
        for index, resource in enumerate(self.resources):
            if resource.type.endswith(f":{kind}") and resource.name == name:
                self.resources[index] = Resource(
                    resource.urn, resource.type, name, resource.props, {**resource.needs, **needs}
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
def deployment(*edits: tuple[str, object]) -> Deployment:
    """Load the shipped deployment with digests and further edits."""
    with tempfile.TemporaryDirectory() as folder:
        return load_text(recorded.edited({**DIGESTS, **dict(edits)}), Path(folder))


@functools.cache
def recorded_graph(project: str, mode: Mode) -> Graph:
    """Run a program, once."""
    text = recorded.edited(DIGESTS)
    if project == CLUSTER:
        return recorded.record(CLUSTER, text, mode=mode)
    return workloads(text, recorded_graph(CLUSTER, Mode.UP), mode)


def workloads(text: str, cluster: Graph, mode: Mode = Mode.UP) -> Graph:
    """Run the workloads' program on a cluster."""
    stack = f"local/voice-cluster/{recorded.STACK}"
    return recorded.record(WORKLOADS, text, Existing().with_stack(stack, cluster), mode)


def emitted(project: str, mode: Mode = Mode.UP, *, outputs: bool = False) -> Emitted:
    """Return what a program emits, as it travels to a policy: inputs of each resource, or what the provider answers."""
    return Emitted(copy.deepcopy(_travelled(project, mode, outputs)))


@functools.cache
def _travelled(project: str, mode: Mode, outputs: bool) -> list[Resource]:
    return travelled(recorded_graph(project, mode), outputs=outputs)


def travelled(graph: Graph, *, outputs: bool = False) -> list[Resource]:
    """Return the resources of a graph as a policy sees them."""
    return [
        Resource(
            resource.urn,
            resource.type,
            resource.name,
            Value(
                deserialize_properties(
                    json_format.MessageToDict(
                        encode(resource.outputs if outputs or resource.external else resource.inputs)
                    )
                )
            ),
            dict(resource.property_dependencies),
        )
        for resource in graph.resources
    ]


def found_in(graph: Emitted) -> list[tuple[Rule, Found]]:
    """Return what the rules find."""
    return violations(Stack(tuple(graph.resources), deployment(*_hashable(graph.deployment))))


def violations(stack: Stack) -> list[tuple[Rule, Found]]:
    """Return everything that is wrong with a stack."""
    return [(rule, found) for rule in RULES for found in rule.examine(stack)]


def _hashable(edits: Edits) -> Iterator[tuple[str, object]]:
    return ((key, tuple(value) if isinstance(value, list) else value) for key, value in edits.items())


Damage = Callable[[Emitted], None]


@dataclass(frozen=True)
class Mutation:
    """A mistake in what a program emits.

    Attributes:
        rules: Names of the rules that may refuse it; the first one has to.
        says: Words of the refusal.
        blind: Whether the rules caught it when it was new: as they stood before anybody had thought of it.
        deployment: Edits of the deployment file that go with it.
    """

    name: str
    project: str
    damage: Damage
    rules: tuple[str, ...]
    says: tuple[str, ...] = ()
    deployment: Mapping[str, object] = field(default_factory=dict)
    blind: bool = False

    def planted(self) -> Emitted:
        """Return the graph with the mistake."""
        graph = emitted(self.project)
        graph.deployment = self.deployment
        self.damage(graph)
        return graph
