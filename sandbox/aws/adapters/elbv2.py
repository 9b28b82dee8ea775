"""Elastic Load Balancing: the names by which CloudWatch knows load balancers and target groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.adapter import Adapter


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
