"""Storage for weights, compile caches and KV cache on disk."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s
import yaml

from voice_blueprint.azure.names import POOL_LABEL, list_nvme_pools
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext, create_metadata

MODEL_CACHE_NAME = "model-cache"
"""Name of the storage class and claim for the model cache."""

LOCAL_NVME_STORAGE_CLASS = "local-nvme"
"""Storage class for a node's NVMe disks."""


DRIVER_NODES_ANNOTATION = "storageoperator.acstor.io/nodeAffinity"
"""Annotation of the storage class that selects the nodes for the driver. By default, the driver runs on all nodes.
https://learn.microsoft.com/azure/storage/container-storage/manage-local-container-storage-interface-driver-placement"""


class Storage(pulumi.ComponentResource):
    """Storage classes, and the model cache that every engine mounts.

    Attributes:
        model_cache: Claim of an NFS share that many pods can write to. The share is billed by its size, regardless of
            usage.
        local_nvme: Storage class of volumes on the node's local disks, which are deleted with their pod.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Storage", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        shares = self._build_file_share_storage_class(child)
        self.local_nvme = self._build_local_storage_class(list_nvme_pools(context.azure), child)
        for pool in list_nvme_pools(context.azure):
            self._build_node_capacity(context, pool, child)
        self.model_cache = k8s.core.v1.PersistentVolumeClaim(
            MODEL_CACHE_NAME,
            metadata=create_metadata(MODEL_CACHE_NAME, context.namespace),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteMany"],
                storage_class_name=shares.metadata.name,
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(
                    requests={"storage": f"{context.azure.model_cache_gib}Gi"}
                ),
            ),
            opts=child,
        )
        self.register_outputs({})

    @staticmethod
    def _build_file_share_storage_class(child: pulumi.ResourceOptions) -> k8s.storage.v1.StorageClass:
        # Premium shares of Azure Files over NFS 4.1. They have no key and are only reachable from the nodes' subnet,
        # through its service endpoint. Throughput increases with the size.
        # https://learn.microsoft.com/azure/aks/create-volume-azure-files
        return k8s.storage.v1.StorageClass(
            MODEL_CACHE_NAME,
            metadata=create_metadata(MODEL_CACHE_NAME, None),
            provisioner="file.csi.azure.com",
            parameters={"protocol": "nfs", "skuName": "Premium_LRS"},
            reclaim_policy="Delete",  # its content can be downloaded and compiled again
            volume_binding_mode="Immediate",
            allow_volume_expansion=True,
            mount_options=["nconnect=4", "noresvport", "actimeo=30"],
            opts=child,
        )

    @staticmethod
    def _build_local_storage_class(pools: Sequence[str], child: pulumi.ResourceOptions) -> k8s.storage.v1.StorageClass:
        # Azure Container Storage 2 (its local CSI driver), which combines a node's NVMe disks and creates volumes on
        # them. It must be enabled in the cluster: `az aks update --enable-azure-container-storage`.
        # https://github.com/Azure/local-csi-driver
        return k8s.storage.v1.StorageClass(
            LOCAL_NVME_STORAGE_CLASS,
            metadata=create_metadata(LOCAL_NVME_STORAGE_CLASS, None, annotations=_build_driver_node_annotation(pools)),
            provisioner="localdisk.csi.acstor.io",
            reclaim_policy="Delete",
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            opts=child,
        )

    def _build_node_capacity(self, context: ClusterContext, pool: str, child: pulumi.ResourceOptions) -> None:
        """Create the capacity of the local disks on a pool's new nodes.

        The driver reports the free capacity of each existing node by node name. The autoscaler simulates a node without
        such a name, finds no capacity for a pod's volume, and does not add a node
        (https://github.com/Azure/local-csi-driver/issues/495). The remedy is an object that administrators create, with
        the labels of such nodes (https://github.com/kubernetes/enhancements, keps/sig-storage/1472, "Drawbacks"). It
        also matches full nodes, but their GPUs already exclude further pods (see the check `nvme-holds-kv`).
        """
        name = f"{LOCAL_NVME_STORAGE_CLASS}-{pool}"
        k8s.storage.v1.CSIStorageCapacity(
            name,
            metadata=create_metadata(name, context.namespace),
            storage_class_name=LOCAL_NVME_STORAGE_CLASS,
            node_topology=k8s.meta.v1.LabelSelectorArgs(match_labels={POOL_LABEL: pool}),
            capacity=f"{context.get_vm_size(pool).nvme_gib * 1024}Mi",
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[self.local_nvme])),
        )


def _build_driver_node_annotation(pools: Sequence[str]) -> dict[str, str] | None:
    if not pools:
        return None
    chosen = {"key": "kubernetes.azure.com/agentpool", "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
    return {
        DRIVER_NODES_ANNOTATION: yaml.safe_dump(
            {"requiredDuringSchedulingIgnoredDuringExecution": terms}, sort_keys=False
        )
    }
