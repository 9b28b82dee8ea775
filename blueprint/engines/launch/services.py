"""From a deployment to launchers: the processes of each service and fleet, as the file asks for them."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from blueprint import catalog
from blueprint.azure.contract import (
    COMPILE_CACHE_DIR,
    COMPONENT_LABEL,
    DCGM,
    DECODE_HTTP,
    DECODE_LMCACHE,
    DECODE_LMCACHE_HTTP,
    DECODE_NIXL,
    ENGINE_HTTP,
    LMCACHE,
    LMCACHE_HTTP,
    NAMESPACE,
    NVME_DIR,
    PD_ROUTER_HTTP,
    PREFILL_HTTP,
    PREFILL_NIXL,
    ROUTER_HTTP,
    WEIGHTS_DIR,
    Component,
)
from blueprint.catalog import ModelCard
from blueprint.contract.environment import CACHE_DIR
from blueprint.contract.images import Image
from blueprint.contract.network import VLLM
from blueprint.engines.launch.base import LOOPBACK, Launcher
from blueprint.engines.launch.dcgm import DcgmExporter
from blueprint.engines.launch.fabric import NixlFabric
from blueprint.engines.launch.kv_transfer import KvTransfer, Role
from blueprint.engines.launch.lmcache import LmcacheServer, NvmeStore
from blueprint.engines.launch.neuron import NeuronRuntime, neuron_runtime
from blueprint.engines.launch.omni import OmniServer
from blueprint.engines.launch.pd_router import CellFront, PdRouter
from blueprint.engines.launch.placement import Placement, place
from blueprint.engines.launch.router import Router
from blueprint.engines.launch.vllm import VllmServer
from blueprint.engines.launch.whisper import whisper_engine
from blueprint.engines.sizing.layouts import cell_groups
from blueprint.engines.sizing.result import EngineSizing
from blueprint.engines.sizing.service import PoolSizing, size_fleet, size_service
from blueprint.engines.sizing.tts import TtsSizing
from blueprint.file.model.aws import AsrFleet
from blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    LmcachePool,
    PrefillDecodeCell,
    Routing,
    TtsService,
)
from blueprint.hosts import asr_images

HOST_CACHE_DIR = "/var/cache/voice"
"""Compile caches and weights as a container on an EC2 host sees them: the NVMe disks where the type has them."""

STOP_MARGIN_S = 15
"""How long before the end of the drain time an engine gives up on requests, so that it still exits by itself."""


@dataclass(frozen=True)
class CellLaunch:
    """The containers of a prefill/decode cell: one pod on one node."""

    prefill: VllmServer
    decode: VllmServer
    lmcache_prefill: LmcacheServer
    lmcache_decode: LmcacheServer
    pd_router: PdRouter
    front: CellFront


@dataclass(frozen=True)
class AggregatedLaunch:
    """The containers of one replica that prefills and decodes."""

    engine: VllmServer
    lmcache: LmcacheServer | None


def cell_launch(azure: Azure, service: PrefillDecodeCell) -> CellLaunch:
    """Return the processes of one cell. Each engine has one NVLink pair, and an LMCache server with half the pool.

    Raises:
        DoesNotFitError: The node is no cell, or an engine does not fit it.
    """
    sized = _pool(azure, service, service.pool)
    size = catalog.vm_sizes()[sized.vm_size]
    prefill_gpus, decode_gpus = cell_groups(size)
    sides = {Role.PREFILL: place(size, prefill_gpus), Role.DECODE: place(size, decode_gpus)}
    decode = _cell_engine(service, _engine(sized.engine), Role.DECODE, sides[Role.DECODE])
    return CellLaunch(
        prefill=_cell_engine(service, _engine(sized.prefill), Role.PREFILL, sides[Role.PREFILL]),
        decode=decode,
        lmcache_prefill=_cell_lmcache(service.lmcache, Role.PREFILL, sides[Role.PREFILL]),
        lmcache_decode=_cell_lmcache(service.lmcache, Role.DECODE, sides[Role.DECODE]),
        pd_router=PdRouter(PD_ROUTER_HTTP.number, PREFILL_HTTP.number, DECODE_HTTP.number),
        front=CellFront(
            ENGINE_HTTP.number, PD_ROUTER_HTTP.number, DECODE_HTTP.number, body_mib=decode.largest_body_mib
        ),
    )


def _cell_engine(service: PrefillDecodeCell, sizing: EngineSizing, role: Role, placement: Placement) -> VllmServer:
    is_prefill = role is Role.PREFILL
    return VllmServer(
        model=_model(service),
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


def _cell_lmcache(pool: LmcachePool, role: Role, placement: Placement) -> LmcacheServer:
    is_prefill = role is Role.PREFILL
    return LmcacheServer(
        l1_gib=pool.l1_gib / 2,
        port=(LMCACHE if is_prefill else DECODE_LMCACHE).number,
        http_port=(LMCACHE_HTTP if is_prefill else DECODE_LMCACHE_HTTP).number,
        l2=_nvme(pool.l2_nvme_gib / 2, role),
        workers=len(placement.gpus),
        placement=placement,
    )


def aggregated_launch(azure: Azure, service: AggregatedService) -> AggregatedLaunch:
    """Return the processes of one replica.

    Raises:
        DoesNotFitError: The engine does not fit its GPUs.
        ValueError: The model cannot have LMCache.
    """
    pool = service.lmcache
    transfer = KvTransfer(Role.AGGREGATED, LMCACHE.number) if pool else None
    engine = _replica(service, _pool(azure, service, service.pool), service.name, transfer)
    if pool is None:
        return AggregatedLaunch(engine, None)
    server = LmcacheServer(
        l1_gib=pool.l1_gib,
        port=LMCACHE.number,
        http_port=LMCACHE_HTTP.number,
        l2=_nvme(pool.l2_nvme_gib, Role.AGGREGATED),
        workers=service.tensor_parallel,
    )
    return AggregatedLaunch(engine, server)


def chat_launch(azure: Azure, service: ChatService, pool: str) -> VllmServer:
    """Return one replica of a text model on one of its pools, which differ in GPU and so in flags.

    Raises:
        DoesNotFitError: The engine does not fit the pool's GPU.
    """
    return _replica(service, _pool(azure, service, pool), f"{service.name}-{pool}")


def _replica(
    service: AggregatedService | ChatService, sized: PoolSizing, cache: str, transfer: KvTransfer | None = None
) -> VllmServer:
    return VllmServer(
        model=_model(service),
        sizing=_engine(sized.engine),
        port=ENGINE_HTTP.number,
        cache_dir=f"{COMPILE_CACHE_DIR}/{cache}",
        weights_dir=WEIGHTS_DIR,
        shutdown_timeout_s=service.drain_timeout_s - STOP_MARGIN_S,
        revision=service.revision,
        kv_transfer=transfer,
    )


def tts_launch(azure: Azure, service: TtsService) -> OmniServer:
    """Return one replica of a speech model.

    Raises:
        DoesNotFitError: Nothing is known of the model on the pool's GPU.
    """
    sizing = _pool(azure, service, service.pool).engine
    if not isinstance(sizing, TtsSizing):
        raise TypeError(f"{service.name} was sized as {type(sizing).__name__}")
    return OmniServer(
        model=_model(service),
        sizing=sizing,
        port=ENGINE_HTTP.number,
        cache_dir=f"{COMPILE_CACHE_DIR}/{service.name}",
        weights_dir=WEIGHTS_DIR,
        shutdown_timeout_s=service.drain_timeout_s - STOP_MARGIN_S,
        revision=service.revision,
    )


def router_launch(azure: Azure) -> Router:
    """Return one replica of the router; it finds the pods of every service."""
    return Router(
        port=ROUTER_HTTP.number,
        engine_port=ENGINE_HTTP.number,
        namespace=NAMESPACE,
        label_selector=f"{COMPONENT_LABEL}={Component.ENGINE}",
        routing="session" if azure.router.routing is Routing.SESSION else "prefixaware",
    )


def dcgm_launch() -> DcgmExporter:
    """Return the GPU metrics of one node."""
    return DcgmExporter(DCGM.number)


def fleet_launch(fleet: AsrFleet) -> VllmServer:
    """Return vLLM on a host of a fleet, on the loopback beside our engine; weights are fetched at the first start.

    Raises:
        DoesNotFitError: The engine does not fit, or carries less than the fleet asks of a host.
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
        offline=fleet.artifacts,
    )


