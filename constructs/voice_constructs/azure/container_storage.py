"""Azure Container Storage: volumes on the nodes' own NVMe disks."""

import pulumi
from pulumi_azure_native import kubernetesconfiguration

from blueprint.file.model.azure import AggregatedService, Azure, PrefillDecodeCell
from voice_constructs.azure.cluster import Cluster
from voice_constructs.azure.scope import Scope

_EXTENSION = "microsoft.azurecontainerstoragev2"
_NAME = "acstor"
"""The name that the Azure CLI gives it, and looks for."""


def wants_nvme(azure: Azure) -> bool:
    """Whether a service keeps KV cache on local disks."""
    return any(
        service.lmcache is not None and service.lmcache.l2_nvme_gib > 0
        for service in azure.services
        if isinstance(service, PrefillDecodeCell | AggregatedService)
    )


class ContainerStorage(pulumi.ComponentResource):
    """The cluster extension whose CSI driver, ``localdisk.csi.acstor.io``, the workloads' storage class names.

    https://learn.microsoft.com/azure/storage/container-storage/install-container-storage-aks
    """

    def __init__(self, name: str, *, scope: Scope, cluster: Cluster) -> None:
        super().__init__("voice:azure:ContainerStorage", name)
        kubernetesconfiguration.Extension(
            _NAME,
            resource_group_name=scope.group,
            cluster_rp="Microsoft.ContainerService",
            cluster_resource_name="managedClusters",
            cluster_name=cluster.name,
            extension_name=_NAME,
            extension_type=_EXTENSION,
            auto_upgrade_minor_version=True,
            opts=pulumi.ResourceOptions(parent=self, depends_on=cluster.ready),
        )
        self.register_outputs({})
