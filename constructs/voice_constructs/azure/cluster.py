"""The Kubernetes cluster without its GPU pools."""

import base64

import pulumi
import yaml
from pulumi_azure_native import containerservice as aks

from voice_blueprint.azure import names as azure_names
from voice_blueprint.azure.names import Role
from voice_blueprint.file.model.azure import MaintenanceWindow, format_api_server_dns_zone
from voice_constructs.azure import cluster_profiles as profiles
from voice_constructs.azure.identity import Identity
from voice_constructs.azure.monitoring import Monitoring
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.registry import ImageRegistry
from voice_constructs.azure.scope import Scope

MAINTENANCE_CONFIGURATIONS = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule")
"""Names of AKS's maintenance configurations for Kubernetes and node image upgrades; AKS accepts no others.

Source: https://learn.microsoft.com/azure/aks/planned-maintenance
"""


def build_azure_cli_kubeconfig(kubeconfig: bytes) -> str:
    """Return a kubeconfig that uses ``kubelogin`` with the Azure CLI's token.

    The kubeconfig of AKS requires an interactive device code. The returned kubeconfig signs in with the identity of
    ``az login``: a user, a pipeline with its federated identity, or a machine with its own identity.
    https://azure.github.io/kubelogin/concepts/login-modes/azurecli.html
    """
    document = yaml.safe_load(kubeconfig)
    for user in document["users"]:
        user["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "kubelogin",
                "args": ["get-token", "--login", "azurecli", "--server-id", azure_names.API_SERVER_APP_ID],
                "interactiveMode": "Never",
                "provideClusterInfo": False,
            }
        }
    return yaml.safe_dump(document, sort_keys=False)