@dataclass(frozen=True)
class Preparation(Launcher):
    """What the job of a fleet runs in its engine's image: fetch the weights, and compile where that is done ahead."""

    image: Image
    program: tuple[str, ...]
    variables: Mapping[str, str]

    def command(self) -> tuple[str, ...]:
        return self.program

    def environment(self) -> dict[str, str]:
        return dict(self.variables)


_START_ONCE = """\
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
"""vLLM compiles at its start and has no other way to. It starts as on a host, since its caches are kept under a hash of
its command and variables (https://docs.vllm.ai/en/latest/design/torch_compile/), and listens when all is compiled."""


def preparation(fleet: AsrFleet) -> Preparation:
    """Return what leaves a fleet's weights, and what is compiled of them, in ``HOST_CACHE_DIR``."""
    if fleet.vllm:
        server = fleet_launch(fleet)
        revision = ("--revision", fleet.vllm.revision) if fleet.vllm.revision else ()
        fetch = shlex.join(["hf", "download", server.repository, *revision])
        script = _START_ONCE.format(fetch=fetch, port=VLLM.number)
        program = ("bash", "-c", script, "prepare", *server.command())
        return Preparation(Image.ASR_VLLM, program, server.environment())
    image = asr_images(fleet)[0]
    runtime = neuron_launch(fleet).environment() if image is Image.ASR_NEURON else {}
    environment = {CACHE_DIR.name: HOST_CACHE_DIR, **whisper_engine(fleet, 1).environment(), **runtime}
    return Preparation(image, ("python3", "-m", "voice_whisper.prepare"), environment)


def neuron_launch(fleet: AsrFleet) -> NeuronRuntime:
    """Return the runtime of our engine on a host with Neuron chips.

    Raises:
        ValueError: The host has none, or none that the engine runs on.
    """
    accelerator = catalog.instance_types()[fleet.instance_type].accelerator
    if accelerator is None or accelerator.kind != "neuron":
        raise ValueError(f"{fleet.instance_type} has no Neuron chip: choose inf2 or trn1")
    return neuron_runtime(accelerator, HOST_CACHE_DIR)


def _model(service: AzureService) -> ModelCard:
    return catalog.models()[service.model]


def _pool(azure: Azure, service: AzureService, name: str) -> PoolSizing:
    sized = size_service(azure, service)
    return next(pool for pool in sized.pools if pool.pool == name)


def _engine(sizing: EngineSizing | TtsSizing | None) -> EngineSizing:
    if not isinstance(sizing, EngineSizing):
        raise TypeError(f"an engine was expected, and {type(sizing).__name__} was sized")
    return sizing


def _nvme(gib: float, role: Role) -> NvmeStore | None:
    return NvmeStore(f"{NVME_DIR}/lmcache/{role}", gib) if gib else None
