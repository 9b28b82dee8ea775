"""Compares the Kubernetes Deployments that a file defines with the Deployments in a cluster."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.azure.cluster import KubernetesClient
from voice_sandbox.azure.values import reveal_secrets
from voice_sandbox.rehearsals.azure import Rehearsal
from voice_stacks.azure.policy.quantities import QuantityError, parse_quantity

IMAGE_PATTERN = re.compile(r"[^/@]+/(?P<name>[^@]+)@(?P<digest>sha256:[0-9a-f]{64})")
FILE_DERIVED_OUTPUTS = {
    ClusterOutput.DEPLOYMENT,
    ClusterOutput.LOCATION,
    ClusterOutput.RESOURCE_GROUP,
    ClusterOutput.CLUSTER_NAME,
}
"""Outputs of the cluster project whose values are derived from the file. Azure determines all other outputs."""
MIN_OUTPUT_LENGTH = 8
"""Minimum length of an output that can be recognized within a setting."""
FAILURE_REASONS = {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImagePull",
             "ImagePullBackOff", "InvalidImageName", "RunContainerError"}  # fmt: skip
"""Waiting reasons of containers that cannot start without intervention.
https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet (images/types.go, kuberuntime)"""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class DefinedWorkloads:
    """The Deployments that a file defines.

    Attributes:
        deployments: Deployments of the file by namespace and name.
        placeholders: Placeholders for values that Azure determines when it creates a cluster. Settings with a
            placeholder cannot be compared.
    """

    deployments: Mapping[tuple[str, str], Manifest]
    placeholders: frozenset[str]

    @property
    def namespaces(self) -> list[str]:
        return sorted({namespace for namespace, _ in self.deployments})


@dataclass(frozen=True)
class LiveDeployment:
    """A Deployment in the cluster, and the problems with its pods."""

    manifest: Manifest
    problems: tuple[str, ...]

    @property
    def desired_replica_count(self) -> int:
        return int(self.manifest["spec"].get("replicas", 1))

    @property
    def available_replica_count(self) -> int:
        return int(self.manifest.get("status", {}).get("availableReplicas", 0))

    @property
    def updated_replica_count(self) -> int:
        return int(self.manifest.get("status", {}).get("updatedReplicas", 0))

    @property
    def is_rolled_out(self) -> bool:
        """Whether all pods are updated and available, by the rules of ``kubectl rollout status``.

        https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/rollout_status.go
        """
        status = self.manifest.get("status", {})
        is_observed = status.get("observedGeneration", 0) >= self.manifest["metadata"].get("generation", 0)
        return bool(
            is_observed
        ) and self.desired_replica_count == self.updated_replica_count == self.available_replica_count == int(
            status.get("replicas", 0)
        )


def evaluate_workloads(deployment: Deployment) -> DefinedWorkloads:
    """Run the programs of a file on the local engine, and return the Deployments that they define.

    Raises:
        EngineError: A program fails.
    """
    with Rehearsal.from_deployment(deployment) as rehearsal:
        cluster, workloads = (each.up.graph for each in rehearsal.run())
    outputs = {key: reveal_secrets(value) for key, value in cluster.outputs.items() if key not in FILE_DERIVED_OUTPUTS}
    manifests = [
        reveal_secrets(each.inputs) for each in workloads.find_resources_of_type("kubernetes:apps/v1:Deployment")
    ]
    return DefinedWorkloads(
        {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in manifests},
        frozenset(text for text in _iter_nested_texts(outputs) if len(text) >= MIN_OUTPUT_LENGTH),
    )


def fetch_live_deployments(
    kubernetes: KubernetesClient, namespaces: list[str]
) -> dict[tuple[str, str], LiveDeployment]:
    """Return the Deployments in the given namespaces of the cluster, by namespace and name."""
    results = {}
    for namespace in namespaces:
        pods = kubernetes.list_objects(f"/api/v1/namespaces/{namespace}/pods")
        for each in kubernetes.list_objects(f"/apis/apps/v1/namespaces/{namespace}/deployments"):
            selected = each["spec"]["selector"]["matchLabels"].items()
            matching_pods = [pod for pod in pods if selected <= pod["metadata"].get("labels", {}).items()]
            problems = dict.fromkeys(text for pod in matching_pods for text in _find_pod_problems(pod))
            results[namespace, each["metadata"]["name"]] = LiveDeployment(each, tuple(problems))
    return results


def extract_image_digests(manifest: Manifest) -> dict[str, str]:
    """Return the digests of the images in a Deployment's pods, by name of the image."""
    spec = manifest["spec"]["template"]["spec"]
    images = [each["image"] for key in ("initContainers", "containers") for each in spec.get(key) or ()]
    return {result["name"]: result["digest"] for result in map(IMAGE_PATTERN.fullmatch, images) if result}


def find_changed_settings(new: DefinedWorkloads, key: tuple[str, str], old: Manifest) -> list[str]:
    """Return the paths of the pod settings that a deploy of the file would change."""
    return list(
        _find_changed_paths(new.deployments[key]["spec"]["template"], old["spec"]["template"], new.placeholders, "")
    )


def _find_changed_paths(new: Any, old: Any, placeholders: frozenset[str], path: str) -> Iterator[str]:  # noqa: ANN401  values of a manifest
    """Yield the paths of the settings that differ between a manifest and an object in the cluster.

    Settings that only exist in the cluster are defaults, and are not compared.
    """
    if isinstance(new, dict):
        for key, value in new.items():
            child_path = f"{path}.{key}" if path else key
            yield from _find_changed_paths(
                value, old.get(key) if isinstance(old, dict) else None, placeholders, child_path
            )
    elif isinstance(new, list) and (key := _find_identifying_key(new)):
        by_key = {each.get(key): each for each in old or () if isinstance(each, dict)}
        for each in new:
            yield from _find_changed_paths(each, by_key.get(each[key]), placeholders, f"{path}[{each[key]}]")
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        for index, (item, other) in enumerate(zip(new, old, strict=True)):
            yield from _find_changed_paths(item, other, placeholders, f"{path}[{index}]")
    elif not _is_equal(new, old, placeholders):
        yield path


def _find_identifying_key(items: list[Any]) -> str | None:
    """Return the key that identifies the items of a list, or None if no key is unique."""
    for key in ("name", "mountPath", "containerPort"):
        values = [each.get(key) for each in items if isinstance(each, dict)]
        if items and len(set(values) - {None}) == len(items):
            return key
    return None


def _is_equal(new: Any, old: Any, placeholders: frozenset[str]) -> bool:  # noqa: ANN401
    if new == old or (not new and old is None):  # the API server omits empty values
        return True
    if not isinstance(new, str) or not isinstance(old, str):
        return False
    if (item := IMAGE_PATTERN.fullmatch(new)) and (other := IMAGE_PATTERN.fullmatch(old)):
        return item.groupdict() == other.groupdict()
    if any(value in new for value in placeholders):
        return True
    try:
        return parse_quantity(new) == parse_quantity(old)
    except QuantityError:
        return False


def _iter_nested_texts(value: Any) -> Iterator[str]:  # noqa: ANN401  outputs of a stack
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _iter_nested_texts(each)


def _find_pod_problems(pod: Manifest) -> Iterator[str]:
    """Yield the reasons why a pod does not start."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"], condition.get("reason")) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        ):
            yield f"a pod cannot be scheduled: {condition.get('message', 'no reason given')}"
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(key) or ():
            waiting = each.get("state", {}).get("waiting", {})
            if waiting.get("reason") in FAILURE_REASONS:
                yield f"container {each['name']}: {waiting['reason']}"
