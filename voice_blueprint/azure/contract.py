"""Contract inside the Kubernetes cluster: ports, and permitted traffic.

Manifests, network policies, scrape jobs and launch commands are rendered from these tables.
``voice_blueprint.contract`` contains the tables that both clouds share.
"""

from dataclasses import dataclass
from enum import StrEnum

from voice_blueprint.contract.network import (
    AGENT_HTTP,
    CHUNK,
    GATEWAY_HTTP,
    GATEWAY_MEDIA,
    PROMETHEUS,
    PUBLIC_TLS,
    RTP,
    Port,
)

NAMESPACE = "voice"
"""Namespace for every service."""

GPU_NAMESPACE = "voice-gpu"
"""Namespace of the DaemonSets on GPU nodes: the device plugin and the GPU metrics exporter. It is the only namespace
that permits host access."""

SYSTEM_NAMESPACE = "kube-system"

CLIENT_LABEL = "voice-serve/client"
"""Label on namespaces whose pods may call the router; its value is ``true``."""

COMPONENT_LABEL = "voice-serve/component"
"""Label on every pod; its value is a ``Component``."""

SERVICE_LABEL = "voice-serve/service"
"""Label on a service's pods; its value is the service's name."""

GPU_RESOURCE = "nvidia.com/gpu"
"""Extended resource that the device plugin registers for GPUs."""

WEIGHTS_DIR = "/models/huggingface"
"""Mount path of the weights in pods. It is part of the model cache, which all pods of the cluster share."""

COMPILE_CACHE_DIR = "/models/compiled"
"""Parent directory of the engines' compile caches, also part of the model cache."""

NVME_DIR = "/nvme"
"""Mount path of a pod's share of the node's local disks."""

ENGINE_HTTP = Port(8000, "tcp", "Every engine's OpenAI-compatible API and metrics; of a cell, its front")
ROUTER_HTTP = Port(8080, "tcp", "The router: the same API of each service under its name, for pods that may call")
DCGM = Port(19400, "tcp", "GPU metrics of a node")
HTTPS = Port(443, "tcp", "HTTPS: the hub that models are fetched from")
DNS_TCP = Port(53, "tcp", "The cluster's DNS")
DNS_UDP = Port(53, "udp", "The cluster's DNS")

BLOB = Port(443, "tcp", "Azure Blob Storage over TLS")
REDIS = Port(10000, "tcp", "Azure Managed Redis over TLS")
GATEWAY_HEALTH = Port(32080, "tcp", "Node port where the load balancer asks whether a node has a gateway that is ready")
AGENT_NODE_HEALTH = Port(32082, "tcp", "Node port where it asks whether a node has an agent that takes callers")
VAD_NODE_HEALTH = Port(32081, "tcp", "Node port where it asks whether a node has a data plane that is ready")

PREFILL_HTTP = Port(8001, "tcp", "A cell's prefill engine")
DECODE_HTTP = Port(8002, "tcp", "A cell's decode engine")
PD_ROUTER_HTTP = Port(8003, "tcp", "A cell's prefill/decode router, on its pod's loopback only")
PREFILL_NIXL = Port(5600, "tcp", "NIXL side channel of a cell's prefill engine, on its pod's loopback only")
DECODE_NIXL = Port(5700, "tcp", "NIXL side channel of a cell's decode engine, on its pod's loopback only")
LMCACHE = Port(6555, "tcp", "LMCache server of an engine (ZMQ), on its pod's loopback only, or for peers that look up")
LMCACHE_PEERS = Port(6557, "tcp", "LMCache server of an engine: where peers read its chunks by NIXL")
LMCACHE_DATA = tuple(Port(number, "tcp", "KV cache chunks over UCX") for number in range(6560, 6568))
"""Ports on which UCX transfers chunks. UCX listens on one port per network device and worker of a server; two ports
were observed."""
LMCACHE_COORDINATOR = Port(9300, "tcp", "The list of LMCache servers")
DECODE_LMCACHE = Port(6556, "tcp", "LMCache server of a cell's decode engine (ZMQ), on its pod's loopback only")
LMCACHE_HTTP = Port(8084, "tcp", "Health and metrics of an LMCache server")
DECODE_LMCACHE_HTTP = Port(8085, "tcp", "Health and metrics of the LMCache server of a cell's decode engine")


class Component(StrEnum):
    """Kind of pod: the value of the label that network policies select."""

    CLIENT = "client"
    """Pods in namespaces with ``CLIENT_LABEL``."""
    ROUTER = "router"
    ENGINE = "engine"
    """Cells, aggregated and chat engines, and text-to-speech engines."""
    LMCACHE_COORDINATOR = "lmcache-coordinator"
    """Registry of LMCache servers that read each other's KV cache."""
    MODEL_FETCH = "model-fetch"
    """Jobs that fill the model cache."""
    DEVICE_PLUGIN = "device-plugin"
    """The device plugin, which registers a node's GPUs with the kubelet and has no network traffic."""
    GPU_METRICS = "gpu-metrics"
    """DCGM exporters."""
    EDGE = "edge"
    """The application gateway, which is not a pod."""
    GATEWAY = "gateway"
    """Session API and WebSocket audio."""
    VAD = "vad"
    """The data plane."""
    ASR = "asr"
    """Our engine, which sends utterances to the transcription services."""
    AGENT = "agent"
    """Runs spoken conversations."""
    STATE = "state"
    """The state store, which is not a pod."""
    ARCHIVE = "archive"
    """The transcript archive, which is not a pod."""
    MONITORING = "monitoring"
    """The cluster's Prometheus agent, in the namespace ``kube-system``."""
    DNS = "dns"
    """The cluster's DNS, in the namespace ``kube-system``."""
    INTERNET = "internet"
    """Public addresses."""


