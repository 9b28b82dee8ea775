"""Dashboards as Azure resources ("dashboards with Grafana" in the portal), which need no Grafana workspace."""

import json

import pulumi
from pulumi_azure_native import dashboard as azure_dashboard

from voice_blueprint.observability.azure.dashboards import build_dashboards
from voice_blueprint.observability.azure.grafana import build_dashboard_document
from voice_constructs.azure.scope import Scope


class Dashboards(pulumi.ComponentResource):
    """An Azure Monitor dashboard for each dashboard in the deployment, free of charge.

    The definition is Grafana's JSON. `voice dashboards` writes the same JSON for a Grafana workspace, which only
    imports dashboards through its data plane.
    """

    def __init__(self, name: str, *, scope: Scope) -> None:
        super().__init__("voice:azure:Dashboards", name)
        for each in build_dashboards(scope.deployment):
            dashboard_resource = azure_dashboard.Dashboard(
                f"dashboard-{each.topic}",
                resource_group_name=scope.group,
                dashboard_name=each.topic,
                location=scope.location,
                tags=scope.tags,
                opts=pulumi.ResourceOptions(parent=self),
            )
            azure_dashboard.DashboardDefinition(
                f"dashboard-{each.topic}",
                resource_group_name=scope.group,
                dashboard_name=dashboard_resource.name,
                definition_name="default",
                properties=azure_dashboard.DashboardDefinitionPropertiesArgs(
                    serialized_data=json.dumps(build_dashboard_document(scope.deployment, each))
                ),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
