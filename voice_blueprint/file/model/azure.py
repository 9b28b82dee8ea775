"""The `azure` section of a deployment file."""

import math
from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from voice_blueprint.base import Model
from voice_blueprint.file.errors import SettingError
from voice_blueprint.file.model.agents import AgentPods, ClusterService
from voice_blueprint.file.model.azure_callers import Callers, CpuPool
from voice_blueprint.file.model.base import HostCount, find_first_duplicate_index, parse_private_network
from voice_blueprint.file.model.edge import TranscriptArchive
from voice_blueprint.file.model.known import AzureRegion, ModelName, VmSizeName
from voice_blueprint.file.model.observability import AzureObservability
from voice_blueprint.file.model.serving import KvCacheType, Load, ModelAgreement, Profile, Quantization
from voice_blueprint.file.model.text import (
    AddressRange,
    AzureZone,
    DnsZoneId,
    KubernetesVersion,
    Name,
    NetworkId,
    ObjectId,
    PoolName,
    RegistryId,
    ReservationGroupId,
    Revision,
    SecretName,
    SubnetId,
    TimeOfDay,
    WorkspaceId,
)

SYSTEM_POOL_NAME = "system"
"""Name of the node pool of `system_pool`."""
CPU_POOL_NAME = "cpu"
"""Name of the node pool of `cpu_pool`."""

AKS_RESERVED_RANGES = tuple(map(IPv4Network, ("172.30.0.0/16", "172.31.0.0/16")))
"""Private ranges that AKS reserves. Nodes, pods and services must not use them:
https://learn.microsoft.com/azure/aks/concepts-network-cni-overview#aks-cni-networking-prerequisites"""
SERVICE_PREFIX_LENGTHS = range(13, 27)
"""Prefix lengths allowed for the service range. AKS requires a range smaller than a /12
(https://learn.microsoft.com/azure/aks/use-byo-cni); a /26 has addresses for the dozen services of AKS's add-ons and
about forty others. The DNS service uses the tenth address."""

MAX_FILE_SHARE_GIB = 102_400
"""Maximum size of a share of Azure Files:
https://learn.microsoft.com/dotnet/api/azure.resourcemanager.storage.filesharedata.sharequota"""


class ClusterNetwork(Model):
    """The virtual network of the cluster. Pods get their addresses from an overlay network instead."""

    cidr: str = "10.60.0.0/16"
    """IPv4 range of the virtual network, /16 to /22. For an existing network, specify its actual range."""
    pod_cidr: str = "10.244.0.0/16"
    """IPv4 range of the pods' overlay network. Each node uses a /24."""
    service_cidr: str = "10.61.0.0/16"
    """IPv4 range of Kubernetes services, /13 to /26. It must not overlap the ranges of pods and nodes."""

    @field_validator("cidr", "pod_cidr", "service_cidr")
    @classmethod
    def _check_private(cls, value: str) -> str:
        parse_private_network(value)
        return value

    @model_validator(mode="after")
    def _check_ranges(self) -> "ClusterNetwork":
        ranges = {"cidr": self.cidr, "pod_cidr": self.pod_cidr, "service_cidr": self.service_cidr}
        networks = {name: parse_private_network(value) for name, value in ranges.items()}
        names = list(networks)
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                if networks[one].overlaps(networks[other]):
                    raise SettingError((other,), f"{ranges[other]} overlaps {one} {ranges[one]}; use another range")
        for name, network in networks.items():
            for reserved in AKS_RESERVED_RANGES:
                if network.overlaps(reserved):
                    raise SettingError(
                        (name,), f"{ranges[name]} overlaps {reserved}, which AKS reserves; use another range"
                    )
        if (services := networks["service_cidr"]).prefixlen not in SERVICE_PREFIX_LENGTHS:
            raise SettingError(
                ("service_cidr",),
                f"{self.service_cidr} is a /{services.prefixlen}; a range of services is a "
                f"/{SERVICE_PREFIX_LENGTHS[0]} to a /{SERVICE_PREFIX_LENGTHS[-1]}",
            )
        prefix = networks["cidr"].prefixlen
        if not 16 <= prefix <= 22:  # noqa: PLR2004  below /22 the subnets for nodes and endpoints do not fit
            raise SettingError(("cidr",), f"{self.cidr} is a /{prefix}; a virtual network here is a /16 to a /22")
        return self


class PublicApiServer(Model):
    """A public API server for the listed ranges only, and a public Grafana with sign-in. ACR imports images itself."""

    kind: Literal["public"]
    # AKS allows 200, one of which is the address of the nodes:
    # https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges
    authorized_ranges: tuple[AddressRange, ...] = Field(min_length=1, max_length=199)
    """IPv4 ranges that may connect to the API server, such as those of an office or of CI runners."""


