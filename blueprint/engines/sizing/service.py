"""A service or fleet of a deployment file, sized: engines, replicas, nodes, and whether that is enough."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from blueprint import catalog
from blueprint.catalog.azure import VmSize
from blueprint.catalog.inference import Gpu, ModelCard, Task
from blueprint.engines.cell import helpers_gib
from blueprint.engines.sizing.fit import check_reuse
from blueprint.engines.sizing.host import HostBudget, size_host
from blueprint.engines.sizing.layouts import Asked, Layout, RefusedLayout, aggregated_layout, cell_layout, layouts
from blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from blueprint.engines.sizing.tts import TtsSizing, size_tts
from blueprint.file.model.aws import AsrFleet
from blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    GpuPool,
    LmcachePool,
    PrefillDecodeCell,
    TtsService,
)
from blueprint.file.model.base import HostCount


@dataclass(frozen=True)
class PoolSizing:
    """One service on one pool: one engine class.

    Attributes:
        pool: Name of the pool.
        engine: The engine of a replica; of a cell, the one that decodes.
        prefill: The engine of a cell that prefills.
        gpus_per_replica: GPUs that one pod asks for.
        replicas_per_node: Replicas that fit one node.
        bounds: The service's bounds on this pool; KEDA keeps ``bounds.min`` whatever the load.
        nodes_max: The pool's ``nodes.max``.
        replicas: Replicas that carry this pool's part of the load, or the minimum where that is more.
        nodes: Nodes for these.
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
    host: HostBudget

    @property
    def most_replicas(self) -> int:
        """What ``replicas.max`` and the pool's nodes both allow."""
        return min(self.bounds.max, self.nodes_max * self.replicas_per_node)

    @property
    def bottleneck(self) -> str:
        """Which of the two allows less."""
        if self.bounds.max <= self.nodes_max * self.replicas_per_node:
            return f"replicas.max {self.bounds.max}"
        return f"{self.nodes_max} nodes of {self.replicas_per_node}"

    @property
    def sessions(self) -> int:
        """Sessions that the pool carries at its most."""
        return self.engine.sessions * self.most_replicas


@dataclass(frozen=True)
class ServiceSizing:
    """One service over all its pools.

    Attributes:
        asked: Sessions that the service has to carry.
        pools: One entry for each pool, in the order of the file; earlier ones are filled first.
        alternatives: Every layout of the model on the first pool's nodes, to compare; empty for text to speech.
    """

    service: str
    kind: str
    model: str
    asked: int
    pools: tuple[PoolSizing, ...]
    alternatives: tuple[Layout | RefusedLayout, ...] = ()

    @property
    def sessions(self) -> int:
        """Sessions that all pools carry at their most."""
        return sum(pool.sessions for pool in self.pools)

    @property
    def enough(self) -> bool:
        """Whether that is what was asked for."""
        return self.sessions >= self.asked

    @property
    def verdict(self) -> str:
        """The sum, for people."""
        parts = " + ".join(
            f"{pool.most_replicas} x {pool.engine.sessions} on {pool.pool} ({pool.bottleneck})" for pool in self.pools
        )
        relation = "carries" if self.enough else "does not carry"
        return f"{parts} = {self.sessions} sessions, which {relation} {self.asked}"


def size_service(azure: Azure, service: AzureService) -> ServiceSizing:
    """Size one service on its pools.

    Whether it carries its load is in the answer (``enough``), not an error.

    Raises:
        DoesNotFitError: An engine does not fit its GPUs, or its pods do not fit the node's memory.
        LookupError: The service names a pool that the file does not have, or one without GPUs.
    """
    model = catalog.models()[service.model]
    if isinstance(service, TtsService):
        return _sized(service, service.sessions, [_tts(azure, service, model)])
    if isinstance(service, ChatService):
        names: tuple[str, ...] = service.pools
        places = [_aggregated(azure, service, model, name) for name in names]
    else:
        names = (service.pool,)
        places = [
            _cell(azure, service, model)
            if isinstance(service, PrefillDecodeCell)
            else _aggregated(azure, service, model, service.pool)
        ]
    node = _node(azure, names[0])
    compared = layouts(model, node.gpu, node.vm, _asked(service), region=azure.location)
    return _sized(service, service.load.sessions, places, compared)


def size_services(azure: Azure) -> dict[str, ServiceSizing | DoesNotFitError]:
    """Size every service, by name; one that cannot work is answered by its refusal."""
    sizings: dict[str, ServiceSizing | DoesNotFitError] = {}
    for service in azure.services:
        try:
            sizings[service.name] = size_service(azure, service)
        except DoesNotFitError as refusal:
            sizings[service.name] = refusal
    return sizings


TRANSCRIBES = frozenset({Task.AUDIO_CHAT, Task.TRANSCRIPTION})
"""What a model that takes a caller's audio is for."""


@dataclass(frozen=True)
class Room:
    """Replicas of one service on one pool.

    Attributes:
        low: Replicas at the fewest that its bounds and the pool's nodes allow.
        most: Replicas at the most.
        sessions: Of one replica: by memory, of text to speech as published.
    """

    service: str
    model: str
    pool: str
    low: int
    most: int
    sessions: int
    replicas_per_node: int


