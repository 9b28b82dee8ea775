"""Managed Prometheus and Grafana: alerts, dashboards, and the scaling of engines."""
