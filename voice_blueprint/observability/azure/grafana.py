"""Dashboards in Grafana's JSON format, which Azure stores as a resource and any Grafana can import."""

from typing import Any

from voice_blueprint.azure.names import build_resource_name
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.azure.dashboards import Dashboard, Panel

_SCHEMA_VERSION = 41
"""Schema version of Grafana 11
(https://grafana.com/docs/grafana/v11.6/dashboards/build-dashboards/view-dashboard-json-model)."""
_DATA_SOURCE = {"type": "prometheus", "uid": "${prometheus}"}
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2


def build_dashboard_document(deployment: Deployment, dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON format.

    The user selects the Prometheus data source, since its id differs between Grafana instances.
    """
    name = build_resource_name(deployment, dashboard.topic)
    return {
        "uid": name[:40],
        "title": name,
        "description": dashboard.description,
        "schemaVersion": _SCHEMA_VERSION,
        "tags": ["voice-serve"],
        "timezone": "utc",
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "prometheus", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [_build_panel_document(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _build_panel_document(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _DATA_SOURCE,
        "interval": f"{panel.period_s}s",
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {"min": 0, "custom": {"stacking": {"mode": "normal" if panel.is_stacked else "none"}}},
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _DATA_SOURCE,
                "expr": query.promql,
                "legendFormat": query.legend,
            }
            for at, query in enumerate(panel.series)
        ],
    }
