"""Node pools in addition to the system pool: those with GPUs, and the CPU pool."""

import hashlib
import math
from collections.abc import Sequence

import pulumi
from pulumi_azure_native import containerservice as aks

from voice_blueprint import catalog
from voice_blueprint.azure import names as azure_names
from voice_blueprint.azure.names import Role, list_pool_taints
from voice_blueprint.azure.rollout import DRAIN_MARGIN_S, SURGE_PERCENT, calculate_max_node_drain_s
from voice_blueprint.engines.sizing.host import MAX_PODS_PER_NODE
from voice_blueprint.file.model.azure import (
    CPU_POOL_NAME,
    Azure,
    AzureService,
    ChatService,
    GpuPool,
    OnDemandNodes,
    ReservedNodes,
    SpotNodes,
)
from voice_blueprint.file.model.azure_callers import CpuPool
from voice_constructs.azure.cluster import Cluster
from voice_constructs.azure.cluster_profiles import SYSTEM_DISK_GIB, list_caller_drain_timeouts_s
from voice_constructs.azure.scope import Scope

_DEFAULT_DRAIN_TIMEOUT_S = 1800
"""Drain timeout for pools without services, which is AKS's default."""
_UNLIMITED_SPOT_PRICE = -1.0
_DIGEST_CHARS = 10
IMMUTABLE_INPUTS = (
    "availability_zones",
    "capacity_reservation_group_id",
    "creation_data",
    "enable_fips",
    "enable_ultra_ssd",
    "gpu_profile",
    "kubelet_config",
    "linux_os_config",
    "max_pods",
    "os_disk_size_gb",
    "os_disk_type",
    "os_sku",
    "os_type",
    "pod_subnet_id",
    "proximity_placement_group_id",
    "scale_set_eviction_policy",
    "scale_set_priority",
    "spot_max_price",
    "vnet_subnet_id",
)
"""Pool inputs that AKS cannot change, and that the provider would update.

The provider recognizes that another VM size or GPU instance profile requires a replacement. For all other inputs, it
sends an update, which AKS rejects with `PropertyChangeNotAllowed`. A test compares the inputs with
`voice_sandbox/azure/replacements.yaml`, which contains the sources.
"""


