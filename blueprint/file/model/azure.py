"""The Azure half of a deployment file."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from blueprint.base import Model
from blueprint.file.model.agents import AgentPods, ClusterService
from blueprint.file.model.azure_callers import Callers, CpuPool
from blueprint.file.model.base import HostCount, Name, private_network
from blueprint.file.model.observability import AzureObservability
from blueprint.file.model.serving import KvCacheType, Load, ModelAgreement, Profile, Quantization, Revision

CPU_POOL = "cpu"
"""Name of the nodes of `cpu_pool`."""

PoolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,11}$")]
"""AKS allows Linux pools twelve lower-case letters and digits."""

ObjectId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
"""An object of Microsoft Entra, such as a group."""


def _id(kind: str) -> str:
    """Return the pattern of a resource id; Azure compares without regard to case, and people paste either."""
    return rf"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.{kind}/[^/]+$"


NetworkId = Annotated[str, Field(pattern=_id("Network/virtualNetworks"))]
SubnetId = Annotated[str, Field(pattern=_id("Network/virtualNetworks/[^/]+/subnets"))]


class ClusterNetwork(Model):
    """The virtual network of the cluster. Pods live in an overlay of their own and take no addresses here."""

    cidr: str = "10.60.0.0/16"
    """IPv4 range of the virtual network, /16 to /22; of an existing one, its own."""
    pod_cidr: str = "10.244.0.0/16"
    """Range of the pods' overlay; every node takes a /24 of it."""
    service_cidr: str = "10.61.0.0/16"
    """IPv4 range of the cluster's services; pods and nodes take no addresses in it."""

    @field_validator("cidr", "pod_cidr", "service_cidr")
    @classmethod
    def _is_private(cls, value: str) -> str:
        private_network(value)
        return value

    @model_validator(mode="after")
    def _apart(self) -> "ClusterNetwork":
        ranges = {"cidr": self.cidr, "pod_cidr": self.pod_cidr, "service_cidr": self.service_cidr}
        networks = {name: private_network(value) for name, value in ranges.items()}
        names = list(networks)
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                if networks[one].overlaps(networks[other]):
                    raise ValueError(f"{one} {ranges[one]} overlaps {other} {ranges[other]}")
        prefix = networks["cidr"].prefixlen
        if not 16 <= prefix <= 22:  # noqa: PLR2004  below /22 the subnets for nodes and endpoints do not fit
            raise ValueError(f"cidr {self.cidr} is a /{prefix}; a virtual network here is a /16 to a /22")
        return self


class PublicApiServer(Model):
    """The API server answers listed ranges, and Grafana whoever signs in. Images are imported by the control plane."""

    kind: Literal["public"]
    authorized_ranges: tuple[str, ...] = Field(min_length=1)
    """Who may reach the API server, such as the addresses of an office or of a pipeline's runners."""


class JumpHost(Model):
    """A machine in the network, reached through Azure Bastion by whoever signs in with Microsoft Entra.

    Commands that need the network run on it; as a self-hosted runner it takes a pipeline's.
    """

    kind: Literal["jump-host"]
    vm_size: str = "Standard_D4ds_v5"
    """Azure VM size of the catalogue, without a GPU; it also builds images."""


class PeeredNetwork(Model):
    """Peering with a virtual network where operators and runners are, or that a VPN gateway leads to."""

    kind: Literal["peering"]
    network_id: NetworkId
    """Resource id of the network, from ``/subscriptions/`` on. Whoever deploys may peer it and link DNS zones to it."""
    through_gateway: bool = False
    """Whether who is behind that network's VPN or ExpressRoute gateway gets in as well."""


class ExistingNetwork(Model):
    """The cluster goes into a virtual network of yours, which operators reach already. Its rules are yours too."""

    kind: Literal["existing-network"]
    nodes_subnet_id: SubnetId
    """Where nodes get their addresses, with the service endpoint Microsoft.Storage."""
    endpoints_subnet_id: SubnetId
    """Where private endpoints get theirs."""
    egress: Literal["nat-gateway", "route-table"] = "nat-gateway"
    """What of the nodes' subnet leads out: its NAT gateway, or a route table, to a firewall for example."""

    @property
    def network_id(self) -> str:
        """Resource id of the network that both subnets are in."""
        return self.nodes_subnet_id.rpartition("/subnets/")[0]

    @model_validator(mode="after")
    def _one_network(self) -> "ExistingNetwork":
        other = self.endpoints_subnet_id.rpartition("/subnets/")[0]
        if other.lower() != self.network_id.lower():
            raise ValueError(f"endpoints_subnet_id is in {other}, nodes_subnet_id in {self.network_id}")
        return self