class Cluster(pulumi.ComponentResource):
    """An AKS cluster with its system pool.

    It uses Cilium, workload identity, KEDA and managed Prometheus, and only allows sign-in with Entra.

    Node disks, including caches and temporary disks on the host, are encrypted with Microsoft's keys. A
    customer-managed key is not used: if it were lost, every node would be lost, and all data on nodes can be downloaded
    again.

    Attributes:
        control_plane_identity: Identity of the control plane.
        kubelet_identity: Identity of the nodes, which pulls images.
        id: Resource id.
        name: Name.
        oidc_issuer: Issuer of the service accounts' tokens.
        node_resource_group: Resource group of the nodes.
        pool_dependencies: Resources that a node pool depends on.
    """

    def __init__(
        self, name: str, *, scope: Scope, network: VoiceNetwork, registry: ImageRegistry, monitoring: Monitoring
    ) -> None:
        super().__init__("voice:azure:Cluster", name)
        self._scope = scope
        inside = pulumi.ResourceOptions(parent=self)
        self.control_plane_identity = Identity("control-plane", scope=scope, opts=inside)
        self.kubelet_identity = Identity("kubelet", scope=scope, opts=inside)
        grants: list[pulumi.Resource] = [
            self.control_plane_identity.grant_role(
                "control-plane-uses-subnet", Role.NETWORK_CONTRIBUTOR, network.nodes_subnet_id
            ),
            self.control_plane_identity.grant_role(
                "control-plane-assigns-kubelet", Role.MANAGED_IDENTITY_OPERATOR, self.kubelet_identity.id
            ),
            self.kubelet_identity.grant_role("kubelet-pulls-images", Role.ACR_PULL, registry.id),
        ]
        if zone := scope.deployment.azure.existing.find_private_dns_zone_id(format_api_server_dns_zone(scope.location)):
            # AKS links the zone to the network and creates the API server's record in the zone.
            grants += [
                self.control_plane_identity.grant_role(
                    "control-plane-writes-zone", Role.PRIVATE_DNS_ZONE_CONTRIBUTOR, zone
                ),
                self.control_plane_identity.grant_role(
                    "control-plane-links-network", Role.NETWORK_CONTRIBUTOR, network.id
                ),
            ]
        if network.rtp_address:
            # AKS looks up the address in the address's resource group, and assigns it to the cluster's load balancer.
            grants += [
                self.control_plane_identity.grant_role("control-plane-reads-addresses", Role.READER, scope.group_id),
                self.control_plane_identity.grant_role(
                    "control-plane-uses-rtp-address", Role.NETWORK_CONTRIBUTOR, network.rtp_address.id
                ),
            ]
        cluster = self._build_cluster(name, network, monitoring, grants)
        self.id: pulumi.Output[str] = cluster.id
        self.name = cluster.name
        self.oidc_issuer: pulumi.Output[str] = cluster.oidc_issuer_profile.apply(
            lambda profile: profile.issuer_url if profile else ""
        )
        self.node_resource_group = cluster.node_resource_group
        self.pool_dependencies: list[pulumi.Resource] = [cluster]
        self._build_maintenance(cluster, scope.deployment.azure.maintenance)
        self.register_outputs({})

    @property
    def kubeconfig(self) -> pulumi.Output[str]:
        """A kubeconfig that signs in with the Azure CLI's token. The output is secret."""
        credentials = aks.list_managed_cluster_user_credentials_output(
            resource_group_name=self._scope.group,
            resource_name=self.name,
            format="exec",
            server_fqdn="public" if profiles.has_public_fqdn(self._scope.deployment.azure) else None,
        )
        return pulumi.Output.secret(
            credentials.apply(lambda result: build_azure_cli_kubeconfig(base64.b64decode(result.kubeconfigs[0].value)))
        )

    def _build_cluster(
        self, name: str, network: VoiceNetwork, monitoring: Monitoring, grants: list[pulumi.Resource]
    ) -> aks.ManagedCluster:
        azure = self._scope.deployment.azure
        return aks.ManagedCluster(
            name,
            resource_group_name=self._scope.group,
            resource_name_=azure_names.build_cluster_name(self._scope.deployment),
            node_resource_group=azure_names.build_node_resource_group_name(self._scope.deployment),
            location=self._scope.location,
            dns_prefix=azure_names.build_cluster_name(self._scope.deployment),
            # The tier with an SLA for the API server.
            sku=aks.ManagedClusterSKUArgs(name=aks.ManagedClusterSKUName.BASE, tier=aks.ManagedClusterSKUTier.STANDARD),
            kubernetes_version=azure.kubernetes_version,
            identity=aks.ManagedClusterIdentityArgs(
                type=aks.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[self.control_plane_identity.id]
            ),
            identity_profile={
                "kubeletidentity": aks.UserAssignedIdentityArgs(
                    resource_id=self.kubelet_identity.id,
                    client_id=self.kubelet_identity.client_id,
                    object_id=self.kubelet_identity.principal_id,
                )
            },
            enable_rbac=True,
            disable_local_accounts=True,
            aad_profile=aks.ManagedClusterAADProfileArgs(
                managed=True,
                enable_azure_rbac=True,
                tenant_id=self._scope.tenant,
                admin_group_object_ids=list(azure.admin_groups),
            ),
            oidc_issuer_profile=aks.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
            security_profile=profiles.build_security_profile(),
            network_profile=profiles.build_network_profile(azure),
            api_server_access_profile=profiles.build_api_server_profile(azure, network.egress_address),
            agent_pool_profiles=[profiles.build_system_pool(azure, network.nodes_subnet_id)],
            auto_scaler_profile=profiles.build_autoscaler_profile(azure),
            workload_auto_scaler_profile=profiles.build_workload_autoscaler_profile(),
            auto_upgrade_profile=aks.ManagedClusterAutoUpgradeProfileArgs(
                upgrade_channel=aks.UpgradeChannel.PATCH,
                node_os_upgrade_channel=aks.NodeOSUpgradeChannel.NODE_IMAGE,
            ),
            azure_monitor_profile=aks.ManagedClusterAzureMonitorProfileArgs(
                metrics=aks.ManagedClusterAzureMonitorProfileMetricsArgs(enabled=True)
            ),
            addon_profiles=profiles.build_addon_profiles(monitoring.logs_id),
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions.merge(
                self._scope.retention.create_serving_options(parent=self),
                # After the first deployment, the autoscaler sets the count.
                pulumi.ResourceOptions(depends_on=grants, ignore_changes=["agentPoolProfiles[0].count"]),
            ),
        )

    def _build_maintenance(self, cluster: aks.ManagedCluster, window: MaintenanceWindow) -> None:
        previous: list[pulumi.Resource] = []
        for name in MAINTENANCE_CONFIGURATIONS:
            configuration = aks.MaintenanceConfiguration(
                name,
                resource_group_name=self._scope.group,
                resource_name_=cluster.name,
                config_name=name,
                maintenance_window=aks.MaintenanceWindowArgs(
                    schedule=aks.ScheduleArgs(
                        weekly=aks.WeeklyScheduleArgs(day_of_week=window.day, interval_weeks=1),
                    ),
                    start_time=window.start,
                    duration_hours=window.hours,
                    utc_offset="+00:00",
                ),
                # Azure allows one change of a cluster at a time.
                opts=pulumi.ResourceOptions(parent=self, depends_on=previous),
            )
            previous = [configuration]
