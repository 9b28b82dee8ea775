"""Processes of each service and fleet in a deployment."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.azure.contract import (
    COMPILE_CACHE_DIR,
    DCGM,
    DECODE_HTTP,
    DECODE_LMCACHE,
    DECODE_LMCACHE_HTTP,
    DECODE_NIXL,
    ENGINE_HTTP,
    LMCACHE,
    LMCACHE_COORDINATOR,
    LMCACHE_DATA,
    LMCACHE_HTTP,
    LMCACHE_PEERS,
    NAMESPACE,
    NVME_DIR,
    PD_ROUTER_HTTP,
    PREFILL_HTTP,
    PREFILL_NIXL,
    ROUTER_HTTP,
    WEIGHTS_DIR,
    Component,
)
from voice_blueprint.azure.names import build_engine_service_name
from voice_blueprint.azure.rollout import calculate_surge_pod_count
from voice_blueprint.catalog import ModelCard
from voice_blueprint.contract.environment import CACHE_DIR
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import VLLM
from voice_blueprint.engines.launch.base import LOOPBACK, Launcher
from voice_blueprint.engines.launch.dcgm import DcgmExporter
from voice_blueprint.engines.launch.download import build_download_command
from voice_blueprint.engines.launch.fabric import NixlFabric
from voice_blueprint.engines.launch.kv_transfer import EngineRole, KvTransfer
from voice_blueprint.engines.launch.lmcache import LmcacheCoordinator, LmcacheServer, NvmeStore, PeerAccess
from voice_blueprint.engines.launch.neuron import NeuronRuntime, create_neuron_runtime
from voice_blueprint.engines.launch.omni import OmniServer
from voice_blueprint.engines.launch.pd_router import CellProxy, PdRouter
from voice_blueprint.engines.launch.placement import Placement, create_engine_placement
from voice_blueprint.engines.launch.pod_consistency import validate_pod_consistency
from voice_blueprint.engines.launch.router import Backend, BackendService, Router
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.launch.whisper import create_whisper_engine
from voice_blueprint.engines.sizing.layouts import select_cell_gpu_groups
from voice_blueprint.engines.sizing.result import EngineSizing
from voice_blueprint.engines.sizing.service import PoolSizing, size_fleet, size_service
from voice_blueprint.engines.sizing.tts import TtsSizing
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    LmcachePool,
    PrefillDecodeCell,
    TtsService,
)
from voice_blueprint.hosts import list_asr_images

HOST_CACHE_DIR = "/var/cache/voice"
"""Container path of compile caches and weights on an EC2 host: on the NVMe disks if the type has any."""

CLUSTER_DOMAIN = f"{NAMESPACE}.svc.cluster.local"
POD_ADDRESS_VARIABLE = "VOICE_POD_ADDRESS"
"""Variable with a pod's own address, which Kubernetes substitutes in commands that contain ``$(VOICE_POD_ADDRESS)``."""
ROUTER_CPUS = 2
"""CPUs for a router replica, which only forwards bytes. ASSUMED, not measured."""

STOP_MARGIN_S = 15
"""Time between the abort of requests and the end of the drain timeout, in which an engine exits before it is killed."""


@dataclass(frozen=True)
class CellProcesses:
    """The containers of a prefill/decode cell: one pod on one node.

    Raises:
        ValueError: The configurations are inconsistent.
    """

    prefill: VllmServer
    decode: VllmServer
    lmcache_prefill: LmcacheServer
    lmcache_decode: LmcacheServer
    pd_router: PdRouter
    front: CellProxy

    def __post_init__(self) -> None:
        validate_pod_consistency(vars(self))


@dataclass(frozen=True)
class AggregatedProcesses:
    """The containers of a replica that prefills and decodes.

    Raises:
        ValueError: The configurations are inconsistent.
    """

    engine: VllmServer
    lmcache: LmcacheServer | None

    def __post_init__(self) -> None:
        validate_pod_consistency(vars(self))


