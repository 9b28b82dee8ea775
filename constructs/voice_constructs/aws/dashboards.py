"""Dashboards in CloudWatch's format.

CloudWatch's JSON body is rendered from typed panels. cdk-monitoring-constructs is not used: importing that module adds
0.43 s to every synth, its monitors select dimensions that the contract already defines, and its alarms do not require a
runbook. The L2 widgets would add 0.2 s for calls into jsii.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.dashboards import Dashboard, Panel
from voice_blueprint.observability.aws.series import Resource, Series
from voice_constructs.aws.alert_alarms import resolve_dimension
from voice_constructs.aws.pseudo import ACCOUNT_ID, PARTITION

GRID_COLUMNS = 24
"""Columns in CloudWatch's grid; a unit of height is about 60 pixels."""
PANEL_WIDTH = 8
PANEL_HEIGHT = 6
HEADER_HEIGHT = 3

Widget = dict[str, Any]


@dataclass(frozen=True)
class DashboardsProps:
    """Properties of ``Dashboards``.

    Attributes:
        resources: Dimension values that are only known at deployment.
    """

    deployment: Deployment
    dashboards: Sequence[Dashboard]
    resources: Mapping[Resource, str]


class Dashboards(Construct):
    """One dashboard per topic. The first three dashboards in an account are free; others cost 3 USD per month each."""

    def __init__(self, scope: Construct, id_: str, *, props: DashboardsProps) -> None:
        super().__init__(scope, id_)
        self._props = props
        for dashboard in props.dashboards:
            cloudwatch.CfnDashboard(
                self,
                dashboard.topic.capitalize(),
                dashboard_name=names.build_dashboard_name(props.deployment, dashboard.topic),
                dashboard_body=Stack.of(self).to_json_string({"widgets": list(self._build_widgets(dashboard))}),
            )

    def _build_widgets(self, dashboard: Dashboard) -> Iterator[Widget]:
        yield _build_widget(
            "text", (0, 0), (PANEL_WIDTH, HEADER_HEIGHT), {"markdown": self._format_header_text(dashboard)}
        )
        yield _build_widget(
            "alarm",
            (PANEL_WIDTH, 0),
            (GRID_COLUMNS - PANEL_WIDTH, HEADER_HEIGHT),
            self._build_alarm_properties(dashboard),
        )
        panels_per_row = GRID_COLUMNS // PANEL_WIDTH
        for number, panel in enumerate(panel for panel in dashboard.panels if panel.series):
            row, column = divmod(number, panels_per_row)
            at = (column * PANEL_WIDTH, HEADER_HEIGHT + row * PANEL_HEIGHT)
            yield _build_widget("metric", at, (PANEL_WIDTH, PANEL_HEIGHT), self._build_graph_properties(panel))

    def _format_header_text(self, dashboard: Dashboard) -> str:
        runbooks = self._props.deployment.aws.observability.runbook_url
        name = names.build_dashboard_name(self._props.deployment, dashboard.topic)
        return f"## {name}\n{dashboard.description} [Runbooks]({runbooks})"

    def _build_alarm_properties(self, dashboard: Dashboard) -> Widget:
        region = self._props.deployment.aws.region
        prefix = f"arn:{PARTITION}:cloudwatch:{region}:{ACCOUNT_ID}:alarm:"
        return {"title": "Alarms", "alarms": [prefix + name for name in dashboard.alarms]}

    def _build_graph_properties(self, panel: Panel) -> Widget:
        percent = all(series.metric.unit == "Percent" for series in panel.series)
        return {
            "title": panel.title,
            "view": "timeSeries",
            "stacked": panel.is_stacked,
            "region": self._props.deployment.aws.region,
            "period": panel.period_s,
            "yAxis": {"left": {"min": 0, "showUnits": False} | ({"max": 100} if percent else {})},
            "metrics": [self._build_metric_row(series) for series in panel.series],
        }

    def _build_metric_row(self, series: Series) -> list[Any]:
        dimensions = [
            part
            for name, value in series.dimensions.items()
            for part in (name, resolve_dimension(value, self._props.resources))
        ]
        style = {"stat": series.statistic, "label": series.label}
        return [series.namespace, series.metric.name, *dimensions, style]


def _build_widget(kind: str, at: tuple[int, int], size: tuple[int, int], properties: Widget) -> Widget:
    return {"type": kind, "x": at[0], "y": at[1], "width": size[0], "height": size[1], "properties": properties}
