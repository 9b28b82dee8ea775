"""Will it scale in time: callers, fleets, alarms and Auto Scaling, simulated from a deployment file.

The scaling rules are the objects that become alarms, judged by ``blueprint.aws.alarms`` and
``blueprint.aws.autoscaling``.
"""
