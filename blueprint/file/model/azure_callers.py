"""How callers reach an Azure half: the edge, and what runs on the CPU pool behind it."""

from typing import Annotated, Literal

from pydantic import Field

from blueprint.base import Model
from blueprint.file.model.base import HostCount
from blueprint.file.model.edge import CallerRules, JwtAuthorizer, NoAuthorizer

VaultId = Annotated[
    str, Field(pattern=r"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.KeyVault/vaults/[^/]+$")
]
RedisSku = Literal["Balanced_B3", "Balanced_B5", "Balanced_B10", "Balanced_B20"]
"""Sizes with two nodes whose whole memory one shard may use: Azure makes no larger store without clusters."""


class CpuPool(Model):
    """The nodes of what needs no GPU and carries callers: gateway, VAD, ASR front."""

    vm_size: str
    """Azure VM size of the catalogue, without a GPU."""
    nodes: HostCount


class ManagedRedis(Model):
    """Azure Managed Redis: sessions, transcripts, unfinished audio."""

    sku: RedisSku = "Balanced_B5"
    """Size; each has two nodes, and the number is about the memory that data may take, GiB."""


class AzureDomain(Model):
    """Names of one's own: ``api.<name>``, ``media.<name>`` and ``rtp.<name>``, whose records you make."""

    name: Annotated[str, Field(pattern=r"^([a-z0-9-]+\.)+[a-z]{2,}$")]
    """Name that ``api.``, ``media.`` and ``rtp.`` are put before."""


class VaultCertificate(Model):
    """A certificate in a key vault that exists already; the edge takes each renewal within four hours."""

    vault_id: VaultId
    """Resource id of the vault. It decides by roles, and lets in trusted Microsoft services."""
    name: Annotated[str, Field(pattern=r"^[0-9a-zA-Z-]{1,127}$")]
    """Name of the certificate, for ``api.`` and ``media.`` of the domain."""


class GatewayPods(Model):
    """The gateway on the cluster."""

    replicas: HostCount
    cpus: float = Field(default=1, gt=0, le=4)
    """CPUs of a pod; one process uses one core."""
    memory_gib: int = Field(default=2, ge=1, le=64)
    """Memory of a pod, GiB."""
    sockets_per_pod: int | None = Field(default=None, ge=2)
    """Open sockets at which a pod refuses more, two a call; without it as many as its core and its memory carry."""


class AzureEdge(CallerRules):
    """Application Gateway with a web firewall for HTTP and WebSockets, a load balancer for UDP, the gateway behind."""

    authorizer: Annotated[JwtAuthorizer | NoAuthorizer, Field(discriminator="kind")]
    """Who may open a session: callers with a token, which the gateway verifies, or anybody."""
    domain: AzureDomain
    certificate: VaultCertificate
    requests_per_address_5_min: int = Field(default=10_000, ge=1, le=5_000_000)
    """The web firewall blocks an address above this rate; it counts over five minutes."""
    gateway: GatewayPods


class VadPods(Model):
    """The data plane on the cluster, with kernel sockets in place of DPDK."""

    replicas: HostCount
    cpus: int = Field(default=2, ge=2, le=32)
    """Whole CPUs of a pod: one for each socket that is polled, and one for everything else."""
    memory_gib: int = Field(default=2, ge=1, le=64)
    """Memory of a pod, GiB."""
    drain_timeout_s: int = Field(default=600, ge=30, le=3600)
    """Longest that a stopping pod may take to hand over its sessions, seconds."""


class AsrPods(Model):
    """Our engine on the CPU pool: it assembles utterances, and has an audio model of the cluster transcribe them."""

    model: str
    """Model that transcribes: one that takes audio, of a service of this file. The router takes any replica of it."""
    replicas: HostCount
    sessions: int = Field(default=400, ge=1, le=4096)
    """Sessions that a pod takes; a full one refuses."""
    cpus: int = Field(default=2, ge=1, le=32)
    """CPUs of a pod."""
    memory_gib: int = Field(default=4, ge=1, le=64)
    """Memory of a pod, GiB."""
    drain_timeout_s: int = Field(default=900, ge=30, le=3600)
    """Longest that a stopping pod may take to finish its sessions, seconds."""


class Callers(Model):
    """What lets callers in: a session API, audio over WebSockets and SRTP, transcripts, as on AWS."""

    state: ManagedRedis = ManagedRedis()
    edge: AzureEdge
    vad: VadPods
    asr: AsrPods
