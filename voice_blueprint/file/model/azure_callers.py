"""The edge of an Azure section and the services on its CPU pool."""

from typing import Annotated, Literal

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.edge import CallerSettings, JwtAuthorizer, NoAuthorizer
from voice_blueprint.file.model.known import ModelName, VmSizeName
from voice_blueprint.file.model.text import DomainName, SecretName, VaultId

RedisSku = Literal["Balanced_B3", "Balanced_B5", "Balanced_B10", "Balanced_B20"]
"""Sizes with two nodes and one shard. Azure offers larger stores only with clustering."""


class CpuPool(Model):
    """Nodes for the services that handle calls without a GPU: gateway, VAD and ASR."""

    vm_size: VmSizeName
    """Azure VM size of the catalogue, without a GPU."""
    nodes: HostCount


class ManagedRedis(Model):
    """Azure Managed Redis, which stores sessions, transcripts and unfinished audio."""

    sku: RedisSku = "Balanced_B5"
    """SKU of the store. Each SKU has two nodes, and the number in its name is the approximate memory, GiB."""


class AzureDomain(Model):
    """A custom domain for ``api.<name>``, ``media.<name>`` and ``rtp.<name>``. You create their DNS records."""

    name: DomainName
    """Parent of ``api.<name>``, ``media.<name>`` and ``rtp.<name>``."""


class VaultCertificate(Model):
    """A certificate in an existing key vault. The edge uses a renewed certificate within four hours."""

    vault_id: VaultId
    """Resource id of the vault. It must use role-based access control and allow trusted Microsoft services."""
    name: SecretName
    """Name of the certificate, which must cover ``api.`` and ``media.`` of the domain."""


class GatewayPods(Model):
    """The gateway on the cluster."""

    replicas: HostCount
    # A pod of 0.1 CPUs serves ten calls (voice_blueprint/capacity/bounds.py); a pod of less than 0.01 CPUs serves none.
    cpus: float = Field(default=1, ge=0.1, le=4)
    """CPUs per pod. A gateway process uses one core."""
    memory_gib: int = Field(default=2, ge=1, le=64)
    """Memory per pod, GiB."""
    sockets_per_pod: int | None = Field(default=None, ge=2)
    """Maximum open sockets per pod, two per call. The default follows from the pod's CPUs and memory."""


class AzureEdge(CallerSettings):
    """Application Gateway with a web firewall for HTTP and WebSockets, a load balancer for UDP, and the gateway."""

    authorizer: Annotated[JwtAuthorizer | NoAuthorizer, Field(discriminator="kind")]
    """Authentication of callers: a token that the gateway verifies, or none."""
    domain: AzureDomain
    certificate: VaultCertificate
    requests_per_address_5_min: int = Field(default=10_000, ge=1, le=5_000_000)
    """Maximum requests from one IP address within five minutes. The web firewall blocks an address that exceeds it."""
    gateway: GatewayPods


class VadPods(Model):
    """The data plane on the cluster, with kernel sockets instead of DPDK."""

    replicas: HostCount
    cpus: int = Field(default=2, ge=2, le=32)
    """Whole CPUs per pod: one for each polled socket, and one for everything else."""
    memory_gib: int = Field(default=2, ge=1, le=64)
    """Memory per pod, GiB."""
    drain_timeout_s: int = Field(default=600, ge=30, le=3600)
    """Maximum time for a terminating pod to hand over its sessions, seconds."""


class AsrPods(Model):
    """Our engine on the CPU pool. It assembles utterances, which an audio model on the cluster transcribes."""

    model: ModelName
    """Transcription model. It must accept audio, and a service in this file must serve it. The router selects a
    replica."""
    replicas: HostCount
    sessions: int = Field(default=400, ge=1, le=4096)
    """Maximum sessions per pod. A full pod refuses further sessions."""
    cpus: int = Field(default=2, ge=1, le=32)
    """CPUs per pod."""
    memory_gib: int = Field(default=4, ge=1, le=64)
    """Memory per pod, GiB."""
    drain_timeout_s: int = Field(default=900, ge=30, le=3600)
    """Maximum time for a terminating pod to finish its sessions, seconds."""


class Callers(Model):
    """Access for callers, as on AWS: a session API, audio over WebSockets and SRTP, and transcripts."""

    state: ManagedRedis = ManagedRedis()
    edge: AzureEdge
    vad: VadPods
    asr: AsrPods
