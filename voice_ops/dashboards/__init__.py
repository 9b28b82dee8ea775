"""`voice dashboards`."""
