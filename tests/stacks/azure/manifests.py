"""Manifests of the workloads, and their validation with Kubernetes' schemas."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from tests.blueprint.documents import Edits
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs, record
from voice_blueprint import catalog
from voice_blueprint.azure.contract import COMPONENT_LABEL, SERVICE_LABEL, Component
from voice_blueprint.azure.names import POOL_LABEL
from voice_blueprint.catalog import VmSize
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.azure import Azure, AzureService
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.recorder import PreexistingResources, RunMode

Manifest = dict[str, Any]

KUBERNETES = "1.36"
"""Newest Kubernetes version that the shipped file may use; schemas of the next version have additional fields."""
DIGESTS = {image.value: f"sha256:{index:064x}" for index, image in enumerate(Image, start=1)}
"""Digests of all images, so that all workloads have replicas."""

_SUFFIXES: dict[str, int | Decimal] = {
    "": 1, "m": Decimal("0.001"), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
GIB = 2**30


def quantity(text: str) -> Decimal:
    """Return the exact value of a Kubernetes quantity.

    Raises:
        ValueError: The quantity is invalid; the schemas accept any text.
    """
    number = text.rstrip("kKmMGTi")
    suffix = text[len(number) :]
    try:
        return Decimal(number) * _SUFFIXES[suffix]
    except (InvalidOperation, KeyError):
        raise ValueError(f"{text!r} is no quantity") from None


@dataclass(frozen=True)
class Pod:
    """The pods of one Deployment, DaemonSet or Job."""

    owner: Manifest

    @property
    def name(self) -> str:
        return str(self.owner["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.owner["metadata"]["namespace"])

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.owner["spec"]["template"]["metadata"]["labels"])

    @property
    def spec(self) -> Manifest:
        return dict(self.owner["spec"]["template"]["spec"])

    @property
    def init(self) -> list[Manifest]:
        return [each for each in self.spec.get("initContainers", []) if each.get("restartPolicy") != "Always"]

    @property
    def sidecars(self) -> list[Manifest]:
        return [each for each in self.spec.get("initContainers", []) if each.get("restartPolicy") == "Always"]

    @property
    def main(self) -> list[Manifest]:
        return list(self.spec["containers"])

    @property
    def running(self) -> list[Manifest]:
        return [*self.sidecars, *self.main]

    @property
    def containers(self) -> list[Manifest]:
        return [*self.init, *self.running]

    def container(self, name: str) -> Manifest:
        (found,) = (each for each in self.containers if each["name"] == name)
        return found

    def requested(self, resource: str) -> Decimal:
        """Return the amount for the scheduler: the sum of containers, or the largest init container."""
        together = sum((requested_amount(each, resource) for each in self.running), Decimal(0))
        return max([together, *(requested_amount(each, resource) for each in self.init)])


def requested_amount(container: Manifest, resource: str) -> Decimal:
    return quantity(container["resources"]["requests"].get(resource, "0"))


def variables(container: Manifest) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


@cache
def workloads(deployment: str, mode: RunMode = RunMode.UP) -> Graph:
    """Record the workloads' program on the cluster of the same deployment."""
    made = PreexistingResources().with_stack("local/voice-cluster/test", cluster(deployment))
    return record("workloads", deployment, made, mode)


def production(edits: Edits | None = None) -> str:
    """Return the shipped file with a digest for every image."""
    return edit_deployment({"images": DIGESTS, **(edits or {})})


def manifests(graph: Graph, *kinds: str) -> list[Manifest]:
    found = [inputs(resource) for resource in graph.iter_managed_resources() if resource.type.startswith("kubernetes:")]
    return [each for each in found if not kinds or each["kind"] in kinds]


def pods(graph: Graph) -> list[Pod]:
    return [Pod(owner) for owner in manifests(graph, "Deployment", "DaemonSet", "Job")]


def pod(graph: Graph, name: str) -> Pod:
    (found,) = (each for each in pods(graph) if each.name == name)
    return found


def quantities(value: object, key: str = "") -> Iterator[str]:
    """Yield every quantity of an object: all of requests, limits and quotas, and each size limit."""
    if isinstance(value, dict):
        for name, below in value.items():
            whole = key in ("requests", "limits", "hard", "default", "defaultRequest")
            if (whole or name == "sizeLimit") and isinstance(below, str):
                yield below
            else:
                yield from quantities(below, name)
    elif isinstance(value, list):
        for below in value:
            yield from quantities(below)


def problems(manifest: Manifest) -> list[str]:
    """Return the errors of Kubernetes' schema and of quantity parsing."""
    found = []
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        found.append(f"{'.'.join(map(str, error.path))}: {error.message}")
    for text in quantities(manifest):
        try:
            quantity(text)
        except ValueError as error:
            found.append(str(error))
    return found


def engine_pods(graph: Graph) -> list[Pod]:
    return [each for each in pods(graph) if each.labels[COMPONENT_LABEL] == Component.ENGINE]


def vm_size_for(each: Pod, azure: Azure) -> VmSize:
    (pool,) = (pool for pool in azure.pools if pool.name == each.labels[POOL_LABEL])
    return catalog.vm_sizes()[pool.vm_size]


def service_for(each: Pod, azure: Azure) -> AzureService:
    (service,) = (service for service in azure.services if service.name == each.labels[SERVICE_LABEL])
    return service