class GpuPools(pulumi.ComponentResource):
    """The GPU pools in the deployment file, each of which is a separate resource.

    If the pools were part of the cluster resource, an edit of one would put all of them into the state "Scaling"
    (https://github.com/pulumi/pulumi-azure-native/issues/4264).

    Args:
        subnet: Subnet of the nodes.

    Attributes:
        pools: Pools by name.
    """

    def __init__(self, name: str, *, scope: Scope, cluster: Cluster, subnet: pulumi.Input[str]) -> None:
        super().__init__("voice:azure:GpuPools", name)
        azure = scope.deployment.azure
        self._scope = scope
        self._cluster = cluster
        self._subnet = subnet
        reservations = self._grant_reservations(azure)
        self.pools = {
            pool.name: self._build_pool(azure, pool, [reservations[pool.name]] if pool.name in reservations else [])
            for pool in azure.pools
        }
        self.register_outputs({})

    def _grant_reservations(self, azure: Azure) -> dict[str, pulumi.Resource]:
        """Grant the control plane access to the reservation group of each pool, and return the grants by pool.

        The role is the documented one, but its scope is only the group instead of the resource group:
        https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups. Azure rejects a second assignment of a
        role on one group, and two pools may share a group.
        """
        grants: dict[str, pulumi.Resource] = {}
        by_group: dict[str, pulumi.Resource] = {}
        for pool in azure.pools:
            if not isinstance(pool.purchase, ReservedNodes):
                continue
            key = pool.purchase.group_id.lower()
            by_group[key] = by_group.get(key) or self._cluster.control_plane_identity.grant_role(
                f"control-plane-uses-reservation-{hashlib.sha256(key.encode()).hexdigest()[:_DIGEST_CHARS]}",
                Role.CONTRIBUTOR,
                pool.purchase.group_id,
                former_name=f"control-plane-uses-reservation-of-{pool.name}",
            )
            grants[pool.name] = by_group[key]
        return grants

    def _build_pool(self, azure: Azure, pool: GpuPool, depends_on: list[pulumi.Resource]) -> aks.AgentPool:
        """Create a pool.

        AKS installs the driver on Ubuntu for every GPU size, including GRID on A10. The OS disk is a managed disk:
        local NVMe is reserved for KV cache, and not all sizes support an OS disk on it.
        """
        return aks.AgentPool(
            pool.name,
            resource_group_name=self._scope.group,
            resource_name_=self._cluster.name,
            agent_pool_name=pool.name,
            mode=aks.AgentPoolMode.USER,
            type=aks.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
            vm_size=pool.vm_size,
            availability_zones=list(pool.availability_zones or azure.availability_zones),
            enable_auto_scaling=True,
            count=pool.nodes.min,
            min_count=pool.nodes.min,
            max_count=pool.nodes.max,
            max_pods=MAX_PODS_PER_NODE,
            scale_down_mode=aks.ScaleDownMode.DELETE,
            node_labels=_build_node_labels(pool),
            node_taints=[str(taint) for taint in list_pool_taints(azure, pool)],
            orchestrator_version=azure.kubernetes_version,
            os_type=aks.OSType.LINUX,
            os_sku=aks.OSSKU.UBUNTU,
            os_disk_type=aks.OSDiskType.MANAGED,
            os_disk_size_gb=pool.os_disk_gib,
            vnet_subnet_id=self._subnet,
            enable_node_public_ip=False,
            enable_encryption_at_host=True,
            security_profile=aks.AgentPoolSecurityProfileArgs(ssh_access=aks.AgentPoolSSHAccess.DISABLED),
            gpu_profile=aks.GPUProfileArgs(driver=aks.GPUDriver.INSTALL),
            kubelet_config=aks.KubeletConfigArgs(
                cpu_manager_policy="static", topology_manager_policy=pool.topology_policy
            ),
            linux_os_config=_build_linux_config(),
            upgrade_settings=_build_upgrade_settings(azure, pool),
            capacity_reservation_group_id=(
                pool.purchase.group_id if isinstance(pool.purchase, ReservedNodes) else None
            ),
            scale_set_priority=_get_scale_set_priority(pool),
            scale_set_eviction_policy=aks.ScaleSetEvictionPolicy.DELETE if _is_spot(pool) else None,
            spot_max_price=_get_max_spot_price(pool),
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions.merge(
                self._scope.retention.create_serving_options(parent=self),
                _create_pool_options([*self._cluster.pool_dependencies, *depends_on]),
            ),
        )


class CpuNodes(pulumi.ComponentResource):
    """The nodes of the CPU pool. The nodes have no taint, since their pods tolerate no other pool's taint."""

    def __init__(self, name: str, *, scope: Scope, cluster: Cluster, subnet: pulumi.Input[str], pool: CpuPool) -> None:
        super().__init__("voice:azure:CpuNodes", name)
        azure = scope.deployment.azure
        aks.AgentPool(
            CPU_POOL_NAME,
            resource_group_name=scope.group,
            resource_name_=cluster.name,
            agent_pool_name=CPU_POOL_NAME,
            mode=aks.AgentPoolMode.USER,
            type=aks.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
            vm_size=pool.vm_size,
            availability_zones=list(azure.availability_zones),
            enable_auto_scaling=True,
            count=pool.nodes.min,
            min_count=pool.nodes.min,
            max_count=pool.nodes.max,
            max_pods=MAX_PODS_PER_NODE,
            node_labels={azure_names.POOL_LABEL: CPU_POOL_NAME},
            orchestrator_version=azure.kubernetes_version,
            os_type=aks.OSType.LINUX,
            os_sku=aks.OSSKU.UBUNTU,
            os_disk_type=aks.OSDiskType.MANAGED,
            os_disk_size_gb=SYSTEM_DISK_GIB,
            vnet_subnet_id=subnet,
            enable_node_public_ip=False,
            enable_encryption_at_host=True,
            security_profile=aks.AgentPoolSecurityProfileArgs(ssh_access=aks.AgentPoolSSHAccess.DISABLED),
            # Whole CPUs are allocated exclusively to a container, as the polling data plane requires.
            kubelet_config=aks.KubeletConfigArgs(cpu_manager_policy="static"),
            upgrade_settings=aks.AgentPoolUpgradeSettingsArgs(
                max_surge=f"{SURGE_PERCENT}%",
                drain_timeout_in_minutes=math.ceil((_calculate_max_caller_drain_s(azure) + DRAIN_MARGIN_S) / 60),
            ),
            tags=scope.tags,
            opts=pulumi.ResourceOptions.merge(
                scope.retention.create_serving_options(parent=self),
                _create_pool_options(cluster.pool_dependencies),
            ),
        )
        self.register_outputs({})


