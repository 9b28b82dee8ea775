"""Sizing of a service or fleet: engines, replicas, nodes, and whether they are sufficient for the load."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from voice_blueprint import catalog
from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.catalog.inference import Gpu, ModelCard, ModelTask
from voice_blueprint.engines.cell import calculate_helper_memory_gib
from voice_blueprint.engines.sizing.fit import can_split_heads, validate_cached_prompts, validate_kv_reuse
from voice_blueprint.engines.sizing.host import HostMemoryBudget, calculate_host_memory_budget
from voice_blueprint.engines.sizing.layouts import (
    EngineRequirements,
    Layout,
    RejectedLayout,
    create_aggregated_layout,
    create_cell_layout,
    evaluate_layouts,
)
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from voice_blueprint.engines.sizing.tts import TtsSizing, size_tts
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    GpuPool,
    LmcachePool,
    PrefillDecodeCell,
    TtsService,
)
from voice_blueprint.file.model.base import HostCount


@dataclass(frozen=True)
class PoolSizing:
    """A service on one pool, with one configuration of the engine.

    Attributes:
        pool: Name of the pool.
        engine: The engine of a replica; in a cell, the decode engine.
        prefill: The prefill engine of a cell.
        gpus_per_replica: GPUs that one pod requests.
        replicas_per_node: Replicas that fit one node.
        bounds: The service's bounds on this pool; KEDA keeps at least ``bounds.min``.
        nodes_max: The pool's ``nodes.max``.
        replicas: Number of replicas for this pool's part of the load, at least the minimum.
        nodes: Number of nodes for these replicas.
        host: Memory of a full node.
    """

    pool: str
    vm_size: str
    engine: EngineSizing | TtsSizing
    prefill: EngineSizing | None
    gpus_per_replica: int
    replicas_per_node: int
    bounds: HostCount
    nodes_max: int
    replicas: int
    nodes: int
    host: HostMemoryBudget

    @property
    def max_replicas(self) -> int:
        """Maximum number of replicas, which ``replicas.max`` and the pool's nodes limit."""
        return min(self.bounds.max, self.nodes_max * self.replicas_per_node)

    @property
    def bottleneck(self) -> str:
        """Setting that limits the number of replicas, in readable form."""
        if self.bounds.max <= self.nodes_max * self.replicas_per_node:
            return f"replicas.max {self.bounds.max}"
        return f"{self.nodes_max} nodes of {self.replicas_per_node}"

    @property
    def sessions(self) -> int:
        """Sessions of the pool at its maximum."""
        return self.engine.sessions * self.max_replicas


@dataclass(frozen=True)
class ServiceSizing:
    """A service over all its pools.

    Attributes:
        asked: Required sessions of the service.
        pools: One entry per pool in the order of the file. Earlier pools are filled first.
        alternatives: All layouts of the model on the first pool's nodes, for comparison; empty for text to speech.
    """

    service: str
    kind: str
    model: str
    asked: int
    pools: tuple[PoolSizing, ...]
    alternatives: tuple[Layout | RejectedLayout, ...] = ()

    @property
    def sessions(self) -> int:
        """Sessions over all pools at their maximum."""
        return sum(pool.sessions for pool in self.pools)

    @property
    def is_sufficient(self) -> bool:
        """Whether the capacity is sufficient for the load."""
        return self.sessions >= self.asked

    @property
    def summary(self) -> str:
        """The result in readable form."""
        parts = " + ".join(
            f"{pool.max_replicas} x {pool.engine.sessions} on {pool.pool} ({pool.bottleneck})" for pool in self.pools
        )
        relation = "support" if self.is_sufficient else "do not support"
        return f"{parts} = {self.sessions} sessions, which {relation} {self.asked}"


@lru_cache(maxsize=64)
def size_service(azure: Azure, service: AzureService) -> ServiceSizing:
    """Size one service on its pools.

    Insufficient capacity is not an error; the result contains it (``is_sufficient``).

    Raises:
        DoesNotFitError: An engine does not fit its GPUs, or its pods do not fit the node's memory.
        LookupError: The service refers to a pool that the file does not define, or to one without GPUs.
    """
    model = catalog.models()[service.model]
    if isinstance(service, TtsService):
        return _allocate_replicas(service, service.sessions, [_size_tts_pool(azure, service, model)])
    if isinstance(service, ChatService):
        names: tuple[str, ...] = service.pools
        pool_sizings = [_size_aggregated(azure, service, model, name) for name in names]
    else:
        names = (service.pool,)
        pool_sizings = [
            _size_cell(azure, service, model)
            if isinstance(service, PrefillDecodeCell)
            else _size_aggregated(azure, service, model, service.pool)
        ]
    node = _find_pool_hardware(azure, names[0])
    layout_options = evaluate_layouts(
        model, node.gpu, node.vm, _build_engine_requirements(service), region=azure.location
    )
    return _allocate_replicas(service, service.load.sessions, pool_sizings, layout_options)