def create_cell_processes(azure: Azure, service: PrefillDecodeCell) -> CellProcesses:
    """Return the processes of a cell.

    Each engine uses one NVLink pair, and an LMCache server with half of the pool.

    Raises:
        DoesNotFitError: The node does not support cells, or an engine does not fit it.
    """
    sizing = _get_pool_sizing(azure, service, service.pool)
    size = catalog.vm_sizes()[sizing.vm_size]
    prefill_gpus, decode_gpus = select_cell_gpu_groups(size)
    placements = {
        EngineRole.PREFILL: create_engine_placement(size, prefill_gpus),
        EngineRole.DECODE: create_engine_placement(size, decode_gpus),
    }
    decode = _create_cell_engine(
        service, _require_engine_sizing(sizing.engine), EngineRole.DECODE, placements[EngineRole.DECODE]
    )
    return CellProcesses(
        prefill=_create_cell_engine(
            service, _require_engine_sizing(sizing.prefill), EngineRole.PREFILL, placements[EngineRole.PREFILL]
        ),
        decode=decode,
        lmcache_prefill=_create_cell_lmcache(service.lmcache, EngineRole.PREFILL, placements[EngineRole.PREFILL]),
        lmcache_decode=_create_cell_lmcache(service.lmcache, EngineRole.DECODE, placements[EngineRole.DECODE]),
        pd_router=PdRouter(PD_ROUTER_HTTP.number, PREFILL_HTTP.number, DECODE_HTTP.number),
        front=CellProxy(
            ENGINE_HTTP.number, PD_ROUTER_HTTP.number, DECODE_HTTP.number, max_body_mib=decode.max_body_mib
        ),
    )


def _create_cell_engine(
    service: PrefillDecodeCell, sizing: EngineSizing, role: EngineRole, placement: Placement
) -> VllmServer:
    is_prefill = role is EngineRole.PREFILL
    return VllmServer(
        model=_get_model_card(service),
        sizing=sizing,
        port=(PREFILL_HTTP if is_prefill else DECODE_HTTP).number,
        cache_dir=f"{COMPILE_CACHE_DIR}/{service.name}-{role}",
        weights_dir=WEIGHTS_DIR,
        shutdown_timeout_s=service.drain_timeout_s - STOP_MARGIN_S,
        revision=service.revision,
        kv_transfer=KvTransfer(role, (LMCACHE if is_prefill else DECODE_LMCACHE).number),
        fabric=NixlFabric((PREFILL_NIXL if is_prefill else DECODE_NIXL).number),
        placement=placement,
    )


def _create_cell_lmcache(pool: LmcachePool, role: EngineRole, placement: Placement) -> LmcacheServer:
    is_prefill = role is EngineRole.PREFILL
    return LmcacheServer(
        l1_gib=pool.l1_gib / 2,
        port=(LMCACHE if is_prefill else DECODE_LMCACHE).number,
        http_port=(LMCACHE_HTTP if is_prefill else DECODE_LMCACHE_HTTP).number,
        l2=_create_nvme_store(pool.l2_nvme_gib / 2, role),
        worker_count=len(placement.gpus),
        placement=placement,
    )


def create_aggregated_processes(azure: Azure, service: AggregatedService) -> AggregatedProcesses:
    """Return the processes of a replica.

    Raises:
        DoesNotFitError: The engine does not fit its GPUs.
        ValueError: The model does not support LMCache.
    """
    pool = service.lmcache
    transfer = KvTransfer(EngineRole.AGGREGATED, LMCACHE.number) if pool else None
    engine = _create_vllm_replica(service, _get_pool_sizing(azure, service, service.pool), service.name, transfer)
    if pool is None:
        return AggregatedProcesses(engine, None)
    server = LmcacheServer(
        l1_gib=pool.l1_gib,
        port=LMCACHE.number,
        http_port=LMCACHE_HTTP.number,
        l2=_create_nvme_store(pool.l2_nvme_gib, EngineRole.AGGREGATED),
        worker_count=service.tensor_parallel,
        peers=_create_lmcache_peer_access() if pool.peers else None,
    )
    return AggregatedProcesses(engine, server)