def _create_pool_options(depends_on: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(
        depends_on=list(depends_on),
        # After the first deployment, the autoscaler sets the count.
        ignore_changes=["count"],
        replace_on_changes=list(IMMUTABLE_INPUTS),
        # A pool has a fixed name, so Azure cannot create the new one while the old one exists.
        delete_before_replace=True,
    )


def _calculate_max_caller_drain_s(azure: Azure) -> int:
    tiers = list_caller_drain_timeouts_s(azure)
    return max(tiers) + DRAIN_MARGIN_S if tiers else _DEFAULT_DRAIN_TIMEOUT_S


def _is_spot(pool: GpuPool) -> bool:
    return isinstance(pool.purchase, SpotNodes)


def _get_scale_set_priority(pool: GpuPool) -> aks.ScaleSetPriority:
    return aks.ScaleSetPriority.SPOT if _is_spot(pool) else aks.ScaleSetPriority.REGULAR


def _get_max_spot_price(pool: GpuPool) -> float | None:
    match pool.purchase:
        case SpotNodes(max_usd_per_hour=limit):
            return _UNLIMITED_SPOT_PRICE if limit is None else limit
        case OnDemandNodes() | ReservedNodes():
            return None


def _build_node_labels(pool: GpuPool) -> dict[str, str]:
    """Return the labels that pods select. While the pool has no nodes, the autoscaler reads its labels."""
    size = catalog.vm_sizes()[pool.vm_size]
    return {
        azure_names.POOL_LABEL: pool.name,
        azure_names.GPU_LABEL: size.gpu or "none",
        azure_names.GPU_COUNT_LABEL: str(size.gpu_count),
        azure_names.AUTOSCALER_GPU_LABEL: "nvidia",
        **({azure_names.SPOT_LABEL: "spot"} if _is_spot(pool) else {}),
    }


def _build_linux_config() -> aks.LinuxOSConfigArgs:
    """Return the huge page settings for large KV caches, with which page faults never wait for compaction."""
    return aks.LinuxOSConfigArgs(transparent_huge_page_enabled="always", transparent_huge_page_defrag="defer+madvise")


def _build_upgrade_settings(azure: Azure, pool: GpuPool) -> aks.AgentPoolUpgradeSettingsArgs:
    """Return the upgrade settings. Nodes are drained and reimaged one at a time, after any surge node is added.

    A surge node needs quota and a free machine, and GPU sizes often have neither, so the upgrade would hang
    (https://github.com/Azure/AKS/issues/5059). Without a surge node, the pool is one node short during an upgrade. A
    pool of one node is unavailable during the upgrade, which a check reports. A node that cannot be drained is returned
    to the scheduler without an upgrade, since nothing replaces it.

    For a spot pool, AKS rejects both numbers (of surge nodes and of unavailable nodes) with status 400
    (https://github.com/hashicorp/terraform-provider-azurerm/pull/31129). Surge nodes that the file configures for a
    spot pool are passed on, so that a preview rejects them instead of ignoring them.
    """
    waits_s = [
        calculate_max_node_drain_s(service, pool)
        for service in azure.services
        if pool.name in _list_service_pools(service)
    ]
    return aks.AgentPoolUpgradeSettingsArgs(
        max_surge=None if _is_spot(pool) and not pool.surge_nodes else str(pool.surge_nodes),
        max_unavailable=None if _is_spot(pool) else "0" if pool.surge_nodes else "1",
        drain_timeout_in_minutes=math.ceil(max(waits_s, default=_DEFAULT_DRAIN_TIMEOUT_S) / 60),
        undrainable_node_behavior=aks.UndrainableNodeBehavior.SCHEDULE,
    )


def _list_service_pools(service: AzureService) -> tuple[str, ...]:
    return service.pools if isinstance(service, ChatService) else (service.pool,)
