"""Storage and dashboards for logs and metrics."""

import pulumi
from pulumi_azure_native import dashboard, monitor
from pulumi_azure_native import operationalinsights as logs

from voice_blueprint.azure import names as azure_names
from voice_blueprint.azure.names import Role
from voice_blueprint.file.model.azure import GRAFANA_DNS_ZONE
from voice_constructs.azure.identity import Identity
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.private_link import PrivateLink
from voice_constructs.azure.scope import Scope

_GRAFANA_MAJOR_VERSION = "12"
"""Azure accepts versions 12 and 13, and rejects 11 (https://github.com/microsoft/physical-ai-toolchain/pull/1033).
Grafana 12 imports the dashboards, whose JSON has the format of Grafana 11."""


class Monitoring(pulumi.ComponentResource):
    """A Log Analytics workspace, an Azure Monitor workspace for Prometheus metrics, and Grafana over both.

    Both workspaces have public addresses and require sign-in with Microsoft Entra; shared keys are disabled. Grafana is
    only reachable inside the virtual network, unless the API server is public as well.

    Attributes:
        logs_id: Id of the Log Analytics workspace.
        metrics_id: Id of the Azure Monitor workspace.
        query_endpoint: URL for Prometheus queries.
        grafana_id: Id of Grafana.
        grafana_endpoint: URL of Grafana.
    """

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork) -> None:
        super().__init__("voice:azure:Monitoring", name)
        self.logs_id: pulumi.Input[str] = (
            scope.deployment.azure.existing.log_workspace_id or self._build_workspace(scope).id
        )
        metrics = monitor.AzureMonitorWorkspace(
            "metrics",
            resource_group_name=scope.group,
            azure_monitor_workspace_name=scope.build_name("metrics"),
            location=scope.location,
            tags=scope.tags,
            opts=scope.retention.create_data_options(parent=self),
        )
        self.metrics_id: pulumi.Output[str] = metrics.id
        self.query_endpoint = metrics.metrics.apply(lambda values: values.prometheus_query_endpoint)
        grafana = self._build_grafana(scope, network)
        self.grafana_id: pulumi.Output[str] = grafana.id
        self.grafana_endpoint = grafana.properties.apply(lambda properties: properties.endpoint)
        self.register_outputs({})

    def _build_workspace(self, scope: Scope) -> logs.Workspace:
        return logs.Workspace(
            "logs",
            resource_group_name=scope.group,
            workspace_name=scope.build_name("logs"),
            location=scope.location,
            sku=logs.WorkspaceSkuArgs(name=logs.WorkspaceSkuNameEnum.PER_GB2018),
            retention_in_days=scope.deployment.azure.log_retention_days,
            features=logs.WorkspaceFeaturesArgs(
                disable_local_auth=True, enable_log_access_using_only_resource_permissions=True
            ),
            tags=scope.tags,
            opts=scope.retention.create_data_options(parent=self),
        )

    def store_audit_log(
        self, name: str, target: pulumi.Input[str], parent: pulumi.Resource
    ) -> monitor.DiagnosticSetting:
        """Store the audit log of a service in the Log Analytics workspace."""
        return monitor.DiagnosticSetting(
            f"{name}-audit",
            name="audit",
            resource_uri=target,
            workspace_id=self.logs_id,
            logs=[monitor.DiagnosticsLogSettingsArgs(category_group="audit", enabled=True)],
            opts=pulumi.ResourceOptions(parent=parent),
        )

    def _build_grafana(self, scope: Scope, network: VoiceNetwork) -> dashboard.Grafana:
        reader = Identity("grafana", scope=scope, opts=pulumi.ResourceOptions(parent=self))
        reader.grant_role("grafana-reads-metrics", Role.MONITORING_DATA_READER, self.metrics_id)
        reader.grant_role("grafana-reads-logs", Role.MONITORING_READER, self.logs_id)
        grafana = dashboard.Grafana(
            "grafana",
            resource_group_name=scope.group,
            workspace_name=azure_names.build_grafana_name(scope.deployment, scope.subscription),
            location=scope.location,
            sku=dashboard.ResourceSkuArgs(name="Standard"),
            identity=dashboard.ManagedServiceIdentityArgs(
                type=dashboard.ManagedServiceIdentityType.USER_ASSIGNED, user_assigned_identities=[reader.id]
            ),
            properties=dashboard.ManagedGrafanaPropertiesArgs(
                api_key=dashboard.ApiKey.DISABLED,
                grafana_major_version=_GRAFANA_MAJOR_VERSION,
                public_network_access=(
                    dashboard.PublicNetworkAccess.DISABLED
                    if scope.deployment.azure.is_private
                    else dashboard.PublicNetworkAccess.ENABLED
                ),
                zone_redundancy=dashboard.ZoneRedundancy.DISABLED,
                grafana_integrations=dashboard.GrafanaIntegrationsArgs(
                    azure_monitor_workspace_integrations=[
                        dashboard.AzureMonitorWorkspaceIntegrationArgs(
                            azure_monitor_workspace_resource_id=self.metrics_id
                        )
                    ]
                ),
            ),
            tags=scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        if scope.deployment.azure.is_private:
            PrivateLink(
                "grafana",
                scope=scope,
                at=network,
                service_id=grafana.id,
                subresource="grafana",
                zone=GRAFANA_DNS_ZONE,
                parent=self,
            )
        return grafana
