"""Simulation of callers, fleets, alarms and Auto Scaling for a deployment file.

The simulator uses the rule objects from which the alarms are rendered. ``voice_blueprint.aws.alarms`` and
``voice_blueprint.aws.autoscaling`` evaluate these rules.
"""
