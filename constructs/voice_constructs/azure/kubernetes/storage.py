"""Where weights, compile caches and spilled KV cache lie."""

import pulumi
import pulumi_kubernetes as k8s

from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata

MODEL_CACHE = "model-cache"
"""Storage class and claim of the model cache."""

LOCAL_NVME = "local-nvme"
"""Storage class of a node's NVMe disks."""


class Storage(pulumi.ComponentResource):
    """Storage classes, and the model cache that every engine mounts.

    Attributes:
        model_cache: The claim: an NFS share that many pods write. Costs by its size, whether used or not.
        local_nvme: Class of volumes on the node's own disks; they live and die with their pod.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{TYPE_PREFIX}:Storage", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        shares = self._build_shares(child)
        self.local_nvme = self._build_local(child)
        self.model_cache = k8s.core.v1.PersistentVolumeClaim(
            MODEL_CACHE,
            metadata=metadata(MODEL_CACHE, context.namespace),
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
    def _build_shares(child: pulumi.ResourceOptions) -> k8s.storage.v1.StorageClass:
        # Premium shares of Azure Files over NFS 4.1. They have no key; the nodes' subnet alone reaches them, by its
        # service endpoint. Throughput grows with the size.
        # https://learn.microsoft.com/azure/aks/create-volume-azure-files
        return k8s.storage.v1.StorageClass(
            MODEL_CACHE,
            metadata=metadata(MODEL_CACHE, None),
            provisioner="file.csi.azure.com",
            parameters={"protocol": "nfs", "skuName": "Premium_LRS"},
            reclaim_policy="Delete",  # whatever is in it can be fetched and compiled again
            volume_binding_mode="Immediate",
            allow_volume_expansion=True,
            mount_options=["nconnect=4", "noresvport", "actimeo=30"],
            opts=child,
        )

    @staticmethod
    def _build_local(child: pulumi.ResourceOptions) -> k8s.storage.v1.StorageClass:
        # Azure Container Storage 2 (its local CSI driver): it joins a node's NVMe disks and cuts volumes from them. The
        # cluster needs it enabled: `az aks update --enable-azure-container-storage`.
        # https://github.com/Azure/local-csi-driver
        return k8s.storage.v1.StorageClass(
            LOCAL_NVME,
            metadata=metadata(LOCAL_NVME, None),
            provisioner="localdisk.csi.acstor.io",
            reclaim_policy="Delete",
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            opts=child,
        )
