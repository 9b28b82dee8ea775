"""CloudWatch: alarms, dashboards, their series, and the alarms that stop a rollout."""
