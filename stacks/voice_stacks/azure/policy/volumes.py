"""Rules on volume claims: their access modes must match the number of pods and be supported by the storage class."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from voice_blueprint.azure.contract import NVME_DIR
from voice_blueprint.azure.names import POOL_LABEL
from voice_stacks.azure.policy.cluster import collect_gpu_pools_by_name, collect_max_replicas_by_workload
from voice_stacks.azure.policy.pods import PodTemplate, list_pods
from voice_stacks.azure.policy.quantities import parse_gib
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, stack_rule
from voice_stacks.azure.policy.values import Value

SINGLE_NODE_ACCESS_MODE = "ReadWriteOnce"
SHARED_ACCESS_MODES = ("ReadWriteMany", "ReadOnlyMany")
LOCAL_PROVISIONER = "localdisk.csi.acstor.io"
ACCESS_MODES_BY_PROVISIONER: Mapping[str, tuple[str, ...]] = {
    "file.csi.azure.com": (SINGLE_NODE_ACCESS_MODE, *SHARED_ACCESS_MODES),
    "blob.csi.azure.com": (SINGLE_NODE_ACCESS_MODE, *SHARED_ACCESS_MODES),
    "disk.csi.azure.com": (SINGLE_NODE_ACCESS_MODE, "ReadWriteOncePod"),
    LOCAL_PROVISIONER: (SINGLE_NODE_ACCESS_MODE, "ReadWriteOncePod"),
}
"""Access modes by provisioner: https://learn.microsoft.com/azure/aks/concepts-storage."""


@stack_rule(
    "claims-serve-their-pods",
    "A claim of several pods must allow mounts on many nodes, and its class must support its access modes.",
    remedy="use ReadWriteMany and a class of Azure Files for claims of several pods",
    source="https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
)
def check_access_modes_fit_pods(stack: Stack) -> Iterator[Violation]:
    mounted = _count_pods_by_claim(stack)
    for claim in stack.find_resources(":PersistentVolumeClaim"):
        metadata = claim.props["metadata"]
        name = metadata["name"].text or claim.name
        modes = [mode.text for mode in claim.props.get("spec", "accessModes")]
        users = mounted[metadata["namespace"].text, name]
        if sum(users.values()) > 1 and not set(modes) & set(SHARED_ACCESS_MODES):
            yield Violation(
                claim.urn,
                f"claim {name} has the access mode {', '.join(modes)}; {sum(users.values())} pods mount it: "
                f"{', '.join(users)}",
            )
        yield from _find_access_mode_violations(stack, claim.urn, name, claim.props["spec"])
    for pod in list_pods(stack):
        for volume in pod.spec["volumes"]:
            spec = volume.get("ephemeral", "volumeClaimTemplate", "spec")
            yield from _find_access_mode_violations(stack, pod.urn, f"{volume['name'].text} of {pod.name}", spec)


def _find_access_mode_violations(stack: Stack, urn: str, name: str, spec: Value) -> Iterator[Violation]:
    modes = {mode.text for mode in spec["accessModes"]}
    provisioner = _find_provisioner(stack, spec["storageClassName"].text)
    for mode in sorted(modes - set(ACCESS_MODES_BY_PROVISIONER.get(provisioner, modes))):
        yield Violation(urn, f"claim {name} requests {mode}, which {provisioner} does not support")


@stack_rule(
    "local-disks-are-local",
    "Node-local data of pods must use a class of local disks that waits for the pod's node, which can be a new one.",
    remedy=f"use a class with the provisioner {LOCAL_PROVISIONER} and WaitForFirstConsumer, and state the capacity of "
    "a new node in a CSIStorageCapacity with the labels of its pool",
    source="https://github.com/Azure/local-csi-driver and its issue 495",
)
def check_local_data_uses_local_disks(stack: Stack) -> Iterator[Violation]:
    for storage in stack.find_resources(":StorageClass"):
        if (
            storage.props["provisioner"].text == LOCAL_PROVISIONER
            and storage.props["volumeBindingMode"].text != "WaitForFirstConsumer"
        ):
            yield Violation(storage.urn, f"class {storage.name} binds volumes before the pod is scheduled to a node")
    capacities, pools_by_name = list(stack.find_resources(":CSIStorageCapacity")), collect_gpu_pools_by_name(stack)
    for pod in list_pods(stack):
        for class_name, gib in _iter_local_claims(stack, pod):
            # Another rule reports volumes that no node of the pool has room for.
            pool = pools_by_name.get(pod.pool)
            wanted_gib = min(gib, pool.size.nvme_gib) if pool else gib
            if not any(_has_capacity(capacity, pod, class_name, wanted_gib) for capacity in capacities):
                yield Violation(
                    pod.urn,
                    f"{pod.name} has a volume of {gib:g} GiB of {class_name}, and no CSIStorageCapacity states that a "
                    f"new node of pool {pod.pool} has it: the autoscaler adds no node",
                )
        for container in pod.running_containers:
            name = container.volume_by_mount_path.get(NVME_DIR)
            if name is None:
                continue
            used = pod.get_volume(name).get("ephemeral", "volumeClaimTemplate", "spec", "storageClassName").text
            provisioner = _find_provisioner(stack, used)
            if provisioner and provisioner != LOCAL_PROVISIONER:
                yield Violation(
                    pod.urn, f"{pod.name}/{container.name} has {NVME_DIR} on {provisioner}, not on local disks"
                )


def _iter_local_claims(stack: Stack, pod: PodTemplate) -> Iterator[tuple[str, float]]:
    """Yield the storage class and the size of each volume that a pod has on local disks."""
    for volume in pod.spec["volumes"]:
        claim = volume.get("ephemeral", "volumeClaimTemplate", "spec")
        name, size = claim["storageClassName"].text, claim.get("resources", "requests", "storage").text
        if _find_provisioner(stack, name) == LOCAL_PROVISIONER:
            yield name, parse_gib(size)


def _has_capacity(capacity: Resource, pod: PodTemplate, class_name: str, gib: float) -> bool:
    """Return True if a storage capacity object states that new nodes of a pod's pool have room for a volume."""
    labels = capacity.props.get("nodeTopology", "matchLabels").as_text_dict()
    return (
        capacity.props["storageClassName"].text == class_name
        and labels == {POOL_LABEL: pod.pool}
        and parse_gib(capacity.props["capacity"].text) >= gib
    )


def _count_pods_by_claim(stack: Stack) -> Mapping[tuple[str, str], dict[str, int]]:
    """Return, for each claim, the number of pods in each workload that mounts it."""
    max_replicas, result = collect_max_replicas_by_workload(stack), defaultdict[tuple[str, str], dict[str, int]](dict)
    for pod in list_pods(stack):
        for volume in pod.spec["volumes"]:
            if name := volume.get("persistentVolumeClaim", "claimName").text:
                result[pod.namespace, name][pod.name] = max(1, max_replicas.get((pod.namespace, pod.name), 1))
    return result


def _find_provisioner(stack: Stack, name: str) -> str:
    results = (
        r for r in stack.find_resources(":StorageClass") if (r.props.get("metadata", "name").text or r.name) == name
    )
    return next((r.props["provisioner"].text for r in results), "") if name else ""