Access = Annotated[PublicApiServer | JumpHost | PeeredNetwork | ExistingNetwork, Field(discriminator="kind")]

REGISTRY_ZONE = "privatelink.azurecr.io"
GRAFANA_ZONE = "privatelink.grafana.azure.com"


def api_server_zone(location: str) -> str:
    """Return the private DNS zone of API servers in a region."""
    return f"privatelink.{location}.azmk8s.io"


class ExistingResources(Model):
    """What is there already, is used by its id, and is not made."""

    registry_id: Annotated[str, Field(pattern=_id("ContainerRegistry/registries"))] | None = None
    """A container registry that the nodes reach. Who may push to it stays as it is."""
    log_workspace_id: Annotated[str, Field(pattern=_id("OperationalInsights/workspaces"))] | None = None
    """A Log Analytics workspace; its retention stays as it is."""
    private_dns_zones: tuple[Annotated[str, Field(pattern=_id("Network/privateDnsZones"))], ...] = ()
    """Private DNS zones, known by their names: of the registry, of Grafana, of the API server. They are linked to the
    networks already."""

    def private_dns_zone(self, name: str) -> str | None:
        """Return the id of the zone of a name."""
        return next((zone for zone in self.private_dns_zones if zone.rpartition("/")[2].lower() == name), None)


class SystemPool(Model):
    """The nodes of the cluster's own pods, of the router and of what has no GPU."""

    vm_size: str
    """Azure VM size of the catalogue, without a GPU."""
    nodes: HostCount


class PayAsYouGo(Model):
    """Pay by the second, if there is capacity."""

    option: Literal["on-demand"] = "on-demand"


class SpotNodes(Model):
    """Spare capacity, taken back with thirty seconds' notice."""

    option: Literal["spot"]
    max_usd_per_hour: float | None = Field(default=None, gt=0)
    """Price in USD above which a node is evicted; absent, none is for its price."""


class ReservedNodes(Model):
    """A capacity reservation group that already exists."""

    option: Literal["capacity-reservation"]
    group_id: Annotated[str, Field(pattern=r"^/subscriptions/.+/capacityReservationGroups/[^/]+$")]
    """Resource id of the group, from ``/subscriptions/`` on."""


NodePurchase = Annotated[PayAsYouGo | SpotNodes | ReservedNodes, Field(discriminator="option")]


class TopologyPolicy(StrEnum):
    """How the kubelet aligns CPUs and GPUs with NUMA nodes."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class GpuPool(Model):
    """Nodes of one GPU size."""

    name: PoolName
    """Unique among the pools; services name the pool by it. AKS allows twelve lower-case letters and digits."""
    vm_size: str
    """Azure VM size of the catalogue, with GPUs, such as ``Standard_NC96ads_A100_v4``."""
    nodes: HostCount
    availability_zones: tuple[str, ...] | None = None
    """Zones of this pool, where it cannot use all of the cluster's."""
    purchase: NodePurchase = PayAsYouGo()
    """How the nodes are bought: by the second, spot, or from a capacity reservation."""
    topology_policy: TopologyPolicy = TopologyPolicy.BEST_EFFORT
    surge_nodes: int = Field(default=0, ge=0, le=10)
    """Nodes that an upgrade adds before it empties one. They take quota and free machines, without which the upgrade
    fails; with 0 the pool is one node short instead."""
    os_disk_gib: int = Field(default=256, ge=128, le=2048)
    """Holds the images; an inference image unpacks to about 30 GiB."""


class LmcachePool(Model):
    """Host memory and disk that keep the KV cache of sessions that may come back."""

    l1_gib: int = Field(default=200, gt=0)
    """Host memory of a cell in total, over its LMCache servers, GiB."""
    l2_nvme_gib: int = Field(default=0, ge=0)
    """Local NVMe of a cell in total, GiB; 0 is none."""


class Service(Model):
    """What every service on the cluster has."""

    name: Name
    """Unique among the services; pods, alerts and scaling name the service by it."""
    model: str
    """A model of the catalogue."""
    revision: Revision | None = None
    """Commit of the model's repository; absent, the newest is fetched."""
    replicas: HostCount
    drain_timeout_s: int = Field(default=600, ge=30, le=3600)
    """Time that a stopping replica may finish requests in, seconds."""

    def replicas_on(self, pool: str) -> HostCount:  # noqa: ARG002  one kind of service has bounds for each pool
        """Return the bounds of the service's replicas on a pool."""
        return self.replicas


