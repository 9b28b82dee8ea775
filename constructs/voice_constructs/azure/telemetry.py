"""Telemetry of the cluster: Prometheus metrics, container logs, and control plane logs."""

import pulumi
from pulumi_azure_native import monitor

from voice_constructs.azure.monitoring import Monitoring
from voice_constructs.azure.scope import Scope

_PROMETHEUS_STREAM = "Microsoft-PrometheusMetrics"
_CONTAINER_STREAMS = ["Microsoft-ContainerLogV2", "Microsoft-KubeEvents", "Microsoft-KubePodInventory"]
"""Streams of container logs. Performance counters are omitted, since Prometheus collects them."""
_CONTAINER_INSIGHTS_NAME = "ContainerInsightsExtension"
"""Name of the association, which the agent requires."""
_CONTROL_PLANE_LOGS = (
    "cloud-controller-manager",
    "cluster-autoscaler",
    "guard",
    "kube-apiserver",
    "kube-audit-admin",
    "kube-controller-manager",
    "kube-scheduler",
)
"""``kube-audit-admin`` is the audit log without read requests, which make up most of the volume.

Source: https://learn.microsoft.com/azure/aks/monitor-aks-reference
"""


class ClusterTelemetry(pulumi.ComponentResource):
    """Data collection rules for a cluster, their associations, and the diagnostic setting for its control plane."""

    def __init__(self, name: str, *, scope: Scope, cluster: pulumi.Input[str], monitoring: Monitoring) -> None:
        super().__init__("voice:azure:ClusterTelemetry", name)
        self._scope = scope
        self._cluster = cluster
        self._build_metrics(monitoring)
        self._build_container_logs(monitoring)
        monitor.DiagnosticSetting(
            "control-plane-logs",
            name="control-plane",
            resource_uri=cluster,
            workspace_id=monitoring.logs_id,
            # Dedicated tables are cheaper to query than the table that all services share.
            log_analytics_destination_type="Dedicated",
            logs=[
                monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True) for category in _CONTROL_PLANE_LOGS
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

    def _build_metrics(self, monitoring: Monitoring) -> None:
        endpoint = monitor.DataCollectionEndpoint(
            "prometheus",
            resource_group_name=self._scope.group,
            data_collection_endpoint_name=self._scope.build_name("metrics"),
            location=self._scope.location,
            kind=monitor.KnownDataCollectionEndpointResourceKind.LINUX,
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        rule = monitor.DataCollectionRule(
            "prometheus",
            resource_group_name=self._scope.group,
            data_collection_rule_name=self._scope.build_name("metrics"),
            location=self._scope.location,
            kind=monitor.KnownDataCollectionRuleResourceKind.LINUX,
            data_collection_endpoint_id=endpoint.id,
            data_sources=monitor.DataCollectionRuleDataSourcesArgs(
                prometheus_forwarder=[
                    monitor.PrometheusForwarderDataSourceArgs(name="prometheus", streams=[_PROMETHEUS_STREAM])
                ]
            ),
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                monitoring_accounts=[
                    monitor.MonitoringAccountDestinationArgs(name="metrics", account_resource_id=monitoring.metrics_id)
                ]
            ),
            data_flows=[monitor.DataFlowArgs(streams=[_PROMETHEUS_STREAM], destinations=["metrics"])],
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._associate_rule("ContainerInsightsMetricsExtension", rule)

    def _build_container_logs(self, monitoring: Monitoring) -> None:
        rule = monitor.DataCollectionRule(
            "container-logs",
            resource_group_name=self._scope.group,
            data_collection_rule_name=self._scope.build_name("container-logs"),
            location=self._scope.location,
            kind=monitor.KnownDataCollectionRuleResourceKind.LINUX,
            data_sources=monitor.DataCollectionRuleDataSourcesArgs(
                extensions=[
                    monitor.ExtensionDataSourceArgs(
                        name=_CONTAINER_INSIGHTS_NAME,
                        extension_name="ContainerInsights",
                        streams=_CONTAINER_STREAMS,
                        extension_settings={
                            "dataCollectionSettings": {
                                "interval": "1m",
                                "namespaceFilteringMode": "Off",
                                "enableContainerLogV2": True,
                            }
                        },
                    )
                ]
            ),
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                log_analytics=[
                    monitor.LogAnalyticsDestinationArgs(name="logs", workspace_resource_id=monitoring.logs_id)
                ]
            ),
            data_flows=[monitor.DataFlowArgs(streams=_CONTAINER_STREAMS, destinations=["logs"])],
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._associate_rule(_CONTAINER_INSIGHTS_NAME, rule)

    def _associate_rule(self, name: str, rule: monitor.DataCollectionRule) -> None:
        monitor.DataCollectionRuleAssociation(
            name,
            association_name=name,
            resource_uri=self._cluster,
            data_collection_rule_id=rule.id,
            opts=pulumi.ResourceOptions(parent=self),
        )