def size_services(azure: Azure) -> dict[str, ServiceSizing | DoesNotFitError]:
    """Return the sizing of every service by name, or the error of a service that cannot work."""
    sizings: dict[str, ServiceSizing | DoesNotFitError] = {}
    for service in azure.services:
        try:
            sizings[service.name] = size_service(azure, service)
        except DoesNotFitError as refusal:
            sizings[service.name] = refusal
    return sizings


TRANSCRIPTION_TASKS = frozenset({ModelTask.AUDIO_CHAT, ModelTask.TRANSCRIPTION})
"""Tasks of models that accept a caller's audio."""


@dataclass(frozen=True)
class PoolCapacity:
    """Replicas of one service on one pool.

    Attributes:
        min_replicas: Minimum replicas by its bounds and the pool's nodes.
        max_replicas: Maximum replicas.
        sessions: Sessions per replica: by memory, or as published for text to speech.
    """

    service: str
    model: str
    pool: str
    min_replicas: int
    max_replicas: int
    sessions: int
    replicas_per_node: int


def iter_pool_capacities(azure: Azure) -> Iterator[PoolCapacity]:
    """Yield the replicas of every service on each of its pools. Services that cannot work are omitted."""
    sizings = size_services(azure)
    for service in azure.services:
        sizing = sizings[service.name]
        for pool in () if isinstance(sizing, DoesNotFitError) else sizing.pools:
            nodes, per_node = next(each.nodes for each in azure.pools if each.name == pool.pool), pool.replicas_per_node
            low = min(service.get_replica_bounds(pool.pool).min, nodes.min * per_node)
            sessions = pool.engine.sessions
            yield PoolCapacity(service.name, service.model, pool.pool, low, pool.max_replicas, sessions, per_node)


def iter_transcription_capacities(azure: Azure) -> Iterator[PoolCapacity]:
    """Yield the replicas of the services that transcribe audio."""
    return (pool for pool in iter_pool_capacities(azure) if catalog.models()[pool.model].task in TRANSCRIPTION_TASKS)


def size_fleet(fleet: AsrFleet) -> EngineSizing | None:
    """Size the vLLM engine for an AWS host. The result is ``None`` for a fleet that runs another engine.

    The engine uses the smallest number of the host's GPUs that supports the requested load.

    Raises:
        DoesNotFitError: The host has no GPU of the catalogue, or all of its GPUs together do not support the load.
    """
    engine, options = select_fleet_engine(fleet), fleet.vllm
    if options and engine and engine.sessions < options.load.sessions:
        raise DoesNotFitError(
            f"an engine on {engine.tensor_parallel} x {engine.gpu} supports {engine.sessions} of "
            f"{options.load.sessions} sessions: {engine.arithmetic}",
            "request less of one host, or use a larger one",
        )
    return engine


def select_fleet_engine(fleet: AsrFleet) -> EngineSizing | None:
    """Return the engine for an AWS host, or the largest possible one if the configured sessions do not fit.

    Raises:
        DoesNotFitError: The host has no GPU of the catalogue, or no engine fits all of its GPUs together.
    """
    options = fleet.vllm
    if options is None:
        return None
    accelerator = catalog.instance_types()[fleet.instance_type].accelerator
    if accelerator is None or accelerator.model not in catalog.gpus():
        raise DoesNotFitError(
            f"{fleet.instance_type} has {accelerator.model if accelerator else 'no accelerator'}, which is not a GPU",
            "vLLM is sized for GPUs only: use p5, or engine: whisper",
        )
    requirements = EngineRequirements(options.load, options.quantization, options.kv_cache_type, options.profile)
    model, gpu = catalog.models()[options.model], catalog.gpus()[accelerator.model]
    widths = list_tensor_parallel_sizes(model, accelerator.count)
    engines: list[EngineSizing] = []
    for width in widths:
        try:
            engines.append(requirements.calculate_sizing(model, gpu, width))
        except DoesNotFitError:
            if width == widths[-1] and not engines:
                raise
            continue
        if engines[-1].sessions >= options.load.sessions:
            return engines[-1]
    return max(engines, key=lambda engine: engine.sessions)


