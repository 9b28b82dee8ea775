"""Alerts, dashboards and scaling of each cloud, and their common parts: objectives, windows and panels."""