class WithoutPeerAccess(StrEnum):
    """What a cell does where KV cache does not go from GPU to GPU.

    Its start-up checks read what the driver says of the node (``topo -p2p``), and what UCX chose at the first transfer.
    """

    REFUSE = "refuse"
    """Its pod does not start, or its decode engine stops before callers come."""
    WARN = "warn"
    """It starts and says so in its log: the KV cache then goes through host memory."""


class PrefillDecodeCell(Service):
    """One pod on all GPUs of a node: prefill on one NVLink pair, decode on the other."""

    kind: Literal["prefill-decode-cell"]
    pool: PoolName
    """Pool of this file whose nodes run the cells; a cell takes a whole node."""
    load: Load
    cpus: int = Field(default=80, gt=0)
    """CPUs that the pod asks for in whole; NUMA admission counts them."""
    without_peer_access: WithoutPeerAccess = WithoutPeerAccess.REFUSE
    """What a cell does where its prefill and decode GPUs do not reach each other's memory, or UCX does not use it."""
    lmcache: LmcachePool = LmcachePool()
    profile: Profile = Profile.TUNED


class AggregatedService(Service):
    """Replicas that prefill and decode in one engine, behind the router."""

    kind: Literal["aggregated"]
    pool: PoolName
    """Pool of this file whose nodes run the replicas."""
    load: Load
    tensor_parallel: int = Field(default=1, gt=0)
    """GPUs that one engine is split over; they have to share an NVLink domain."""
    cpus: int = Field(default=20, gt=0)
    """CPUs that a replica's pod asks for."""
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    lmcache: LmcachePool | None = None
    profile: Profile = Profile.TUNED


class PoolReplicas(HostCount):
    """Bounds of a service's replicas on one of its pools."""

    pool: PoolName
    """A pool of the service."""


class ChatService(Service):
    """A text model on one or more GPU pools; each pool is an engine class with flags of its own.

    ``load`` is what all of them carry together. Earlier pools are filled first: a later one grows beyond its minimum
    when those before it are at their most.
    """

    kind: Literal["chat"]
    pools: tuple[PoolName, ...] = Field(min_length=1)
    """Pools of this file that run replicas; each gets flags of its own."""
    pool_replicas: tuple[PoolReplicas, ...] = ()
    """Bounds on single pools; a pool without any has ``replicas``."""
    load: Load
    cpus: int = Field(default=10, gt=0)
    """CPUs that a replica's pod asks for."""
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    profile: Profile = Profile.TUNED

    def replicas_on(self, pool: str) -> HostCount:
        return next((bounds for bounds in self.pool_replicas if bounds.pool == pool), self.replicas)


class TtsService(Service):
    """Text to speech on vLLM-Omni: a replica is one GPU with both stages."""

    kind: Literal["tts"]
    pool: PoolName
    """Pool of this file whose nodes run the replicas."""
    sessions: int = Field(gt=0)
    """Callers who are spoken to at the same time, over all replicas."""
    cpus: int = Field(default=10, gt=0)
    """CPUs that a replica's pod asks for."""
    cuda_graphs: bool = True
    """Off is eager mode, for the comparison in the bench."""


AzureService = Annotated[PrefillDecodeCell | AggregatedService | ChatService | TtsService, Field(discriminator="kind")]


class Routing(StrEnum):
    """How the router chooses a replica."""

    SESSION = "session"
    """By the session's key: a returning caller finds the same replica."""
    PREFIX = "prefix"
    """By the longest prompt prefix that a replica has seen."""


class Router(Model):
    """The router in front of every engine."""

    routing: Routing = Routing.SESSION
    replicas: int = Field(default=2, ge=1, le=10)
    """Pods of the router; two or more make it survive the loss of one."""


class MaintenanceWindow(Model):
    """When AKS may upgrade the cluster and its node images, UTC."""

    day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"] = "Sunday"
    """Day of the week."""
    start: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = "01:00"
    """Start of the window, hours and minutes, UTC."""
    hours: int = Field(default=6, ge=4, le=24)
    """Length of the window, hours."""


