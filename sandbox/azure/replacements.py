"""Inputs whose change makes a provider replace a resource instead of updating it.

Names and ids that are part of a resource's place, and a resource's region, replace it everywhere in Azure. The rest
are the properties that Azure's and Kubernetes' own documentation call immutable. Where the provider does not know one
of them, it tries an update that the cloud refuses: a new resource is needed all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.azure import arm
from sandbox.azure.graph import Resource, short_type

_POOL = (
    "availabilityZones",
    "capacityReservationGroupID",
    "creationData",
    "enableFIPS",
    "enableUltraSSD",
    "gpuInstanceProfile",
    "gpuProfile",
    "hostGroupID",
    "kubeletConfig",
    "linuxOSConfig",
    "maxPods",
    "osDiskSizeGB",
    "osDiskType",
    "osSKU",
    "osType",
    "podSubnetID",
    "proximityPlacementGroupID",
    "scaleSetEvictionPolicy",
    "scaleSetPriority",
    "spotMaxPrice",
    "vmSize",
    "vnetSubnetID",
)
_AZURE: Mapping[str, tuple[str, ...]] = {
    "authorization:RoleAssignment": ("principalId", "principalType", "roleDefinitionId", "scope"),
    "compute:CapacityReservation": ("sku.name", "zones"),
    "compute:CapacityReservationGroup": ("zones",),
    "containerservice:AgentPool": _POOL,
    "containerservice:ManagedCluster": (
        "apiServerAccessProfile.enablePrivateCluster",
        "apiServerAccessProfile.privateDNSZone",
        "dnsPrefix",
        "fqdnSubdomain",
        "networkProfile.dnsServiceIP",
        "networkProfile.networkPlugin",
        "networkProfile.serviceCidr",
        "nodeResourceGroup",
    ),
    "network:PublicIPAddress": ("sku", "zones"),
}
_KUBERNETES: Mapping[str, tuple[str, ...]] = {
    "apps/v1:DaemonSet": ("spec.selector",),
    "apps/v1:Deployment": ("spec.selector",),
    "apps/v1:StatefulSet": (
        "spec.podManagementPolicy",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "batch/v1:Job": ("spec.completionMode", "spec.selector", "spec.template"),
    "core/v1:PersistentVolumeClaim": ("spec.accessModes", "spec.storageClassName", "spec.volumeName"),
    "storage.k8s.io/v1:StorageClass": ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
}


def triggers(resource: Resource) -> tuple[str, ...]:
    """Return the input paths whose change replaces a resource."""
    own = resource.replace_on_changes
    kind = short_type(resource.type)
    if resource.type.startswith("azure-native:"):
        return (*own, *arm.path_inputs(kind), "location", *_AZURE.get(kind, ()))
    if resource.type.startswith("kubernetes:"):
        return (*own, "apiVersion", "kind", "metadata.name", "metadata.namespace", *_KUBERNETES.get(kind, ()))
    return own


def replaces(resource: Resource, path: str) -> bool:
    """Whether a change at an input path replaces a resource."""
    return any(covers(trigger, path) for trigger in triggers(resource))


def covers(trigger: str, path: str) -> bool:
    """Whether two paths are about the same value: one is the other, or lies in it."""
    if trigger in {"*", path}:
        return True
    longer, shorter = (path, trigger) if len(path) > len(trigger) else (trigger, path)
    return longer.startswith((f"{shorter}.", f"{shorter}["))
