"""Profiles of a managed cluster. Each function converts a section of the deployment file."""

import math
from ipaddress import IPv4Network

import pulumi
from pulumi_azure_native import containerservice as aks

from voice_blueprint.azure import names as azure_names
from voice_blueprint.azure.rollout import DEFAULT_DRAIN_MINUTES, DRAIN_MARGIN_S, SURGE_PERCENT
from voice_blueprint.file.model.azure import (
    SYSTEM_POOL_NAME,
    Azure,
    ExistingNetwork,
    JumpHost,
    PublicApiServer,
    format_api_server_dns_zone,
)

IMAGE_CLEANER_INTERVAL_HOURS = 168
"""Interval of the image cleaner: one week. The minimum is 24 hours (https://learn.microsoft.com/azure/aks/image-cleaner)."""
SECRETS_POLL_INTERVAL = "2m"
"""Interval at which the driver polls the vault's secrets, which is the driver's default. A restarted pod gets the value
of the last poll, since the driver does not update an existing Kubernetes secret when a pod starts:
https://learn.microsoft.com/azure/aks/csi-secrets-store-configuration-options"""
_DNS_SERVICE_HOST_NUMBER = 10
SYSTEM_DISK_GIB = 128
_MAX_SYSTEM_PODS = 110


def calculate_max_drain_s(azure: Azure) -> int:
    """Return the maximum drain timeout across all workloads."""
    return max(*list_caller_drain_timeouts_s(azure), *(service.drain_timeout_s for service in azure.services), 0)


def list_caller_drain_timeouts_s(azure: Azure) -> list[int]:
    """Return the drain timeouts of the tiers that serve callers. The list is empty without `callers`."""
    tiers = [azure.callers.vad.drain_timeout_s, azure.callers.asr.drain_timeout_s] if azure.callers else []
    return [*tiers, azure.agents.drain_timeout_s] if azure.agents else tiers


def build_network_profile(azure: Azure) -> aks.ContainerServiceNetworkProfileArgs:
    """Return the profile for Azure CNI overlay with Cilium, including network policies.

    The subnet of the nodes determines the egress.
    """
    ranges, access = azure.network, azure.access
    by_routes = isinstance(access, ExistingNetwork) and access.egress == "route-table"
    return aks.ContainerServiceNetworkProfileArgs(
        network_plugin=aks.NetworkPlugin.AZURE,
        network_plugin_mode=aks.NetworkPluginMode.OVERLAY,
        network_dataplane=aks.NetworkDataplane.CILIUM,
        network_policy=aks.NetworkPolicy.CILIUM,
        pod_cidr=ranges.pod_cidr,
        service_cidr=ranges.service_cidr,
        dns_service_ip=str(IPv4Network(ranges.service_cidr)[_DNS_SERVICE_HOST_NUMBER]),
        outbound_type=(
            aks.OutboundType.USER_DEFINED_ROUTING if by_routes else aks.OutboundType.USER_ASSIGNED_NAT_GATEWAY
        ),
        load_balancer_sku=aks.LoadBalancerSku.STANDARD,
    )


def has_public_fqdn(azure: Azure) -> bool:
    """Return True if the name of a private API server is publicly resolvable. The address is always private.

    Other networks cannot resolve names in the zone that AKS creates.
    """
    zone = azure.existing.find_private_dns_zone_id(format_api_server_dns_zone(azure.location))
    return azure.is_private and not isinstance(azure.access, JumpHost) and zone is None


def build_api_server_profile(
    azure: Azure, egress_address: pulumi.Output[str | None] | None
) -> aks.ManagedClusterAPIServerAccessProfileArgs:
    """Return the access profile of the API server, which is private, or public for the listed ranges.

    Args:
        egress_address: Address from which nodes reach a public API server, which must be among the ranges.
    """
    if not isinstance(azure.access, PublicApiServer):
        return aks.ManagedClusterAPIServerAccessProfileArgs(
            enable_private_cluster=True,
            enable_private_cluster_public_fqdn=has_public_fqdn(azure),
            private_dns_zone=azure.existing.find_private_dns_zone_id(format_api_server_dns_zone(azure.location))
            or "system",
            # `az aks command invoke` gives operators outside the network access with their own identities.
            disable_run_command=False,
        )
    nodes = [egress_address.apply(lambda address: f"{address}/32")] if egress_address else []
    return aks.ManagedClusterAPIServerAccessProfileArgs(
        enable_private_cluster=False,
        authorized_ip_ranges=[*azure.access.authorized_ranges, *nodes],
        disable_run_command=True,
    )