class JumpHost(Model):
    """A virtual machine in the network. Users sign in with Microsoft Entra and connect to it through Azure Bastion.

    Run commands that require access to the network on this machine. To run pipelines on it, register it as a
    self-hosted runner.
    """

    kind: Literal["jump-host"]
    vm_size: VmSizeName = "Standard_D4ds_v5"
    """Azure VM size of the catalogue, without a GPU. The machine also builds images."""


class PeeredNetwork(Model):
    """Peering with the virtual network of operators and runners, or with one that has a VPN gateway."""

    kind: Literal["peering"]
    network_id: NetworkId
    """Resource id of the network. The deploying identity needs permission to peer it and to link DNS zones to it."""
    through_gateway: bool = False
    """Whether clients of that network's VPN or ExpressRoute gateway can connect too."""


class ExistingNetwork(Model):
    """Your own virtual network, which operators can already reach. You manage its routes and security rules."""

    kind: Literal["existing-network"]
    nodes_subnet_id: SubnetId
    """Resource id of the nodes' subnet, which must have the service endpoint Microsoft.Storage."""
    endpoints_subnet_id: SubnetId
    """Resource id of the subnet for private endpoints."""
    egress: Literal["nat-gateway", "route-table"] = "nat-gateway"
    """Outbound route of the nodes' subnet: a NAT gateway, or a route table, for example to a firewall."""

    @property
    def network_id(self) -> str:
        """Resource id of the network that contains both subnets."""
        return self.nodes_subnet_id.rpartition("/subnets/")[0]

    @model_validator(mode="after")
    def _check_network(self) -> "ExistingNetwork":
        other = self.endpoints_subnet_id.rpartition("/subnets/")[0]
        if other.lower() != self.network_id.lower():
            location = ("endpoints_subnet_id",)
            raise SettingError(location, f"is in {other}, and nodes_subnet_id in {self.network_id}; use one network")
        return self


ClusterAccess = Annotated[PublicApiServer | JumpHost | PeeredNetwork | ExistingNetwork, Field(discriminator="kind")]

REGISTRY_DNS_ZONE = "privatelink.azurecr.io"
GRAFANA_DNS_ZONE = "privatelink.grafana.azure.com"
VAULT_DNS_ZONE = "privatelink.vaultcore.azure.net"
STATE_STORE_DNS_ZONE = "privatelink.redis.azure.net"
ARCHIVE_DNS_ZONE = "privatelink.blob.core.windows.net"


def format_api_server_dns_zone(location: str) -> str:
    """Return the private DNS zone of API servers in a region."""
    return f"privatelink.{location}.azmk8s.io"


class ExistingResources(Model):
    """Existing resources that the deployment uses instead of creating its own."""

    registry_id: RegistryId | None = None
    """Resource id of a container registry that the nodes can reach. Its push permissions are not changed."""
    log_workspace_id: WorkspaceId | None = None
    """Resource id of a Log Analytics workspace. Its retention is not changed."""
    private_dns_zones: tuple[DnsZoneId, ...] = ()
    """Resource ids of private DNS zones for the registry, Grafana, the key vault, the state store, the archive or the
    API server. The zones must already be linked to existing networks. If the deployment creates a network, link it
    after the cluster is created (docs/guides/azure.md)."""

    def find_private_dns_zone_id(self, name: str) -> str | None:
        """Return the id of the existing zone with this name, or ``None`` if the deployment creates the zone."""
        return next((zone for zone in self.private_dns_zones if zone.rpartition("/")[2].lower() == name), None)


class SystemPool(Model):
    """Nodes for system pods, the router and other services without a GPU."""

    vm_size: VmSizeName
    """Azure VM size of the catalogue, without a GPU."""
    nodes: HostCount


class OnDemandNodes(Model):
    """On-demand capacity, billed by the second and not guaranteed."""

    option: Literal["on-demand"] = "on-demand"


_MAX_PRICE_DECIMALS = 5