def _create_lmcache_peer_access() -> PeerAccess:
    url = f"http://{Component.LMCACHE_COORDINATOR}.{CLUSTER_DOMAIN}:{LMCACHE_COORDINATOR.number}"
    data_port_range = (LMCACHE_DATA[0].number, LMCACHE_DATA[-1].number)
    return PeerAccess(url, f"$({POD_ADDRESS_VARIABLE})", LMCACHE_PEERS.number, data_port_range)


def create_coordinator_launcher() -> LmcacheCoordinator:
    """Return the registry of the cluster's LMCache servers."""
    return LmcacheCoordinator(LMCACHE_COORDINATOR.number)


def create_chat_launcher(azure: Azure, service: ChatService, pool: str) -> VllmServer:
    """Return a replica of a text model on one of its pools. Its flags depend on the pool's GPU.

    Raises:
        DoesNotFitError: The engine does not fit the pool's GPU.
    """
    return _create_vllm_replica(service, _get_pool_sizing(azure, service, pool), f"{service.name}-{pool}")


def _create_vllm_replica(
    service: AggregatedService | ChatService, sizing: PoolSizing, cache: str, transfer: KvTransfer | None = None
) -> VllmServer:
    return VllmServer(
        model=_get_model_card(service),
        sizing=_require_engine_sizing(sizing.engine),
        port=ENGINE_HTTP.number,
        cache_dir=f"{COMPILE_CACHE_DIR}/{cache}",
        weights_dir=WEIGHTS_DIR,
        shutdown_timeout_s=service.drain_timeout_s - STOP_MARGIN_S,
        revision=service.revision,
        kv_transfer=transfer,
    )


def create_tts_launcher(azure: Azure, service: TtsService) -> OmniServer:
    """Return a replica of a text-to-speech model.

    Raises:
        DoesNotFitError: No measurement of the model on the pool's GPU is published.
    """
    sizing = _get_pool_sizing(azure, service, service.pool).engine
    if not isinstance(sizing, TtsSizing):
        raise TypeError(f"{service.name} was sized as {type(sizing).__name__}")
    return OmniServer(
        model=_get_model_card(service),
        sizing=sizing,
        port=ENGINE_HTTP.number,
        cache_dir=f"{COMPILE_CACHE_DIR}/{service.name}",
        weights_dir=WEIGHTS_DIR,
        revision=service.revision,
    )


def create_router_launcher(azure: Azure) -> Router:
    """Return a replica of the router, which discovers the pods of every service."""
    return Router(
        port=ROUTER_HTTP.number,
        backends=[
            Backend(model, [_create_backend_service(each) for each in azure.services if each.model == model])
            for model in dict.fromkeys(service.model for service in azure.services)
        ],
        drain_s=max(service.drain_timeout_s for service in azure.services),
        thread_count=ROUTER_CPUS,
    )


def _create_backend_service(service: AzureService) -> BackendService:
    """Return the address of a service's pods and their maximum number, including those of a rollout."""
    pools = service.pools if isinstance(service, ChatService) else (service.pool,)
    bounds = [service.get_replica_bounds(pool) for pool in pools]
    slots = sum(each.max + calculate_surge_pod_count(each) for each in bounds)
    return BackendService(
        service.name, f"{build_engine_service_name(service)}.{CLUSTER_DOMAIN}", ENGINE_HTTP.number, slots
    )


def create_dcgm_launcher() -> DcgmExporter:
    """Return the GPU metrics exporter for a node."""
    return DcgmExporter(DCGM.number)