SINGLE_POD_COMPONENTS = frozenset({Component.LMCACHE_COORDINATOR})
"""Components that run in exactly one pod, because several pods would each have an incomplete state. Callers do not
notice their absence, so a rollout or a drain may stop the pod."""


@dataclass(frozen=True)
class ClusterFlow:
    """Traffic between pods that network policies allow. All other traffic is denied."""

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
    ClusterFlow(Component.MONITORING, Component.GPU_METRICS, DCGM),
    ClusterFlow(Component.MODEL_FETCH, Component.INTERNET, HTTPS),
    ClusterFlow(Component.ROUTER, Component.DNS, DNS_UDP),
    ClusterFlow(Component.ROUTER, Component.DNS, DNS_TCP),
    ClusterFlow(Component.MODEL_FETCH, Component.DNS, DNS_UDP),
    ClusterFlow(Component.MODEL_FETCH, Component.DNS, DNS_TCP),
)


def _build_tier_flows(tier: Component) -> tuple[ClusterFlow, ...]:
    """Return the flows for every tier that serves callers."""
    return (
        ClusterFlow(tier, Component.STATE, REDIS),
        # Microsoft Entra, which issues the tokens for the store. The gateway also contacts the issuer of callers'
        # tokens.
        ClusterFlow(tier, Component.INTERNET, HTTPS),
        ClusterFlow(tier, Component.DNS, DNS_UDP),
        ClusterFlow(tier, Component.DNS, DNS_TCP),
    )


CALLER_FLOWS: tuple[ClusterFlow, ...] = (
    ClusterFlow(Component.INTERNET, Component.EDGE, PUBLIC_TLS),
    ClusterFlow(Component.INTERNET, Component.VAD, RTP),
    ClusterFlow(Component.EDGE, Component.GATEWAY, GATEWAY_HTTP),
    ClusterFlow(Component.EDGE, Component.GATEWAY, GATEWAY_MEDIA),
    ClusterFlow(Component.GATEWAY, Component.VAD, RTP),
    ClusterFlow(Component.VAD, Component.ASR, CHUNK),
    ClusterFlow(Component.ASR, Component.ROUTER, ROUTER_HTTP),
    *(
        ClusterFlow(Component.MONITORING, tier, PROMETHEUS)
        for tier in (Component.GATEWAY, Component.VAD, Component.ASR)
    ),
    *(flow for tier in (Component.GATEWAY, Component.VAD, Component.ASR) for flow in _build_tier_flows(tier)),
)
"""Additional traffic for the caller tiers. Security groups are derived from the flows of the edge and the internet."""

AGENT_FLOWS: tuple[ClusterFlow, ...] = (
    ClusterFlow(Component.EDGE, Component.AGENT, AGENT_HTTP),
    ClusterFlow(Component.AGENT, Component.GATEWAY, GATEWAY_HTTP),
    ClusterFlow(Component.AGENT, Component.ROUTER, ROUTER_HTTP),
    ClusterFlow(Component.MONITORING, Component.AGENT, PROMETHEUS),
    *_build_tier_flows(Component.AGENT),
    # A full agent forwards a caller's connection to an agent with free capacity.
    ClusterFlow(Component.AGENT, Component.AGENT, AGENT_HTTP),
)
"""Additional traffic for agents. The flow to Microsoft Entra also covers external engines and tools."""


PEER_FLOWS: tuple[ClusterFlow, ...] = (
    *(ClusterFlow(Component.ENGINE, Component.ENGINE, port) for port in (LMCACHE, LMCACHE_PEERS, *LMCACHE_DATA)),
    ClusterFlow(Component.ENGINE, Component.LMCACHE_COORDINATOR, LMCACHE_COORDINATOR),
    ClusterFlow(Component.ENGINE, Component.DNS, DNS_UDP),
    ClusterFlow(Component.ENGINE, Component.DNS, DNS_TCP),
    ClusterFlow(Component.MONITORING, Component.LMCACHE_COORDINATOR, LMCACHE_COORDINATOR),
)
"""Additional traffic for engines that read each other's KV cache."""

ARCHIVE_FLOWS: tuple[ClusterFlow, ...] = (ClusterFlow(Component.GATEWAY, Component.ARCHIVE, BLOB),)
"""Additional traffic for the transcript archive."""


def build_cluster_flows(*, callers: bool, agents: bool, archive: bool, peers: bool) -> tuple[ClusterFlow, ...]:
    """Return ``CLUSTER_FLOWS``, with the flows for callers, agents, the archive and peers if they are enabled."""
    optional = ((CALLER_FLOWS, callers), (AGENT_FLOWS, agents), (ARCHIVE_FLOWS, archive), (PEER_FLOWS, peers))
    return CLUSTER_FLOWS + tuple(flow for flows, is_needed in optional if is_needed for flow in flows)