class SpotNodes(Model):
    """Spare capacity, reclaimed with thirty seconds' notice."""

    option: Literal["spot"]
    max_usd_per_hour: float | None = Field(default=None, gt=0)
    """Price above which a node is evicted, USD per hour. By default, nodes are not evicted because of the price."""

    @field_validator("max_usd_per_hour")
    @classmethod
    def _check_decimals(cls, value: float | None) -> float | None:
        """Reject a price that Azure rejects: https://learn.microsoft.com/azure/aks/spot-node-pool#limitations."""
        if value is not None and value != round(value, _MAX_PRICE_DECIMALS):
            higher = math.ceil(value * 10**_MAX_PRICE_DECIMALS) / 10**_MAX_PRICE_DECIMALS
            raise ValueError(
                f"{value} has more than {_MAX_PRICE_DECIMALS} decimal places, and Azure accepts at most that many; "
                f"write "
                f"{higher:.{_MAX_PRICE_DECIMALS}f}"
            )
        return value


class ReservedNodes(Model):
    """A capacity reservation group that already exists."""

    option: Literal["capacity-reservation"]
    group_id: ReservationGroupId
    """Resource id of the group."""


NodePurchaseOption = Annotated[OnDemandNodes | SpotNodes | ReservedNodes, Field(discriminator="option")]


class TopologyPolicy(StrEnum):
    """Topology manager policy of the kubelet, for the NUMA alignment of CPUs and GPUs."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class GpuPool(Model):
    """Nodes of one GPU size."""

    name: PoolName
    """Name of the pool, unique in the file. Services refer to the pool by this name. AKS allows up to twelve lower-case
    letters and digits."""
    vm_size: VmSizeName
    """Azure VM size of the catalogue, with GPUs, such as ``Standard_NC96ads_A100_v4``."""
    nodes: HostCount
    availability_zones: tuple[AzureZone, ...] | None = None
    """Availability zones of this pool. The default is all zones of the cluster."""
    purchase: NodePurchaseOption = OnDemandNodes()
    """Purchase option: on-demand, spot, or a capacity reservation."""
    topology_policy: TopologyPolicy = TopologyPolicy.BEST_EFFORT
    surge_nodes: int = Field(default=0, ge=0, le=10)
    """Nodes that an upgrade adds before it drains a node. The upgrade fails if there is no quota or capacity for them.
    With 0, the pool has one node fewer during an upgrade. AKS requires 0 for spot pools."""
    os_disk_gib: int = Field(default=256, ge=128, le=2048)
    """Size of the OS disk, which stores container images, GiB. An inference image unpacks to about 30 GiB."""


class LmcachePool(Model):
    """Host memory and disk for the KV cache of sessions that may resume."""

    l1_gib: int = Field(default=200, gt=0)
    """Host memory for all LMCache servers of a cell, GiB."""
    l2_nvme_gib: int = Field(default=0, ge=0)
    """Local NVMe storage for all LMCache servers of a cell, GiB."""


class PeerPool(LmcachePool):
    """Host memory and disk for the KV cache of replicas that run one engine each."""

    peers: bool = False
    """Whether replicas read each other's KV cache. If not, a replica recomputes the KV cache of every conversation that
    moves to it after a scale-out, a rollout, or the loss of a node."""


class Service(Model):
    """Settings common to all services on the cluster."""

    name: Name
    """Name of the service, unique in the file. Names of pods, alerts and scaling rules contain it."""
    model: ModelName
    """Name of the model in the catalogue."""
    revision: Revision | None = None
    """Commit of the model's repository. The default is the latest."""
    replicas: HostCount
    drain_timeout_s: int = Field(default=600, ge=30, le=3600)
    """Maximum time for a terminating replica to finish its requests, seconds."""

    def get_replica_bounds(self, pool: str) -> HostCount:  # noqa: ARG002  one kind of service has bounds for each pool
        """Return the bounds of the service's replicas on a pool."""
        return self.replicas


class MissingPeerAccessPolicy(StrEnum):
    """Behaviour of a cell whose GPUs cannot transfer KV cache to each other directly.

    The cell's start-up checks read the topology that the driver reports (``topo -p2p``), and the transport that UCX
    selected for the first transfer.
    """

    REFUSE = "refuse"
    """The pod does not start, or its decode engine stops before it becomes ready."""
    WARN = "warn"
    """The pod starts and logs a warning. KV cache is transferred through host memory."""


class PrefillDecodeCell(Service):
    """A pod that uses all GPUs of a node, with prefill on one NVLink pair and decode on the other."""

    kind: Literal["prefill-decode-cell"]
    pool: PoolName
    """Name of the pool whose nodes run the cells. A cell uses a whole node."""
    load: Load
    cpus: int = Field(default=80, gt=0)
    """Whole CPUs that the pod requests, for NUMA alignment."""
    without_peer_access: MissingPeerAccessPolicy = MissingPeerAccessPolicy.REFUSE
    """Behaviour of a cell if its prefill and decode GPUs have no peer access, or if UCX does not use it."""
    lmcache: LmcachePool = LmcachePool()
    profile: Profile = Profile.TUNED