def create_fleet_launcher(fleet: AsrFleet) -> VllmServer:
    """Return the vLLM server for a fleet's hosts, which listens on the loopback for requests from our engine.

    Weights are downloaded at the first start, unless the fleet has artifacts.

    Raises:
        DoesNotFitError: The engine does not fit, or supports fewer sessions than the fleet requires per host.
        ValueError: The fleet does not run vLLM.
    """
    sizing = size_fleet(fleet)
    if fleet.vllm is None or sizing is None:
        raise ValueError(f"fleet {fleet.name} runs {fleet.engine.value}, not vLLM")
    return VllmServer(
        model=catalog.models()[fleet.vllm.model],
        sizing=sizing,
        port=VLLM.number,
        host=LOOPBACK,
        cache_dir=HOST_CACHE_DIR,
        shutdown_timeout_s=fleet.drain_timeout_s - STOP_MARGIN_S,
        revision=fleet.vllm.revision,
        is_offline=fleet.artifacts,
    )


@dataclass(frozen=True)
class PreparationLauncher(Launcher):
    """A job that downloads a fleet's weights, and compiles its model if the engine supports that.

    The job runs in the image of the engine.
    """

    image: Image
    program: tuple[str, ...]
    variables: Mapping[str, str]

    def build_command(self) -> tuple[str, ...]:
        return self.program

    def build_environment(self) -> dict[str, str]:
        return dict(self.variables)


_PREPARATION_SCRIPT = """\
set -e
HF_HUB_OFFLINE=0 {fetch}
"$@" &
until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do
  kill -0 $! || exit 1
  sleep 5
done
kill $!
wait $! || true
"""
"""Script that starts vLLM once, since vLLM compiles only when it starts. The command and variables are those of a host,
since their hash selects vLLM's cache directory (https://docs.vllm.ai/en/latest/design/torch_compile/). vLLM starts to
listen once everything is compiled."""


def create_preparation_launcher(fleet: AsrFleet) -> PreparationLauncher:
    """Return the command that writes a fleet's weights and compiled programs to ``HOST_CACHE_DIR``."""
    if fleet.vllm:
        server = create_fleet_launcher(fleet)
        fetch = shlex.join(build_download_command(server.model, server.repository, fleet.vllm.revision))
        script = _PREPARATION_SCRIPT.format(fetch=fetch, port=VLLM.number)
        program = ("bash", "-c", script, "prepare", *server.build_command())
        return PreparationLauncher(Image.ASR_VLLM, program, server.build_environment())
    image = list_asr_images(fleet)[0]
    runtime = create_neuron_launcher(fleet).build_environment() if image is Image.ASR_NEURON else {}
    environment = {CACHE_DIR.name: HOST_CACHE_DIR, **create_whisper_engine(fleet, 1).build_environment(), **runtime}
    return PreparationLauncher(image, ("python3", "-m", "voice_whisper.prepare"), environment)


def create_neuron_launcher(fleet: AsrFleet) -> NeuronRuntime:
    """Return the runtime of our engine on a host with Neuron chips.

    Raises:
        ValueError: The host has no Neuron chips, or the engine does not support them.
    """
    accelerator = catalog.instance_types()[fleet.instance_type].accelerator
    if accelerator is None or accelerator.kind != "neuron":
        raise ValueError(f"{fleet.instance_type} has no Neuron chip: choose inf2 or trn1")
    return create_neuron_runtime(accelerator, HOST_CACHE_DIR)


def _get_model_card(service: AzureService) -> ModelCard:
    return catalog.models()[service.model]


def _get_pool_sizing(azure: Azure, service: AzureService, name: str) -> PoolSizing:
    sizing = size_service(azure, service)
    return next(pool for pool in sizing.pools if pool.pool == name)


def _require_engine_sizing(sizing: EngineSizing | TtsSizing | None) -> EngineSizing:
    if not isinstance(sizing, EngineSizing):
        raise TypeError(f"an engine was expected, and {type(sizing).__name__} was sized")
    return sizing


def _create_nvme_store(gib: float, role: EngineRole) -> NvmeStore | None:
    return NvmeStore(f"{NVME_DIR}/lmcache/{role}", gib) if gib else None
