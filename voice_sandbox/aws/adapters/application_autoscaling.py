"""Application Auto Scaling: policies."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, omit_keys


class ScalingPolicy(Adapter):
    """A policy for a scalable target."""

    def translate(self, properties: Properties) -> Properties:
        """Split the target's id, if a template uses it, into the three parts that the API requires."""
        if "ScalingTargetId" not in properties:
            return properties
        resource, dimension, namespace = properties["ScalingTargetId"].split("|")
        target = {"ResourceId": resource, "ScalableDimension": dimension, "ServiceNamespace": namespace}
        return {**omit_keys(properties, "ScalingTargetId"), **target}
