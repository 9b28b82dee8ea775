"""The contract inside the Kubernetes cluster: who listens where, and who may reach whom.

Manifests, network policies, scrape jobs and launch commands are rendered from these tables. ``blueprint.contract`` is
what both clouds share.
"""

from dataclasses import dataclass
from enum import StrEnum

from blueprint.contract.network import AGENT_HTTP, CHUNK, GATEWAY_HTTP, GATEWAY_MEDIA, PROMETHEUS, PUBLIC_TLS, RTP, Port

NAMESPACE = "voice"
"""Namespace of every service."""

GPU_NAMESPACE = "voice-gpu"
"""Namespace of what runs on every GPU node: the device plugin and the GPU metrics. It alone allows host access."""

SYSTEM_NAMESPACE = "kube-system"

CLIENT_LABEL = "voice-serve/client"
"""Label of the namespaces whose pods may call the router; its value is ``true``."""

COMPONENT_LABEL = "voice-serve/component"
"""Label of every pod here; its value is a ``Component``."""

SERVICE_LABEL = "voice-serve/service"
"""Label of a service's pods; its value is the service's name."""

GPU_RESOURCE = "nvidia.com/gpu"
"""Resource that the device plugin offers for each GPU."""

WEIGHTS_DIR = "/models/huggingface"
"""Where pods see the weights: part of the model cache, which every pod of the cluster shares."""

COMPILE_CACHE_DIR = "/models/compiled"
"""Where an engine keeps what it has compiled, in a folder of its own: part of the model cache too."""

NVME_DIR = "/nvme"
"""Where a pod sees its share of the node's local disks."""

ENGINE_HTTP = Port(8000, "tcp", "Every engine's OpenAI-compatible API and metrics; of a cell, its front")
ROUTER_HTTP = Port(8080, "tcp", "The router: the same API, for pods of namespaces that may call")
DCGM = Port(19400, "tcp", "GPU metrics of a node")
HTTPS = Port(443, "tcp", "HTTPS: the hub that models are fetched from")
KUBERNETES_API = Port(443, "tcp", "The cluster's API server, for the router that watches pods")
DNS_TCP = Port(53, "tcp", "The cluster's DNS")
DNS_UDP = Port(53, "udp", "The cluster's DNS")

REDIS = Port(10000, "tcp", "Azure Managed Redis over TLS")
GATEWAY_HEALTH = Port(32080, "tcp", "Node port where the load balancer asks whether a node has a gateway that is ready")
AGENT_NODE_HEALTH = Port(32082, "tcp", "Node port where it asks whether a node has an agent that takes callers")
VAD_NODE_HEALTH = Port(32081, "tcp", "Node port where it asks whether a node has a data plane that is ready")

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
    DEVICE_PLUGIN = "device-plugin"
    """Tells the kubelet of a node's GPUs; talks to nobody over the network."""
    GPU_METRICS = "gpu-metrics"
    """DCGM exporters."""
    EDGE = "edge"
    """The application gateway; no pod."""
    GATEWAY = "gateway"
    """Session API and WebSocket audio."""
    VAD = "vad"
    """The data plane."""
    ASR = "asr"
    """Our engine, before the services that transcribe."""
    AGENT = "agent"
    """Holds spoken conversations."""
    STATE = "state"
    """The state store; no pod."""
    MONITORING = "monitoring"
    """The cluster's Prometheus agent, in the namespace ``kube-system``."""
    DNS = "dns"
    """The cluster's DNS, in the namespace ``kube-system``."""
    API_SERVER = "api-server"
    """Kubernetes' own API; no pod."""
    INTERNET = "internet"
    """Public addresses."""


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
    ClusterFlow(Component.MONITORING, Component.GPU_METRICS, DCGM),
    ClusterFlow(Component.ROUTER, Component.API_SERVER, KUBERNETES_API),
    ClusterFlow(Component.MODEL_FETCH, Component.INTERNET, HTTPS),
    ClusterFlow(Component.ROUTER, Component.DNS, DNS_UDP),
    ClusterFlow(Component.ROUTER, Component.DNS, DNS_TCP),
    ClusterFlow(Component.MODEL_FETCH, Component.DNS, DNS_UDP),
    ClusterFlow(Component.MODEL_FETCH, Component.DNS, DNS_TCP),
)


def _of_tier(tier: Component) -> tuple[ClusterFlow, ...]:
    """Return what every tier that carries callers needs."""
    return (
        ClusterFlow(tier, Component.STATE, REDIS),
        # Microsoft Entra, which gives the tokens for the store; for the gateway the issuer of callers' tokens too.
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
    *(flow for tier in (Component.GATEWAY, Component.VAD, Component.ASR) for flow in _of_tier(tier)),
)
"""What is allowed beside it where there are callers; security groups follow from the flows of edge and Internet."""

AGENT_FLOWS: tuple[ClusterFlow, ...] = (
    ClusterFlow(Component.EDGE, Component.AGENT, AGENT_HTTP),
    ClusterFlow(Component.AGENT, Component.GATEWAY, GATEWAY_HTTP),
    ClusterFlow(Component.AGENT, Component.ROUTER, ROUTER_HTTP),
    ClusterFlow(Component.MONITORING, Component.AGENT, PROMETHEUS),
    *_of_tier(Component.AGENT),
    # A full agent hands a caller's connection to one with room.
    ClusterFlow(Component.AGENT, Component.AGENT, AGENT_HTTP),
)
"""The same where there are agents; engines and tools elsewhere are reached as Microsoft Entra is."""


def cluster_flows(*, callers: bool, agents: bool) -> tuple[ClusterFlow, ...]:
    """Return ``CLUSTER_FLOWS``, and the others where somebody is let in, and answered."""
    return CLUSTER_FLOWS + (CALLER_FLOWS if callers else ()) + (AGENT_FLOWS if agents else ())