class Azure(Model):
    """Everything that is deployed to Azure."""

    location: str
    """Azure region, such as ``westeurope``."""
    availability_zones: tuple[str, ...] = ("1", "2", "3")
    """Zones of the region that nodes are spread over."""
    kubernetes_version: Annotated[str, Field(pattern=r"^1\.[0-9]{2}$")]
    """Minor version; AKS applies patches."""
    admin_groups: tuple[ObjectId, ...] = Field(min_length=1)
    """Microsoft Entra groups whose members administer the cluster; there are no local accounts."""
    network: ClusterNetwork = ClusterNetwork()
    access: Access
    """How operators and pipelines reach the API server and what else answers inside the network only."""
    existing: ExistingResources = ExistingResources()
    system_pool: SystemPool
    pools: tuple[GpuPool, ...] = Field(min_length=1)
    services: tuple[AzureService, ...] = Field(min_length=1)
    """What the cluster serves: cells, aggregated engines, chat models, text to speech."""
    router: Router = Router()
    cpu_pool: CpuPool | None = None
    """Nodes of what carries callers; needed where there are `callers`."""
    callers: Callers | None = None
    """Who is let in. Without it only pods of the cluster reach its services, through the router."""
    agents: AgentPods | None = None
    """Who answers callers by speech; needs `callers`."""
    model_cache_gib: int = Field(default=1024, ge=100)
    """Shared file storage for weights and compile caches; Azure's premium shares start at 100 GiB."""
    hub_token_secret: Annotated[str, Field(pattern=r"^[0-9a-zA-Z-]{1,127}$")] | None = None
    """Secret of the key vault with a token of the models' hub, for repositories that are gated or private; absent,
    models are fetched as anybody can."""
    commercial: bool = True
    """Whether the deployment serves a business; licences of models distinguish."""
    model_agreements: tuple[ModelAgreement, ...] = ()
    maintenance: MaintenanceWindow = MaintenanceWindow()
    observability: AzureObservability = AzureObservability()
    log_retention_days: int = Field(default=30, ge=30, le=730)
    """How long logs are kept, days."""

    @model_validator(mode="after")
    def _names_and_zones(self) -> "Azure":
        for what, names in (
            ("pool", [pool.name for pool in self.pools]),
            ("service", [service.name for service in self.services]),
            ("availability zone", list(self.availability_zones)),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {', '.join(twice)} stands twice")
        return self

    @model_validator(mode="after")
    def _callers_have_what_they_need(self) -> "Azure":
        if self.cpu_pool and any(pool.name == CPU_POOL for pool in self.pools):
            raise ValueError(f"pool {CPU_POOL} stands twice: it is the name of `cpu_pool`")
        if self.callers is None:
            return self
        if self.cpu_pool is None:
            raise ValueError("`callers` need a `cpu_pool`: gateway, VAD and ASR run on it")
        if self.access.kind == "existing-network":
            raise ValueError("`callers` need a network that the deployment makes, with a subnet for its edge")
        model = self.callers.asr.model
        if model not in {each.model for each in self.services if each.kind in {"aggregated", "prefill-decode-cell"}}:
            raise ValueError(f"callers.asr.model {model} is served by no aggregated service and no cell of this file")
        return self

    @model_validator(mode="after")
    def _agents_have_engines(self) -> "Azure":
        if self.agents is None:
            return self
        if self.callers is None:
            raise ValueError("`agents` need `callers`: the gateway hears for them")
        for role, engine, kinds in (
            ("chat", self.agents.chat, {"chat", "aggregated", "prefill-decode-cell"}),
            ("speech", self.agents.speech, {"tts"}),
        ):
            named = {each.name for each in self.services if each.kind in kinds}
            if isinstance(engine, ClusterService) and engine.service not in named:
                raise ValueError(
                    f"agents.{role}.service {engine.service} is no service of kind {' or '.join(sorted(kinds))}; there "
                    f"are {', '.join(sorted(named)) or 'none: name an endpoint'}"
                )
        return self

    @model_validator(mode="after")
    def _zones_are_used(self) -> "Azure":
        used = {REGISTRY_ZONE, GRAFANA_ZONE, api_server_zone(self.location)}
        for zone in self.existing.private_dns_zones:
            if (name := zone.rpartition("/")[2].lower()) not in used:
                raise ValueError(f"private DNS zone {name} is used by nothing; zones are {', '.join(sorted(used))}")
        return self

    @property
    def is_private(self) -> bool:
        """Whether the API server answers inside the network only."""
        return not isinstance(self.access, PublicApiServer)