def rooms(azure: Azure) -> Iterator[Room]:
    """Yield the replicas of every service on each of its pools; a service that cannot work has none."""
    sizings = size_services(azure)
    for service in azure.services:
        sized = sizings[service.name]
        for pool in () if isinstance(sized, DoesNotFitError) else sized.pools:
            nodes, per_node = next(each.nodes for each in azure.pools if each.name == pool.pool), pool.replicas_per_node
            low = min(service.replicas_on(pool.pool).min, nodes.min * per_node)
            sessions = pool.engine.sessions
            yield Room(service.name, service.model, pool.pool, low, pool.most_replicas, sessions, per_node)


def listening(azure: Azure) -> Iterator[Room]:
    """Yield who takes audio."""
    return (room for room in rooms(azure) if catalog.models()[room.model].task in TRANSCRIBES)


def size_fleet(fleet: AsrFleet) -> EngineSizing | None:
    """Size the vLLM engine of one AWS host; ``None`` for a fleet that runs another engine.

    The engine takes as few of the host's GPUs as carry the asked load.

    Raises:
        DoesNotFitError: The host has no GPU of the catalogue, or all its GPUs together do not carry the load.
    """
    options = fleet.vllm
    if options is None:
        return None
    accelerator = catalog.instance_types()[fleet.instance_type].accelerator
    if accelerator is None or accelerator.model not in catalog.gpus():
        raise DoesNotFitError(
            f"{fleet.instance_type} has {accelerator.model if accelerator else 'no accelerator'}, which is no GPU",
            "vLLM is sized for GPUs only: use p5, or engine: whisper",
        )
    asked = Asked(options.load, options.quantization, options.kv_cache_type, options.profile)
    model, gpu = catalog.models()[options.model], catalog.gpus()[accelerator.model]
    widths = [width for width in (1, 2, 4, 8) if width <= accelerator.count]
    for width in widths:
        try:
            engine = asked.engine(model, gpu, width)
        except DoesNotFitError:
            if width == widths[-1]:
                raise
            continue
        if engine.sessions >= options.load.sessions:
            return engine
    raise DoesNotFitError(
        f"an engine on {engine.tensor_parallel} x {engine.gpu} carries {engine.sessions} of {options.load.sessions} "
        f"sessions: {engine.arithmetic}",
        "ask less of one host, or use a larger one",
    )


def _sized(
    service: AzureService,
    sessions: int,
    places: Sequence[PoolSizing],
    compared: tuple[Layout | RefusedLayout, ...] = (),
) -> ServiceSizing:
    left, filled = sessions, []
    for place in places:
        needed = min(place.most_replicas, math.ceil(max(0, left) / place.engine.sessions))
        replicas = max(place.bounds.min, needed)
        left -= replicas * place.engine.sessions
        filled.append(replace(place, replicas=replicas, nodes=math.ceil(replicas / place.replicas_per_node)))
    return ServiceSizing(service.name, service.kind, service.model, sessions, tuple(filled), compared)


class _Node(NamedTuple):
    pool: GpuPool
    vm: VmSize
    gpu: Gpu


def _node(azure: Azure, pool_name: str) -> _Node:
    """Return a pool, its VM size and its GPU.

    Raises:
        LookupError: The file has no such pool, or its nodes have no GPU.
    """
    pool = next((pool for pool in azure.pools if pool.name == pool_name), None)
    if pool is None:
        raise LookupError(f"no pool is named {pool_name}")
    vm = catalog.vm_sizes()[pool.vm_size]
    if vm.gpu is None:
        raise LookupError(f"pool {pool_name}: {vm.name} has no GPU")
    return _Node(pool, vm, catalog.gpus()[vm.gpu])


def _asked(service: PrefillDecodeCell | AggregatedService | ChatService) -> Asked:
    if isinstance(service, PrefillDecodeCell):
        return Asked(service.load, profile=service.profile)
    return Asked(service.load, service.quantization, service.kv_cache_type, service.profile)


def _cell(azure: Azure, service: PrefillDecodeCell, model: ModelCard) -> PoolSizing:
    node = _node(azure, service.pool)
    layout = cell_layout(model, node.gpu, node.vm, _asked(service), region=azure.location)
    return _place(service, node, layout.engine, gpus=node.vm.gpu_count, kv_pool=service.lmcache, prefill=layout.prefill)


def _aggregated(azure: Azure, service: AggregatedService | ChatService, model: ModelCard, pool: str) -> PoolSizing:
    node = _node(azure, pool)
    width = service.tensor_parallel if isinstance(service, AggregatedService) else 1
    kv_pool = service.lmcache if isinstance(service, AggregatedService) else None
    if kv_pool:
        check_reuse(model)
    layout = aggregated_layout(model, node.gpu, node.vm, _asked(service), tensor_parallel=width, region=azure.location)
    per_node = layout.replicas_per_node
    return _place(service, node, layout.engine, gpus=width, per_node=per_node, kv_pool=kv_pool)


def _tts(azure: Azure, service: TtsService, model: ModelCard) -> PoolSizing:
    node = _node(azure, service.pool)
    engine = size_tts(model, node.gpu, cuda_graphs=service.cuda_graphs)
    return _place(service, node, engine, gpus=1, per_node=node.vm.gpu_count)


def _place(
    service: AzureService,
    node: _Node,
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
        bounds=service.replicas_on(node.pool.name),
        nodes_max=node.pool.nodes.max,
        replicas=0,
        nodes=0,
        host=size_host(
            node.vm,
            pods=per_node,
            gpus_per_pod=gpus,
            kv_pool_gib=kv_pool.l1_gib if kv_pool else 0,
            helpers_gib=helpers_gib(service),
        ),
    )
