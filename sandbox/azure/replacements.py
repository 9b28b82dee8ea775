"""Inputs whose change makes a provider replace a resource instead of updating it.

Names and ids that are part of a resource's place, and a resource's region, replace it everywhere in Azure. What else
cannot change is read from the SDK's own definitions where those say so, and stands below with its source where they do
not. Where the provider does not know one of them, it tries an update that the cloud refuses: a new resource is needed
all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from sandbox.azure import arm
from sandbox.azure.graph import Resource, short_type
from sandbox.azure.schema import Shape, args_shape, resource_shape

_INDEX = re.compile(r"\[\d+\]")
_DEPTH = 3
"""How deep definitions are read; below lie no properties of a resource's own."""

_FORCE_NEW = "https://github.com/hashicorp/terraform-provider-azurerm/blob/main/internal/services"
_POOL: Mapping[str, str] = {
    "vmSize": "https://learn.microsoft.com/azure/aks/create-node-pools#limitations",
    "kubeletConfig": "https://learn.microsoft.com/azure/aks/custom-node-configuration",
    "linuxOSConfig": "https://learn.microsoft.com/azure/aks/custom-node-configuration",
    "availabilityZones": "https://learn.microsoft.com/azure/aks/availability-zones",
    "scaleSetPriority": "https://learn.microsoft.com/azure/aks/spot-node-pool",
    "scaleSetEvictionPolicy": "https://learn.microsoft.com/azure/aks/spot-node-pool",
    "spotMaxPrice": "https://learn.microsoft.com/azure/aks/spot-node-pool",
    "gpuInstanceProfile": "https://learn.microsoft.com/azure/aks/gpu-multi-instance",
    "gpuProfile": "https://learn.microsoft.com/azure/aks/use-nvidia-gpu",
    "proximityPlacementGroupID": "https://learn.microsoft.com/azure/aks/reduce-latency-ppg",
    "capacityReservationGroupID": "https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups",
    **dict.fromkeys(
        (
            *("creationData", "enableFIPS", "enableUltraSSD", "maxPods", "osDiskSizeGB", "osDiskType", "osSKU"),
            *("osType", "podSubnetID", "vnetSubnetID"),
        ),
        f"{_FORCE_NEW}/containers/kubernetes_cluster_node_pool_resource.go (ForceNew)",
    ),
}
_CLUSTER = f"{_FORCE_NEW}/containers/kubernetes_cluster_resource.go (ForceNew)"
AZURE: Mapping[str, Mapping[str, str]] = {
    "authorization:RoleAssignment": dict.fromkeys(
        ("principalId", "principalType", "roleDefinitionId", "scope"),
        "https://learn.microsoft.com/azure/role-based-access-control/troubleshooting",
    ),
    "containerservice:AgentPool": _POOL,
    "containerservice:ManagedCluster": {
        "apiServerAccessProfile.enablePrivateCluster": "https://learn.microsoft.com/azure/aks/private-clusters#limitations",
        "apiServerAccessProfile.privateDNSZone": "https://learn.microsoft.com/azure/aks/private-clusters",
        **dict.fromkeys(
            (
                "networkProfile.dnsServiceIP",
                "networkProfile.networkPlugin",
                "networkProfile.podCidr",
                "networkProfile.serviceCidr",
                "nodeResourceGroup",
            ),
            _CLUSTER,
        ),
        # The system pool is a part of the cluster: the cluster is refused, and nothing less can be replaced.
        **{f"agentPoolProfiles.{path}": source for path, source in _POOL.items()},
    },
    "network:PublicIPAddress": dict.fromkeys(
        ("sku", "zones"), f"{_FORCE_NEW}/network/public_ip_resource.go (ForceNew)"
    ),
    "network:Subnet": {
        "addressPrefix": "https://learn.microsoft.com/azure/virtual-network/virtual-network-manage-subnet (not while "
        "anything has an address in it)"
    },
    "network:VirtualNetwork": {
        "addressSpace": "https://learn.microsoft.com/azure/virtual-network/manage-virtual-network (no range with "
        "subnets can be removed)"
    },
}
"""What the SDK's definitions do not say: the input's path, and who says that it cannot change."""
_CONCEPTS = "https://kubernetes.io/docs/concepts"
_STORAGE_CLASS = "https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/storage/validation/validation.go"
_CLAIM = f"{_CONCEPTS}/storage/persistent-volumes/#expanding-persistent-volumes-claims (nothing but the size)"
KUBERNETES: Mapping[str, Mapping[str, str]] = {
    "apps/v1:DaemonSet": {"spec.selector": f"{_CONCEPTS}/workloads/controllers/daemonset/#pod-selector"},
    "apps/v1:Deployment": {"spec.selector": f"{_CONCEPTS}/workloads/controllers/deployment/#label-selector-updates"},
    "batch/v1:Job": dict.fromkeys(
        ("spec.completionMode", "spec.selector", "spec.template"),
        "https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/batch/validation/validation.go",
    ),
    "core/v1:PersistentVolumeClaim": dict.fromkeys(
        ("spec.accessModes", "spec.storageClassName", "spec.volumeName"), _CLAIM
    ),
    "storage.k8s.io/v1:StorageClass": dict.fromkeys(
        ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"), f"{_STORAGE_CLASS} (updates are forbidden)"
    ),
}
"""The same of Kubernetes, whose definitions say it of nothing."""


def triggers(resource: Resource) -> tuple[str, ...]:
    """Return the input paths whose change replaces a resource."""
    own = resource.replace_on_changes
    kind = short_type(resource.type)
    if resource.type.startswith("azure-native:"):
        return (*own, *arm.path_inputs(kind), "location", *defined(resource.type), *AZURE.get(kind, ()))
    if resource.type.startswith("kubernetes:"):
        return (*own, "apiVersion", "kind", "metadata.name", "metadata.namespace", *KUBERNETES.get(kind, ()))
    return own


def replaces(resource: Resource, path: str) -> bool:
    """Whether a change at an input path replaces a resource."""
    anywhere = _INDEX.sub("", path)
    return any(covers(trigger, path) or covers(trigger, anywhere) for trigger in triggers(resource))


@cache
def defined(kind: str) -> tuple[str, ...]:
    """Return the inputs of a type, by path, of which the SDK's own definitions say that they cannot change."""
    shape = resource_shape(kind)
    return tuple(_defined(shape, "", _DEPTH)) if shape else ()


def _defined(shape: Shape, path: str, depth: int) -> Iterator[str]:
    for field in shape.inputs.values():
        below = f"{path}{field.name}"
        if field.immutable:
            yield below
        elif field.args and depth and not field.is_list and (inner := args_shape(shape.module, field.args)):
            yield from _defined(inner, f"{below}.", depth - 1)


def covers(trigger: str, path: str) -> bool:
    """Whether two paths are about the same value: one is the other, or lies in it."""
    if trigger in {"*", path}:
        return True
    longer, shorter = (path, trigger) if len(path) > len(trigger) else (trigger, path)
    return longer.startswith((f"{shorter}.", f"{shorter}["))
