"""Elastic Load Balancing: names of load balancers and target groups in CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter


class LoadBalancer(Adapter):
    """A load balancer."""

    def attributes(self) -> Mapping[str, Any]:
        """Return names and zone."""
        return {**super().attributes(), "LoadBalancerFullName": self.id.split(":loadbalancer/", 1)[1]}


class TargetGroup(Adapter):
    """A target group."""

    def attributes(self) -> Mapping[str, Any]:
        """Return the name."""
        return {"TargetGroupFullName": self.id.rsplit(":", 1)[1]}
