"""Simulates callers, fleets, alarms and Auto Scaling for a deployment file.

The scaling rules are the objects from which alarms are rendered, evaluated by ``voice_blueprint.aws.alarms`` and
``voice_blueprint.aws.autoscaling``.
"""