def list_tensor_parallel_sizes(model: ModelCard, gpus: int) -> list[int]:
    """Return the tensor parallel sizes that the GPUs of a host and the attention heads of a model allow."""
    return [
        width
        for width in (1, 2, 4, 8)
        if width <= gpus and can_split_heads(model.attention_heads, model.kv_heads, width)
    ]


def _allocate_replicas(
    service: AzureService,
    sessions: int,
    pool_sizings: Sequence[PoolSizing],
    layout_options: tuple[Layout | RejectedLayout, ...] = (),
) -> ServiceSizing:
    remaining, allocations = sessions, []
    for pool_sizing in pool_sizings:
        replica_count = min(pool_sizing.max_replicas, math.ceil(max(0, remaining) / pool_sizing.engine.sessions))
        replicas = max(pool_sizing.bounds.min, replica_count)
        remaining -= replicas * pool_sizing.engine.sessions
        allocations.append(
            replace(pool_sizing, replicas=replicas, nodes=math.ceil(replicas / pool_sizing.replicas_per_node))
        )
    return ServiceSizing(service.name, service.kind, service.model, sessions, tuple(allocations), layout_options)


class _PoolHardware(NamedTuple):
    pool: GpuPool
    vm: VmSize
    gpu: Gpu


def _find_pool_hardware(azure: Azure, pool_name: str) -> _PoolHardware:
    """Return a pool, its VM size and its GPU.

    Raises:
        LookupError: The file does not define the pool, or its nodes have no GPU.
    """
    pool = next((pool for pool in azure.pools if pool.name == pool_name), None)
    if pool is None:
        raise LookupError(f"no pool is named {pool_name}")
    vm = catalog.vm_sizes()[pool.vm_size]
    if vm.gpu is None:
        raise LookupError(f"pool {pool_name}: {vm.name} has no GPU")
    return _PoolHardware(pool, vm, catalog.gpus()[vm.gpu])


def _build_engine_requirements(service: PrefillDecodeCell | AggregatedService | ChatService) -> EngineRequirements:
    if isinstance(service, PrefillDecodeCell):
        return EngineRequirements(service.load, profile=service.profile)
    return EngineRequirements(service.load, service.quantization, service.kv_cache_type, service.profile)


def _size_cell(azure: Azure, service: PrefillDecodeCell, model: ModelCard) -> PoolSizing:
    node = _find_pool_hardware(azure, service.pool)
    layout = create_cell_layout(model, node.gpu, node.vm, _build_engine_requirements(service), region=azure.location)
    return _create_pool_sizing(
        service, node, layout.engine, gpus=node.vm.gpu_count, kv_pool=service.lmcache, prefill=layout.prefill
    )


def _size_aggregated(azure: Azure, service: AggregatedService | ChatService, model: ModelCard, pool: str) -> PoolSizing:
    node = _find_pool_hardware(azure, pool)
    width = service.tensor_parallel if isinstance(service, AggregatedService) else 1
    kv_pool = service.lmcache if isinstance(service, AggregatedService) else None
    if kv_pool:
        validate_kv_reuse(model)
        validate_cached_prompts(service.load)
    layout = create_aggregated_layout(
        model, node.gpu, node.vm, _build_engine_requirements(service), tensor_parallel=width, region=azure.location
    )
    per_node = layout.replicas_per_node
    return _create_pool_sizing(service, node, layout.engine, gpus=width, per_node=per_node, kv_pool=kv_pool)


def _size_tts_pool(azure: Azure, service: TtsService, model: ModelCard) -> PoolSizing:
    node = _find_pool_hardware(azure, service.pool)
    engine = size_tts(model, node.gpu, cuda_graphs=service.cuda_graphs)
    return _create_pool_sizing(service, node, engine, gpus=1, per_node=node.vm.gpu_count)


def _create_pool_sizing(
    service: AzureService,
    node: _PoolHardware,
    engine: EngineSizing | TtsSizing,
    *,
    gpus: int,
    per_node: int = 1,
    kv_pool: LmcachePool | None = None,
    prefill: EngineSizing | None = None,
) -> PoolSizing:
    return PoolSizing(
        pool=node.pool.name,
        vm_size=node.vm.name,
        engine=engine,
        prefill=prefill,
        gpus_per_replica=gpus,
        replicas_per_node=per_node,
        bounds=service.get_replica_bounds(node.pool.name),
        nodes_max=node.pool.nodes.max,
        replicas=0,
        nodes=0,
        host=calculate_host_memory_budget(
            node.vm,
            pods=per_node,
            gpus_per_pod=gpus,
            kv_pool_gib=kv_pool.l1_gib if kv_pool else 0,
            helpers_gib=calculate_helper_memory_gib(service),
        ),
    )