class AggregatedService(Service):
    """Replicas that run prefill and decode in one engine."""

    kind: Literal["aggregated"]
    pool: PoolName
    """Name of the pool whose nodes run the replicas."""
    load: Load
    tensor_parallel: int = Field(default=1, gt=0)
    """GPUs per engine. They must share an NVLink domain."""
    cpus: int = Field(default=20, gt=0)
    """CPUs that a replica's pod requests."""
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    lmcache: PeerPool | None = None
    profile: Profile = Profile.TUNED


class PoolReplicas(HostCount):
    """Minimum and maximum number of a service's replicas on one of its pools."""

    pool: PoolName
    """Name of one of the service's pools."""


class ChatService(Service):
    """A text model on one or more GPU pools, with engine flags for each pool.

    ``load`` is the total across all pools. Pools scale out in the listed order. A pool exceeds its minimum only when
    all earlier pools are at their maximum.
    """

    kind: Literal["chat"]
    pools: tuple[PoolName, ...] = Field(min_length=1)
    """Names of the pools whose nodes run the replicas, in the order in which they scale."""
    pool_replicas: tuple[PoolReplicas, ...] = ()
    """Minimum and maximum number of replicas on individual pools. The default is ``replicas``."""
    load: Load
    cpus: int = Field(default=10, gt=0)
    """CPUs that a replica's pod requests."""
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    profile: Profile = Profile.TUNED

    def get_replica_bounds(self, pool: str) -> HostCount:
        return next((bounds for bounds in self.pool_replicas if bounds.pool == pool), self.replicas)


class TtsService(Service):
    """Text to speech on vLLM-Omni. A replica runs both stages on one GPU."""

    kind: Literal["tts"]
    pool: PoolName
    """Name of the pool whose nodes run the replicas."""
    sessions: int = Field(gt=0)
    """Concurrent listeners across all replicas."""
    cpus: int = Field(default=10, gt=0)
    """CPUs that a replica's pod requests."""
    cuda_graphs: bool = True
    """Whether to use CUDA graphs. `false` selects eager mode, for comparisons in a load test."""


AzureService = Annotated[PrefillDecodeCell | AggregatedService | ChatService | TtsService, Field(discriminator="kind")]


class Router(Model):
    """The router in front of all engines. It keeps a conversation on one replica of a service."""

    replicas: int = Field(default=2, ge=1, le=10)
    """Router pods. With at least two, the router remains available when a pod is lost."""

    @model_validator(mode="before")
    @classmethod
    def _drop_routing(cls, values: object) -> object:
        """Accept the only value of 0.1's ``routing`` that is still valid."""
        if not isinstance(values, dict) or "routing" not in values:
            return values
        if values["routing"] != "session":
            raise ValueError(
                f"routing {values['routing']!r} was removed in version 0.1: the router keeps a conversation on one "
                "replica; remove the setting"
            )
        return {name: value for name, value in values.items() if name != "routing"}


class MaintenanceWindow(Model):
    """Maintenance window in which AKS may upgrade the cluster and its node images, UTC."""

    day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"] = "Sunday"
    """Day of the week."""
    start: TimeOfDay = "01:00"
    """Start of the window, hours and minutes, UTC."""
    hours: int = Field(default=6, ge=4, le=24)
    """Length of the window, hours."""


