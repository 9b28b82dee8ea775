"""AWS parts of a deployment: names, metrics, alarms, alerts, scaling, dashboards."""
