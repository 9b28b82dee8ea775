"""Layouts of a model on a node: a prefill/decode cell, or aggregated engines."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.catalog.inference import Gpu, ModelCard
from voice_blueprint.engines.sizing.engine import size_engine
from voice_blueprint.engines.sizing.fit import validate_cached_prompts, validate_kv_reuse
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing, LimitingFactor
from voice_blueprint.file.model.serving import KvCacheType, Load, Profile, Quantization

CELL_LAYOUT_NAME = "prefill-decode-cell"


@dataclass(frozen=True)
class Layout:
    """A layout of a model on nodes.

    Attributes:
        name: ``prefill-decode-cell``, or for example ``aggregated TP2 x 2``.
        engine: The engine that limits the sessions; in a cell, the decode engine.
        prefill: The prefill engine of a cell.
        replicas_per_node: Cells or engines per node.
        replicas: Number of replicas for the requested sessions.
        nodes: Number of nodes for these replicas.
        usd_per_hour: Price of these nodes; ``None`` if unknown.
    """

    name: str
    vm_size: str
    engine: EngineSizing
    prefill: EngineSizing | None
    replicas_per_node: int
    replicas: int
    nodes: int
    usd_per_hour: float | None

    @property
    def sessions_per_node(self) -> int:
        """Sessions of the typical length on one node."""
        return self.engine.sessions * self.replicas_per_node

    @property
    def sessions_per_node_at_full_context(self) -> float:
        """Sessions on one node if each has the maximum context length."""
        return self.engine.sessions_at_full_context * self.replicas_per_node

    @property
    def limit(self) -> LimitingFactor:
        """Factor that limits the sessions."""
        return self.engine.limit


@dataclass(frozen=True)
class RejectedLayout:
    """A layout that does not work, with the reason."""

    name: str
    vm_size: str
    refusal: DoesNotFitError


@dataclass(frozen=True)
class EngineRequirements:
    """Requirements of an engine, the same for every layout in a comparison."""

    load: Load
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    profile: Profile = Profile.TUNED

    def calculate_sizing(self, model: ModelCard, gpu: Gpu, tensor_parallel: int) -> EngineSizing:
        """Size an engine.

        Raises:
            DoesNotFitError: The engine does not fit.
        """
        return size_engine(
            model,
            gpu,
            load=self.load,
            tensor_parallel=tensor_parallel,
            quantization=self.quantization,
            kv_cache_type=self.kv_cache_type,
            profile=self.profile,
        )


def group_gpus_by_nvlink(vm: VmSize) -> tuple[tuple[int, ...], ...]:
    """Return the GPUs of a node, grouped by NVLink connection. A GPU without NVLink is a group of its own."""
    return tuple(dict.fromkeys(vm.find_nvlink_domain(gpu) for gpu in range(vm.gpu_count)))


def count_engines_per_node(vm: VmSize, tensor_parallel: int) -> int:
    """Return the number of engines with ``tensor_parallel`` GPUs per node, each inside one NVLink domain.

    Raises:
        DoesNotFitError: No domain is that large. Across domains, the all-reduce of every layer uses PCIe: 25 instead of
            193 GB/s on NC96ads according to Microsoft's health checks.
    """
    groups = group_gpus_by_nvlink(vm)
    count = sum(len(group) // tensor_parallel for group in groups)
    if count == 0:
        largest = max(map(len, groups), default=0)
        raise DoesNotFitError(
            f"TP {tensor_parallel} needs {tensor_parallel} GPUs that NVLink joins; {vm.name} joins at most {largest} "
            f"of its {vm.gpu_count}",
            f"tensor_parallel of at most {largest}, or another size",
        )
    return count


def select_cell_gpu_groups(vm: VmSize) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the GPUs of the prefill engine and of the decode engine, which are the node's two NVLink pairs.

    Raises:
        DoesNotFitError: The node does not have two NVLink domains of the same size. A cell is one pod with all GPUs of
            a node, since without RDMA the KV cache would be sent between nodes over TCP.
    """
    groups = [group for group in group_gpus_by_nvlink(vm) if len(group) > 1]
    if len(groups) != 2 or len(groups[0]) != len(groups[1]) or sum(map(len, groups)) != vm.gpu_count:  # noqa: PLR2004
        raise DoesNotFitError(
            f"a cell requires two NVLink pairs of one node; {vm.name} has {len(groups)}",
            "use Standard_NC96ads_A100_v4, or an aggregated service",
        )
    return groups[0], groups[1]


def create_cell_layout(
    model: ModelCard, gpu: Gpu, vm: VmSize, requirements: EngineRequirements, *, region: str
) -> Layout:
    """Return the layout of a model with one prefill/decode cell per node.

    The decode engine's KV cache limits the sessions, since the prefill engine frees a session after its transfer.

    Raises:
        DoesNotFitError: The node does not support cells, the model does not support KV transfer, its sessions are too
            short for LMCache, or an engine does not fit.
    """
    validate_kv_reuse(model)
    validate_cached_prompts(requirements.load)
    prefill, decode = (requirements.calculate_sizing(model, gpu, len(group)) for group in select_cell_gpu_groups(vm))
    return _create_layout(
        CELL_LAYOUT_NAME, vm, decode, per_node=1, load=requirements.load, region=region, prefill=prefill
    )


def create_aggregated_layout(
    model: ModelCard, gpu: Gpu, vm: VmSize, requirements: EngineRequirements, *, tensor_parallel: int, region: str
) -> Layout:
    """Return the layout of a model with aggregated engines.

    Raises:
        DoesNotFitError: The engine does not fit, or NVLink does not connect its GPUs.
    """
    per_node = count_engines_per_node(vm, tensor_parallel)
    engine = requirements.calculate_sizing(model, gpu, tensor_parallel)
    name = f"aggregated TP{tensor_parallel} x {per_node}"
    return _create_layout(name, vm, engine, per_node=per_node, load=requirements.load, region=region, prefill=None)


def _create_layout(
    name: str, vm: VmSize, engine: EngineSizing, *, per_node: int, load: Load, region: str, prefill: EngineSizing | None
) -> Layout:
    replicas = math.ceil(load.sessions / engine.sessions)
    nodes = math.ceil(replicas / per_node)
    price = vm.usd_per_hour.get(region)
    return Layout(name, vm.name, engine, prefill, per_node, replicas, nodes, price * nodes if price else None)


def evaluate_layouts(
    model: ModelCard, gpu: Gpu, vm: VmSize, requirements: EngineRequirements, *, region: str
) -> tuple[Layout | RejectedLayout, ...]:
    """Return all layouts of a model on a node: a cell, TP 2 and TP 1. A rejected layout contains the reason."""

    def build_aggregated(tensor_parallel: int) -> Layout:
        return create_aggregated_layout(model, gpu, vm, requirements, tensor_parallel=tensor_parallel, region=region)

    candidates: dict[str, Callable[[], Layout]] = {
        CELL_LAYOUT_NAME: lambda: create_cell_layout(model, gpu, vm, requirements, region=region),
        "aggregated TP2": lambda: build_aggregated(2),
        "aggregated TP1": lambda: build_aggregated(1),
    }
    return tuple(_create_or_reject_layout(name, vm, build) for name, build in candidates.items())


def _create_or_reject_layout(name: str, vm: VmSize, build: Callable[[], Layout]) -> Layout | RejectedLayout:
    try:
        return build()
    except DoesNotFitError as refusal:
        return RejectedLayout(name, vm.name, refusal)