class Azure(Model):
    """Everything that is deployed to Azure."""

    location: AzureRegion
    """Azure region, such as ``westeurope``."""
    availability_zones: tuple[AzureZone, ...] = ("1", "2", "3")
    """Availability zones of the nodes."""
    kubernetes_version: KubernetesVersion
    """Minor version of Kubernetes. AKS applies patch versions."""
    admin_groups: tuple[ObjectId, ...] = Field(min_length=1)
    """Object ids of the Microsoft Entra groups whose members administer the cluster. Local accounts are disabled."""
    network: ClusterNetwork = ClusterNetwork()
    access: ClusterAccess
    """Access to the API server and other private endpoints for operators and pipelines."""
    existing: ExistingResources = ExistingResources()
    system_pool: SystemPool
    pools: tuple[GpuPool, ...] = Field(min_length=1)
    services: tuple[AzureService, ...] = Field(min_length=1)
    """Inference services: cells, aggregated engines, chat models and text to speech."""
    router: Router = Router()
    cpu_pool: CpuPool | None = None
    """Nodes for the services that handle calls. Required by `callers`."""
    callers: Callers | None = None
    """Public access for callers. By default, only pods in the cluster can use its services, through the router."""
    agents: AgentPods | None = None
    """Agents that answer callers by speech. Requires `callers`."""
    model_cache_gib: int = Field(default=1024, ge=100, le=MAX_FILE_SHARE_GIB)
    """Size of the file share for weights and compile caches, GiB. Azure's premium shares start at 100 GiB."""
    hub_token_secret: SecretName | None = None
    """Name of the key vault secret that contains a Hugging Face token, for gated or private repositories. By default,
    models are downloaded anonymously."""
    commercial: bool = True
    """Whether the deployment is for commercial use, which the licences of some models restrict."""
    model_agreements: tuple[ModelAgreement, ...] = ()
    maintenance: MaintenanceWindow = MaintenanceWindow()
    observability: AzureObservability = AzureObservability()
    log_retention_days: int = Field(default=30, ge=30, le=730)
    """Retention of logs, days."""

    @model_validator(mode="after")
    def _check_unique_names(self) -> "Azure":
        for section, end, names in (
            ("pools", ("name",), [pool.name for pool in self.pools]),
            ("services", ("name",), [service.name for service in self.services]),
            ("availability_zones", (), list(self.availability_zones)),
            ("admin_groups", (), list(self.admin_groups)),
        ):
            if duplicate := find_first_duplicate_index(names):
                raise SettingError(
                    (section, duplicate, *end), f"{names[duplicate]} is listed twice in {section}; use another"
                )
        for index, pool in enumerate(self.pools):
            if pool.name in {SYSTEM_POOL_NAME, CPU_POOL_NAME}:
                raise SettingError(
                    ("pools", index, "name"), f"{pool.name} is the name of `{pool.name}_pool`; use another name"
                )
        return self

    @model_validator(mode="after")
    def _check_callers(self) -> "Azure":
        if self.callers is None:
            return self
        if self.cpu_pool is None:
            raise SettingError(("callers",), "`callers` need a `cpu_pool`: gateway, VAD and ASR run on it")
        if self.access.kind == "existing-network":
            words = "`callers` require a network that the deployment creates, with a subnet for its edge"
            raise SettingError(("callers",), words)
        model = self.callers.asr.model
        if model not in {each.model for each in self.services if each.kind in {"aggregated", "prefill-decode-cell"}}:
            location = ("callers", "asr", "model")
            raise SettingError(
                location, f"{model} is served by no aggregated service and no cell of this file; add one"
            )
        return self

    @model_validator(mode="after")
    def _check_agent_engines(self) -> "Azure":
        if self.agents is None:
            return self
        if self.callers is None:
            raise SettingError(("agents",), "`agents` require `callers`: agents receive calls through the gateway")
        for role, engine, kinds in (
            ("chat", self.agents.chat, {"chat", "aggregated", "prefill-decode-cell"}),
            ("speech", self.agents.speech, {"tts"}),
        ):
            named = {each.name for each in self.services if each.kind in kinds}
            if isinstance(engine, ClusterService) and engine.service not in named:
                raise SettingError(
                    ("agents", role, "service"),
                    f"{engine.service} is not a service of kind {' or '.join(sorted(kinds))}; there "
                    f"are {', '.join(sorted(named)) or 'none: name an endpoint'}",
                )
        return self

    @model_validator(mode="after")
    def _check_zones(self) -> "Azure":
        used_zones = {
            REGISTRY_DNS_ZONE, GRAFANA_DNS_ZONE, VAULT_DNS_ZONE, STATE_STORE_DNS_ZONE, ARCHIVE_DNS_ZONE,
            format_api_server_dns_zone(self.location)
        }  # fmt: skip
        for index, zone in enumerate(self.existing.private_dns_zones):
            if (name := zone.rpartition("/")[2].lower()) not in used_zones:
                location = ("existing", "private_dns_zones", index)
                zones = ", ".join(sorted(used_zones))
                raise SettingError(location, f"private DNS zone {name} is not used; possible zones are {zones}")
        return self

    @property
    def archive(self) -> TranscriptArchive | None:
        """The setting in ``callers.edge``, or ``None`` if it is not set or the section has no callers."""
        return self.callers.edge.archive if self.callers else None

    @property
    def has_peers(self) -> bool:
        """Whether replicas of a service read each other's KV cache."""
        pools = (each.lmcache for each in self.services if isinstance(each, AggregatedService))
        return any(pool is not None and pool.peers for pool in pools)

    @property
    def is_private(self) -> bool:
        """Whether the API server is only reachable from the network."""
        return not isinstance(self.access, PublicApiServer)
