"""Ports, permitted traffic, and packet sizes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True)
class Port:
    """A listening port."""

    number: int
    protocol: Literal["tcp", "udp"]
    purpose: str


PUBLIC_TLS = Port(443, "tcp", "TLS: WebSocket audio from browsers")
AWS_API = Port(443, "tcp", "HTTPS to AWS APIs, through VPC endpoints or a NAT gateway")
RTP = Port(5004, "udp", "RTP or SRTP audio, L16 16 kHz mono, 20 ms a packet (RFC 3550, RFC 3711)")
CHUNK = Port(5006, "udp", "AudioChunk datagrams from the VAD tier")
GATEWAY_HTTP = Port(8080, "tcp", "Session API and server-sent events, for API Gateway only, which lets callers in")
GATEWAY_MEDIA = Port(8083, "tcp", "WebSocket audio, authenticated by session token only; the session API is not here")
AGENT_HTTP = Port(8084, "tcp", "Conversations over WebSockets, and the agent's health and metrics")
VAD_HEALTH = Port(8081, "tcp", "Answers only while packets can flow")
VALKEY = Port(6379, "tcp", "Valkey over TLS")
ENGINE_HEALTH = Port(8082, "tcp", "Whisper engine's readiness, on the host's loopback only")
PROMETHEUS = Port(9400, "tcp", "Metrics in Prometheus format: on a host's loopback only, in a cluster for its agent")
VLLM = Port(8000, "tcp", "vLLM's OpenAI-compatible API, on the host's loopback only")


class Tier(StrEnum):
    """A group of network interfaces that share a security group."""

    INTERNET = "internet"
    PUBLIC_LOAD_BALANCER = "public-load-balancer"
    API_LOAD_BALANCER = "api-load-balancer"
    AGENT_LOAD_BALANCER = "agent-load-balancer"
    GATEWAY = "gateway"
    AGENT = "agent"
    VAD = "vad"
    ASR = "asr"
    STATE = "state"
    AWS = "aws"


@dataclass(frozen=True)
class Flow:
    """Traffic that the network allows. All other traffic is denied."""

    source: Tier
    destination: Tier
    port: Port


FLOWS: tuple[Flow, ...] = (
    Flow(Tier.INTERNET, Tier.PUBLIC_LOAD_BALANCER, PUBLIC_TLS),
    Flow(Tier.INTERNET, Tier.PUBLIC_LOAD_BALANCER, RTP),
    Flow(Tier.PUBLIC_LOAD_BALANCER, Tier.GATEWAY, GATEWAY_MEDIA),
    Flow(Tier.PUBLIC_LOAD_BALANCER, Tier.VAD, RTP),
    Flow(Tier.PUBLIC_LOAD_BALANCER, Tier.VAD, VAD_HEALTH),
    Flow(Tier.API_LOAD_BALANCER, Tier.GATEWAY, GATEWAY_HTTP),
    Flow(Tier.INTERNET, Tier.AGENT_LOAD_BALANCER, PUBLIC_TLS),
    Flow(Tier.AGENT_LOAD_BALANCER, Tier.AGENT, AGENT_HTTP),
    # A full agent forwards a caller's connection to an agent with free capacity.
    Flow(Tier.AGENT, Tier.AGENT, AGENT_HTTP),
    # This path exists in addition to API Gateway. The port's name is the description of a rule, which EC2 does not
    # change while the rule is in use.
    Flow(Tier.AGENT, Tier.API_LOAD_BALANCER, GATEWAY_HTTP),
    Flow(Tier.GATEWAY, Tier.VAD, RTP),
    Flow(Tier.VAD, Tier.ASR, CHUNK),
    Flow(Tier.GATEWAY, Tier.STATE, VALKEY),
    Flow(Tier.AGENT, Tier.STATE, VALKEY),
    Flow(Tier.VAD, Tier.STATE, VALKEY),
    Flow(Tier.ASR, Tier.STATE, VALKEY),
    Flow(Tier.GATEWAY, Tier.AWS, AWS_API),
    Flow(Tier.AGENT, Tier.AWS, AWS_API),
    Flow(Tier.VAD, Tier.AWS, AWS_API),
    Flow(Tier.ASR, Tier.AWS, AWS_API),
)

XDP_MTU = 3498
"""Maximum MTU with native XDP on ENA. A frame must fit a 4 KiB page with its headroom and tailroom. amzn-drivers
documents 3502, but users found 3498 to be the largest MTU at which XDP attaches
(https://github.com/amzn/amzn-drivers/issues/221)."""

ENA_EXPRESS_MTU = 8900
"""Maximum MTU with ENA Express, whose header must fit into a jumbo frame together with the packet.
https://github.com/amzn/amzn-ec2-ena-utilities/tree/main/ena-express"""
