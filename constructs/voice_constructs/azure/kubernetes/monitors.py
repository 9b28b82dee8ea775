"""Scrape targets for the managed Prometheus."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, SERVICE_LABEL, SYSTEM_NAMESPACE, Component
from voice_blueprint.azure.metrics import (
    POOL_METRIC_LABEL,
    ROLE_METRIC_LABEL,
    SCRAPE_INTERVAL_S,
    SERVICE_METRIC_LABEL,
    CellRole,
    ClusterMetric,
)
from voice_blueprint.azure.names import POOL_LABEL
from voice_blueprint.hosts import IMAGES_BY_CALLER_TIER
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext, create_metadata
from voice_constructs.azure.kubernetes.telemetry import METRICS_PORT_NAME

ROLE_BY_ENGINE_PORT: Mapping[str, CellRole | None] = {
    "http": None,
    CellRole.PREFILL.value: CellRole.PREFILL,
    CellRole.DECODE.value: CellRole.DECODE,
    "lmcache": None,
    "lmcache-decode": CellRole.DECODE,
}
"""Roles of engines by the named port that serves ``/metrics``. Pods without a port are skipped. The front of a cell is
not listed, since it only repeats the metrics of the decode engine."""

AGENT_SETTINGS_CONFIG_MAP = "ama-metrics-settings-configmap"
"""Name of the ConfigMap with the settings of Azure's agent; omitted settings keep their defaults.
https://learn.microsoft.com/azure/azure-monitor/containers/prometheus-metrics-scrape-configuration"""


class PodMonitors(pulumi.ComponentResource):
    """Pod monitors for engines, the router, GPUs and the tiers that serve callers.

    The monitors use Azure's own API group for the Prometheus operator's types:
    https://learn.microsoft.com/azure/azure-monitor/containers/prometheus-metrics-scrape-crd
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Monitors", name, None, opts)
        engines = [_build_endpoint(port, _build_series_relabelings(role)) for port, role in ROLE_BY_ENGINE_PORT.items()]
        self._build_monitor(Component.ENGINE, context.namespace, engines)
        self._build_monitor(Component.ROUTER, context.namespace, [_build_endpoint("http")])
        if context.azure.has_peers:
            self._build_monitor(Component.LMCACHE_COORDINATOR, context.namespace, [_build_endpoint("http")])
        self._build_monitor(Component.GPU_METRICS, context.gpu_namespace, [_build_endpoint(METRICS_PORT_NAME)])
        for tier in IMAGES_BY_CALLER_TIER if context.azure.callers else ():
            self._build_monitor(tier, context.namespace, [_build_endpoint(METRICS_PORT_NAME)])
        if context.azure.agents:
            self._build_monitor(Component.AGENT, context.namespace, [_build_endpoint(METRICS_PORT_NAME)])
        self._configure_cluster_metrics()
        self.register_outputs({})

    def _configure_cluster_metrics(self) -> None:
        """Configure the metrics from kube-state-metrics that the agent collects.

        Metrics for Azure's own dashboards are always collected.
        """
        keep_list = "|".join(ClusterMetric)
        k8s.core.v1.ConfigMap(
            AGENT_SETTINGS_CONFIG_MAP,
            metadata=create_metadata(AGENT_SETTINGS_CONFIG_MAP, SYSTEM_NAMESPACE),
            data={
                "schema-version": "v2",
                "config-version": "1",
                "cluster-metrics": f'default-targets-metrics-keep-list: |-\n  kubestate = "{keep_list}"\n'
                "minimal-ingestion-profile: |-\n  enabled = true\n",
            },
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _build_monitor(
        self, component: Component, namespace: pulumi.Output[str], endpoints: Sequence[Mapping[str, object]]
    ) -> None:
        k8s.apiextensions.CustomResource(
            f"{component}-monitor",
            api_version="azmonitoring.coreos.com/v1",
            kind="PodMonitor",
            metadata=create_metadata(component.value, namespace),
            spec={
                # Azure drops series with longer labels.
                "labelLimit": 63,
                "labelNameLengthLimit": 511,
                "labelValueLengthLimit": 1023,
                "selector": {"matchLabels": {COMPONENT_LABEL: component.value}},
                "podMetricsEndpoints": list(endpoints),
            },
            opts=pulumi.ResourceOptions(parent=self),
        )


def _build_endpoint(port: str, relabelings: Sequence[Mapping[str, object]] = ()) -> dict[str, object]:
    return {
        "port": port,
        "path": "/metrics",
        "interval": f"{SCRAPE_INTERVAL_S}s",
        **({"relabelings": list(relabelings)} if relabelings else {}),
    }


def _build_series_relabelings(role: CellRole | None) -> list[Mapping[str, object]]:
    """Return the relabelling that adds the pod's labels and the port's role to engine series."""
    copied = {SERVICE_LABEL: SERVICE_METRIC_LABEL, POOL_LABEL: POOL_METRIC_LABEL}
    relabelings: list[Mapping[str, object]] = [
        {"sourceLabels": [_format_meta_label(label)], "targetLabel": series} for label, series in copied.items()
    ]
    return [*relabelings, {"targetLabel": ROLE_METRIC_LABEL, "replacement": role.value}] if role else relabelings


def _format_meta_label(label: str) -> str:
    """Return the meta label in which Prometheus stores a pod label."""
    return "__meta_kubernetes_pod_label_" + "".join(char if char.isalnum() else "_" for char in label)
