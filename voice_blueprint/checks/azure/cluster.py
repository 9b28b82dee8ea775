"""Description of a cluster for checks, read from the deployment file or from the Pulumi programs' resources."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from voice_blueprint import catalog
from voice_blueprint.azure.names import list_pool_taints
from voice_blueprint.azure.rollout import calculate_surge_node_count, calculate_surge_pod_count
from voice_blueprint.azure.topology import ContainerRequest
from voice_blueprint.catalog import Gpu, ModelCard, VmSize
from voice_blueprint.catalog.inference import ModelTask
from voice_blueprint.engines.cell import (
    LMCACHE_CPUS,
    build_cell_requests,
    calculate_helper_memory_gib,
    calculate_single_engine_cpus,
    calculate_total_cell_cpus,
)
from voice_blueprint.engines.sizing.host import VOLUME_OVERHEAD_FACTOR, calculate_pod_memory_by_purpose
from voice_blueprint.engines.sizing.layouts import select_cell_gpu_groups
from voice_blueprint.engines.sizing.memory import GPU_MEMORY_UTILIZATION
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.azure import (
    CPU_POOL_NAME,
    SYSTEM_POOL_NAME,
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    LmcachePool,
    PrefillDecodeCell,
    PublicApiServer,
    ReservedNodes,
    SpotNodes,
    TopologyPolicy,
    TtsService,
)
from voice_blueprint.file.model.serving import KvCacheType, Load, Quantization
from voice_blueprint.file.source import Location

VLLM_TASKS = frozenset(ModelTask) - {ModelTask.SPEECH}
OMNI_TASKS = frozenset({ModelTask.SPEECH})


@dataclass(frozen=True)
class FindingLocation:
    """The location of a finding: a section in the deployment file, or a resource."""

    section: Location = ()
    urn: str = ""

    def locate_setting(self, *keys: str | int) -> Location:
        """Return the location of a setting. For a Pulumi resource, this is the URN of the resource."""
        return (self.urn,) if self.urn else (*self.section, *keys)


@dataclass(frozen=True)
class NodePool:
    """A pool of nodes.

    Attributes:
        taints: ``key=value:effect``.
        zones: Zones of the pool; empty if the pool uses those of the cluster.
    """

    name: str
    location: FindingLocation
    size: VmSize
    min_nodes: int
    max_nodes: int
    policy: TopologyPolicy = TopologyPolicy.NONE
    taints: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    is_system: bool = False
    is_spot: bool = False
    is_reserved: bool = False
    surge_nodes: int = 0

    @property
    def is_cpu(self) -> bool:
        """Whether this is the CPU pool, which has no GPUs."""
        return self.name == CPU_POOL_NAME

    @property
    def gpu(self) -> Gpu | None:
        return catalog.gpus()[self.size.gpu] if self.size.gpu else None


@dataclass(frozen=True)
class Engine:
    """An engine in a pod.

    Attributes:
        kind: Name of the engine's program in the catalogue.
        tasks: Kinds of models that the engine is expected to serve.
        load: Load that the engine is sized for; ``None`` for text to speech.
        transfers_kv: Whether KV blocks are transferred to LMCache or to the other engine of a cell.
        gpus: Explicitly configured GPUs; empty if the kubelet selects them.
        request_index: Index of the pod's request that contains the CPUs of the engine.
        utilization: Maximum share of a GPU's memory.
    """

    model: ModelCard
    kind: str
    tasks: frozenset[ModelTask]
    tensor_parallel: int
    load: Load | None
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    quantization: Quantization = Quantization.NONE
    transfers_kv: bool = False
    gpus: tuple[int, ...] = ()
    request_index: int = 0
    utilization: float = GPU_MEMORY_UTILIZATION


@dataclass(frozen=True)
class PodGroup:
    """The pods of one service on one pool.

    Attributes:
        pool_location: Location of the pool's name.
        cpus: Requested CPUs of one pod, over all containers.
        requests: Requests of each container, which the kubelet aligns.
        memory_gib: Memory limits of one pod, by purpose.
        nvme_gib: Volumes of one pod on the node's local disks.
        surge_replicas: Number of pods that a rollout adds before it stops an old one.
        is_cell: Whether the pod is a complete prefill/decode cell.
    """

    name: str
    location: FindingLocation
    pool_location: Location
    pool: NodePool
    gpus: int
    cpus: float
    requests: tuple[ContainerRequest, ...]
    memory_gib: dict[str, float]
    nvme_gib: float
    min_replicas: int
    max_replicas: int
    surge_replicas: int
    engines: tuple[Engine, ...]
    is_cell: bool = False

    @property
    def size(self) -> VmSize:
        return self.pool.size

    @property
    def title(self) -> str:
        return f"{self.name} on pool {self.pool.name}"

    @property
    def max_pods_per_node(self) -> int:
        """Number of pods that the GPUs of a node allow, or 0 if a pod has no GPUs or more GPUs than a node."""
        return self.size.gpu_count // self.gpus if self.gpus else 0

    @property
    def pods_on_full_node(self) -> int:
        """Number of pods on a full node.

        The number is at least 1, even if the node has too few GPUs, so that other limits of the node can be checked.
        """
        return max(1, self.max_pods_per_node)


@dataclass(frozen=True)
class ModelCache:
    """A volume with model weights.

    Attributes:
        location: Location of its size.
        size_gib: Size, GiB.
        models: Models of the engines that mount the volume, by name.
    """

    location: Location
    size_gib: float
    models: dict[str, ModelCard]


@dataclass(frozen=True)
class Cluster:
    """All values of a cluster that the checks evaluate.

    Attributes:
        location: Azure region; empty if unknown.
        licensed_models: Models with a licence agreement.
        authorized_ranges: Ranges that may reach the API server; ``None`` if the API server is private.
    """

    finding_location: FindingLocation = FindingLocation()
    location: str = ""
    pools: tuple[NodePool, ...] = ()
    pods: tuple[PodGroup, ...] = ()
    model_caches: tuple[ModelCache, ...] = ()
    commercial: bool = False
    licensed_models: frozenset[str] = field(default_factory=frozenset)
    authorized_ranges: tuple[str, ...] | None = None

    def group_pods_by_pool(self) -> dict[str, list[PodGroup]]:
        """Return the pods in each pool, except for pods that require more GPUs than a node has.

        Another check reports those pods.
        """
        return {
            pool.name: results
            for pool in self.pools
            if (results := [pod for pod in self.pods if pod.pool.name == pool.name and pod.max_pods_per_node])
        }


def build_configured_cluster(azure: Azure) -> Cluster:
    """Create the description of a cluster from the Azure section of a deployment file.

    The models and VM sizes of services and pools must be in the catalogue.
    """
    location = FindingLocation(("azure",))
    pools = tuple(_build_pools(azure))
    pods = tuple(_build_pods(azure, {pool.name: pool for pool in pools}))
    models = {engine.model.name: engine.model for pod in pods for engine in pod.engines}
    return Cluster(
        location,
        azure.location,
        pools,
        pods,
        (ModelCache(location.locate_setting("model_cache_gib"), azure.model_cache_gib, models),),
        azure.commercial,
        frozenset(agreement.model for agreement in azure.model_agreements),
        azure.access.authorized_ranges if isinstance(azure.access, PublicApiServer) else None,
    )


def _build_pools(azure: Azure) -> Iterator[NodePool]:
    system = azure.system_pool
    size = catalog.vm_sizes()[system.vm_size]
    nodes = system.nodes
    location = FindingLocation(("azure", "system_pool"))
    surge, zones = calculate_surge_node_count(nodes.max), azure.availability_zones
    yield NodePool(
        SYSTEM_POOL_NAME, location, size, nodes.min, nodes.max, zones=zones, is_system=True, surge_nodes=surge
    )
    if cpu := azure.cpu_pool:
        location, size = FindingLocation(("azure", "cpu_pool")), catalog.vm_sizes()[cpu.vm_size]
        surge = calculate_surge_node_count(cpu.nodes.max)
        yield NodePool(CPU_POOL_NAME, location, size, cpu.nodes.min, cpu.nodes.max, surge_nodes=surge)
    for index, pool in enumerate(azure.pools):
        yield NodePool(
            pool.name,
            FindingLocation(("azure", "pools", index)),
            catalog.vm_sizes()[pool.vm_size],
            pool.nodes.min,
            pool.nodes.max,
            pool.topology_policy,
            tuple(map(str, list_pool_taints(azure, pool))),
            pool.availability_zones or (),
            is_spot=isinstance(pool.purchase, SpotNodes),
            is_reserved=isinstance(pool.purchase, ReservedNodes),
            surge_nodes=pool.surge_nodes,
        )


def _build_pods(azure: Azure, pools: dict[str, NodePool]) -> Iterator[PodGroup]:
    for index, service in enumerate(azure.services):
        location = FindingLocation(("azure", "services", index))
        if isinstance(service, ChatService):
            pool_locations = [
                (name, location.locate_setting("pools", number)) for number, name in enumerate(service.pools)
            ]
        else:
            pool_locations = [(service.pool, location.locate_setting("pool"))]
        for name, at in pool_locations:
            yield _build_pod(service, location, pools[name], at)


def _build_pod(
    service: AzureService, finding_location: FindingLocation, pool: NodePool, pool_location: Location
) -> PodGroup:
    size, lmcache = pool.size, _get_lmcache_pool(service)
    gpus, cpus, replicas = 1, float(service.cpus), service.get_replica_bounds(pool.name)
    requests: tuple[ContainerRequest, ...]
    match service:
        case PrefillDecodeCell():
            gpus, cpus = size.gpu_count, calculate_total_cell_cpus(service.cpus)
            requests = build_cell_requests(gpus, service.cpus)
        case AggregatedService(lmcache=LmcachePool()):
            gpus, engine_cpus = service.tensor_parallel, calculate_single_engine_cpus(service.cpus)
            cpus = engine_cpus + LMCACHE_CPUS
            requests = (ContainerRequest(gpus, engine_cpus),)
        case _:
            gpus = service.tensor_parallel if isinstance(service, AggregatedService) else 1
            requests = (ContainerRequest(gpus, service.cpus),)
    return PodGroup(
        name=service.name,
        location=finding_location,
        pool_location=pool_location,
        pool=pool,
        gpus=gpus,
        cpus=cpus,
        requests=requests,
        memory_gib=calculate_pod_memory_by_purpose(
            gpus, lmcache.l1_gib if lmcache else 0, calculate_helper_memory_gib(service)
        ),
        nvme_gib=lmcache.l2_nvme_gib * VOLUME_OVERHEAD_FACTOR if lmcache else 0,
        min_replicas=replicas.min,
        max_replicas=replicas.max,
        surge_replicas=calculate_surge_pod_count(replicas),
        engines=tuple(_build_engines(service, size)),
        is_cell=isinstance(service, PrefillDecodeCell),
    )


def _build_engines(service: AzureService, size: VmSize) -> Iterator[Engine]:
    model = catalog.models()[service.model]
    match service:
        case PrefillDecodeCell():
            for request, group in enumerate(_find_cell_gpu_groups(size)):
                yield Engine(
                    model, "vllm", VLLM_TASKS, size.gpu_count // 2, service.load,
                    transfers_kv=True, gpus=group, request_index=request,
                )  # fmt: skip
        case TtsService():
            yield Engine(model, "vllm-omni", OMNI_TASKS, 1, None)
        case _:
            chat = isinstance(service, ChatService)
            yield Engine(
                model,
                "vllm",
                frozenset({ModelTask.CHAT, ModelTask.AUDIO_CHAT}) if chat else VLLM_TASKS,
                service.tensor_parallel if isinstance(service, AggregatedService) else 1,
                service.load,
                service.kv_cache_type,
                service.quantization,
                transfers_kv=_get_lmcache_pool(service) is not None,
            )


def _find_cell_gpu_groups(size: VmSize) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        return select_cell_gpu_groups(size)
    except DoesNotFitError:
        return (), ()


def _get_lmcache_pool(service: AzureService) -> LmcachePool | None:
    return service.lmcache if isinstance(service, PrefillDecodeCell | AggregatedService) else None