def build_autoscaler_profile(azure: Azure) -> aks.ManagedClusterPropertiesAutoScalerProfileArgs:
    """Return the settings of the cluster autoscaler."""
    return aks.ManagedClusterPropertiesAutoScalerProfileArgs(
        expander=aks.Expander.LEAST_WASTE,
        # Without this setting, the autoscaler kills draining pods after ten minutes.
        max_graceful_termination_sec=str(calculate_max_drain_s(azure) + DRAIN_MARGIN_S),
        # Engines use an emptyDir as shared memory; by default, a node with such a pod is never removed.
        skip_nodes_with_local_storage="false",
        skip_nodes_with_system_pods="true",
        # A GPU node is ready once its driver is installed, which can take longer than the default of 15 minutes.
        max_node_provision_time="25m",
        # A new GPU node takes minutes to load weights, and should not be removed as soon as the load drops.
        scale_down_delay_after_add="20m",
        scale_down_unneeded_time="20m",
    )


def build_system_pool(azure: Azure, subnet: pulumi.Input[str]) -> aks.ManagedClusterAgentPoolProfileArgs:
    """Return the system pool. It is part of the cluster resource, since AKS creates no cluster without a pool."""
    pool = azure.system_pool
    return aks.ManagedClusterAgentPoolProfileArgs(
        name=SYSTEM_POOL_NAME,
        mode=aks.AgentPoolMode.SYSTEM,
        type=aks.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
        vm_size=pool.vm_size,
        availability_zones=list(azure.availability_zones),
        enable_auto_scaling=True,
        count=pool.nodes.min,
        min_count=pool.nodes.min,
        max_count=pool.nodes.max,
        max_pods=_MAX_SYSTEM_PODS,
        node_taints=[str(azure_names.SYSTEM_TAINT)],
        node_labels={azure_names.POOL_LABEL: SYSTEM_POOL_NAME},
        orchestrator_version=azure.kubernetes_version,
        os_type=aks.OSType.LINUX,
        os_sku=aks.OSSKU.UBUNTU,
        os_disk_size_gb=SYSTEM_DISK_GIB,
        os_disk_type=aks.OSDiskType.MANAGED,
        vnet_subnet_id=subnet,
        enable_node_public_ip=False,
        enable_encryption_at_host=True,
        security_profile=aks.AgentPoolSecurityProfileArgs(ssh_access=aks.AgentPoolSSHAccess.DISABLED),
        upgrade_settings=aks.AgentPoolUpgradeSettingsArgs(
            max_surge=f"{SURGE_PERCENT}%",
            drain_timeout_in_minutes=max(
                DEFAULT_DRAIN_MINUTES, math.ceil((calculate_max_drain_s(azure) + DRAIN_MARGIN_S) / 60)
            ),
        ),
    )


def build_addon_profiles(logs: pulumi.Input[str]) -> dict[str, aks.ManagedClusterAddonProfileArgs]:
    """Return the add-ons for container logs and for volumes with secrets from the key vault."""
    return {
        "omsagent": aks.ManagedClusterAddonProfileArgs(
            enabled=True, config={"logAnalyticsWorkspaceResourceID": logs, "useAADAuth": "true"}
        ),
        "azureKeyvaultSecretsProvider": aks.ManagedClusterAddonProfileArgs(
            enabled=True, config={"enableSecretRotation": "true", "rotationPollInterval": SECRETS_POLL_INTERVAL}
        ),
    }


def build_security_profile() -> aks.ManagedClusterSecurityProfileArgs:
    """Return the security profile with workload identity and removal of unused, vulnerable images."""
    return aks.ManagedClusterSecurityProfileArgs(
        workload_identity=aks.ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True),
        image_cleaner=aks.ManagedClusterSecurityProfileImageCleanerArgs(
            enabled=True, interval_hours=IMAGE_CLEANER_INTERVAL_HOURS
        ),
    )


def build_workload_autoscaler_profile() -> aks.ManagedClusterWorkloadAutoScalerProfileArgs:
    """Return the pod autoscalers. KEDA scales pods; the vertical autoscaler only makes recommendations."""
    return aks.ManagedClusterWorkloadAutoScalerProfileArgs(
        keda=aks.ManagedClusterWorkloadAutoScalerProfileKedaArgs(enabled=True),
        vertical_pod_autoscaler=aks.ManagedClusterWorkloadAutoScalerProfileVerticalPodAutoscalerArgs(enabled=True),
    )
