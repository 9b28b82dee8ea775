"""Alerts, dashboards and scaling for each cloud, and their common parts: objectives, windows and panels."""
