"""Azure Container Storage: volumes on the nodes' local NVMe disks."""

import pulumi
from pulumi_azure_native import kubernetesconfiguration

from voice_constructs.azure.cluster import Cluster
from voice_constructs.azure.scope import Scope

_EXTENSION_TYPE = "microsoft.azurecontainerstoragev2"
_EXTENSION_NAME = "acstor"
"""The name that the Azure CLI uses and expects."""


class ContainerStorage(pulumi.ComponentResource):
    """The cluster extension with the CSI driver ``localdisk.csi.acstor.io`` for the workloads' storage class.

    Every GPU pool has a taint. The driver's own chart has tolerated all taints since v0.1.0 (Azure/local-csi-driver,
    charts/latest/values.yaml, unchanged at v0.3.0, a9b1c9c6). Version 1 of the extension has done so for local disks
    since 1.2.1, according to its release notes. https://github.com/Azure/AKS/issues/5790 concerns the DaemonSet of
    Elastic SAN, which is not installed here. The extension does not support custom tolerations, and no release note
    specifies the version with that fix, so minor versions are upgraded automatically.

    https://learn.microsoft.com/azure/storage/container-storage/install-container-storage-aks
    """

    def __init__(self, name: str, *, scope: Scope, cluster: Cluster) -> None:
        super().__init__("voice:azure:ContainerStorage", name)
        kubernetesconfiguration.Extension(
            _EXTENSION_NAME,
            resource_group_name=scope.group,
            cluster_rp="Microsoft.ContainerService",
            cluster_resource_name="managedClusters",
            cluster_name=cluster.name,
            extension_name=_EXTENSION_NAME,
            extension_type=_EXTENSION_TYPE,
            auto_upgrade_minor_version=True,
            opts=pulumi.ResourceOptions(parent=self, depends_on=cluster.pool_dependencies),
        )
        self.register_outputs({})
