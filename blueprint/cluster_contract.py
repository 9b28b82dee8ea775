"""The contract inside the Kubernetes cluster: who listens where, and who may reach whom.

Manifests, network policies, scrape jobs and launch commands are rendered from these tables. ``blueprint.contract`` is
what both clouds share.
"""

from dataclasses import dataclass
from enum import StrEnum

from blueprint.contract import Port

NAMESPACE = "voice"
"""Namespace of every service."""

CLIENT_LABEL = "voice-serve/client"
"""Label of the namespaces whose pods may call the router; its value is ``true``."""

ENGINE_HTTP = Port(8000, "tcp", "Every engine's OpenAI-compatible API and metrics; of a cell, its front")
ROUTER_HTTP = Port(8080, "tcp", "The router: the same API, for pods of namespaces that may call")
DCGM = Port(19400, "tcp", "GPU metrics of a node")

PREFILL_HTTP = Port(8001, "tcp", "A cell's prefill engine")
DECODE_HTTP = Port(8002, "tcp", "A cell's decode engine")
PD_ROUTER_HTTP = Port(8003, "tcp", "A cell's prefill/decode router, on its pod's loopback only")
PREFILL_NIXL = Port(5600, "tcp", "NIXL side channel of a cell's prefill engine, on its pod's loopback only")
DECODE_NIXL = Port(5700, "tcp", "NIXL side channel of a cell's decode engine, on its pod's loopback only")
LMCACHE = Port(6555, "tcp", "LMCache server of an engine (ZMQ), on its pod's loopback only")
DECODE_LMCACHE = Port(6556, "tcp", "LMCache server of a cell's decode engine (ZMQ), on its pod's loopback only")
LMCACHE_HTTP = Port(8084, "tcp", "Health and metrics of an LMCache server")
DECODE_LMCACHE_HTTP = Port(8085, "tcp", "Health and metrics of the LMCache server of a cell's decode engine")


class Component(StrEnum):
    """A kind of pod; the value of the label that network policies select by."""

    CLIENT = "client"
    """Pods of namespaces with ``CLIENT_LABEL``."""
    ROUTER = "router"
    ENGINE = "engine"
    """Cells, aggregated and chat engines, and text to speech."""
    MODEL_FETCH = "model-fetch"
    """Jobs that fill the model cache."""
    MONITORING = "monitoring"
    """The cluster's Prometheus agent, in the namespace ``kube-system``."""


@dataclass(frozen=True)
class ClusterFlow:
    """Traffic between pods that network policies allow; whatever is not listed is refused."""

    source: Component
    destination: Component
    port: Port


CLUSTER_FLOWS: tuple[ClusterFlow, ...] = (
    ClusterFlow(Component.CLIENT, Component.ROUTER, ROUTER_HTTP),
    ClusterFlow(Component.ROUTER, Component.ENGINE, ENGINE_HTTP),
    ClusterFlow(Component.MONITORING, Component.ROUTER, ROUTER_HTTP),
    ClusterFlow(Component.MONITORING, Component.ENGINE, ENGINE_HTTP),
    ClusterFlow(Component.MONITORING, Component.ENGINE, PREFILL_HTTP),
    ClusterFlow(Component.MONITORING, Component.ENGINE, DECODE_HTTP),
    ClusterFlow(Component.MONITORING, Component.ENGINE, LMCACHE_HTTP),
    ClusterFlow(Component.MONITORING, Component.ENGINE, DECODE_LMCACHE_HTTP),
)
