"""The Deployments that a file defines, and their differences from those of a cluster."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.azure.cluster import Kubernetes
from voice_sandbox.azure.values import reveal
from voice_sandbox.rehearsals.azure import Rehearsal
from voice_stacks.azure.policy.quantities import QuantityError, quantity

IMAGE = re.compile(r"[^/@]+/(?P<name>[^@]+)@(?P<digest>sha256:[0-9a-f]{64})")
OWN_NAMES = {ClusterOutput.DEPLOYMENT, ClusterOutput.LOCATION, ClusterOutput.RESOURCE_GROUP, ClusterOutput.CLUSTER_NAME}
"""Outputs of the cluster that are derived from the file; Azure determines the others."""
SHORTEST_OUTPUT = 8
"""Minimum length of an output that can be recognized within a setting."""
BAD_WAITS = {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImagePull",
             "ImagePullBackOff", "InvalidImageName", "RunContainerError"}  # fmt: skip
"""Reasons for which a container waits and does not start without intervention.
https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet (images/types.go, kuberuntime)"""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """Resources that a file defines.

    Attributes:
        deployments: Its Deployments by namespace and name.
        chosen: Values that Azure determines when a cluster is created; here they are placeholders, so settings that
            contain one cannot be compared.
    """

    deployments: Mapping[tuple[str, str], Manifest]
    chosen: frozenset[str]

    @property
    def namespaces(self) -> list[str]:
        return sorted({namespace for namespace, _ in self.deployments})


@dataclass(frozen=True)
class Live:
    """A Deployment of the cluster, and the reasons why pods of it do not run."""

    manifest: Manifest
    troubles: tuple[str, ...]

    @property
    def desired(self) -> int:
        return int(self.manifest["spec"].get("replicas", 1))

    @property
    def available(self) -> int:
        return int(self.manifest.get("status", {}).get("availableReplicas", 0))

    @property
    def updated(self) -> int:
        return int(self.manifest.get("status", {}).get("updatedReplicas", 0))

    @property
    def rolled_out(self) -> bool:
        """Whether every pod is updated and available, by the rules of ``kubectl rollout status``.

        https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/rollout_status.go
        """
        status = self.manifest.get("status", {})
        seen = status.get("observedGeneration", 0) >= self.manifest["metadata"].get("generation", 0)
        return bool(seen) and self.desired == self.updated == self.available == int(status.get("replicas", 0))


def wanted(deployment: Deployment) -> Wanted:
    """Run the file's programs on the local engine.

    Raises:
        EngineError: A program fails.
    """
    with Rehearsal.of(deployment) as rehearsal:
        cluster, workloads = (each.up.graph for each in rehearsal.run())
    outputs = {key: reveal(value) for key, value in cluster.outputs.items() if key not in OWN_NAMES}
    manifests = [reveal(each.inputs) for each in workloads.of_type("kubernetes:apps/v1:Deployment")]
    return Wanted(
        {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in manifests},
        frozenset(text for text in _texts(outputs) if len(text) >= SHORTEST_OUTPUT),
    )


def live(kubernetes: Kubernetes, namespaces: list[str]) -> dict[tuple[str, str], Live]:
    """Return the Deployments of the cluster by namespace and name."""
    results = {}
    for namespace in namespaces:
        pods = kubernetes.items(f"/api/v1/namespaces/{namespace}/pods")
        for each in kubernetes.items(f"/apis/apps/v1/namespaces/{namespace}/deployments"):
            selected = each["spec"]["selector"]["matchLabels"].items()
            own = [pod for pod in pods if selected <= pod["metadata"].get("labels", {}).items()]
            troubles = dict.fromkeys(text for pod in own for text in _troubles(pod))
            results[namespace, each["metadata"]["name"]] = Live(each, tuple(troubles))
    return results


def digests(manifest: Manifest) -> dict[str, str]:
    """Return the digest of each image of a Deployment's pods, by the image's name."""
    spec = manifest["spec"]["template"]["spec"]
    images = [each["image"] for key in ("initContainers", "containers") for each in spec.get(key) or ()]
    return {result["name"]: result["digest"] for result in map(IMAGE.fullmatch, images) if result}


def differences(new: Wanted, key: tuple[str, str], old: Manifest) -> list[str]:
    """Return the settings of a pod that a deploy of the file would change, which replaces the Deployment's pods."""
    return list(_compare(new.deployments[key]["spec"]["template"], old["spec"]["template"], new.chosen, ""))


def _compare(new: Any, old: Any, chosen: frozenset[str], at: str) -> Iterator[str]:  # noqa: ANN401  parts of a manifest
    """Yield the differences of a cluster's object from a manifest.

    Settings that only the cluster has are its defaults.
    """
    if isinstance(new, dict):
        for key, value in new.items():
            below = f"{at}.{key}" if at else key
            yield from _compare(value, old.get(key) if isinstance(old, dict) else None, chosen, below)
    elif isinstance(new, list) and (key := _key(new)):
        resource_named = {each.get(key): each for each in old or () if isinstance(each, dict)}
        for each in new:
            yield from _compare(each, resource_named.get(each[key]), chosen, f"{at}[{each[key]}]")
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        for index, (one, other) in enumerate(zip(new, old, strict=True)):
            yield from _compare(one, other, chosen, f"{at}[{index}]")
    elif not _equal(new, old, chosen):
        yield at


def _key(items: list[Any]) -> str | None:
    """Return the key that identifies an item of a list. A volume may have several mounts."""
    for key in ("name", "mountPath", "containerPort"):
        values = [each.get(key) for each in items if isinstance(each, dict)]
        if items and len(set(values) - {None}) == len(items):
            return key
    return None


def _equal(new: Any, old: Any, chosen: frozenset[str]) -> bool:  # noqa: ANN401
    if new == old or (not new and old is None):  # the API server omits empty values
        return True
    if not isinstance(new, str) or not isinstance(old, str):
        return False
    if (one := IMAGE.fullmatch(new)) and (other := IMAGE.fullmatch(old)):
        return one.groupdict() == other.groupdict()
    if any(value in new for value in chosen):
        return True
    try:
        return quantity(new) == quantity(old)
    except QuantityError:
        return False


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401  outputs of a stack
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _troubles(pod: Manifest) -> Iterator[str]:
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
            if waiting.get("reason") in BAD_WAITS:
                yield f"container {each['name']}: {waiting['reason']}"
