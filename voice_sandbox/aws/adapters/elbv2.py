"""Elastic Load Balancing: names of load balancers and target groups in CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter


class LoadBalancer(Adapter):
    """A load balancer."""

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the attributes in the table, and the full name that CloudWatch uses."""
        return {**super().get_attributes(), "LoadBalancerFullName": self.id.split(":loadbalancer/", 1)[1]}


class TargetGroup(Adapter):
    """A target group."""

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the full name that CloudWatch uses."""
        return {"TargetGroupFullName": self.id.rsplit(":", 1)[1]}
