"""Templates that contain every resource type with an adapter, with the properties that this project uses."""

from __future__ import annotations

from tests.sandbox.aws.samples.api import api
from tests.sandbox.aws.samples.edge import balancer, gateway
from tests.sandbox.aws.samples.fleet import fleet
from tests.sandbox.aws.samples.foundation import foundation
from tests.sandbox.aws.samples.network import network
from tests.sandbox.aws.samples.observability import observability
from tests.sandbox.aws.samples.parts import ARM_IMAGE, IMAGE_PARAMETER, ZONE, att, ref, resource, vpc
from tests.sandbox.aws.samples.state import state

ALL = (network, fleet, state, balancer, gateway, api, observability, foundation)

__all__ = [
    "ALL",
    "ARM_IMAGE",
    "IMAGE_PARAMETER",
    "ZONE",
    "api",
    "att",
    "balancer",
    "fleet",
    "foundation",
    "gateway",
    "network",
    "observability",
    "ref",
    "resource",
    "state",
    "vpc",
]
