"""What a deployment to AWS is made of: names, metrics, alarms, alerts, scaling, dashboards."""
