"""Ways to lay one model out on one kind of node: a prefill/decode cell, or engines that do both."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from blueprint.catalog.azure import VmSize
from blueprint.catalog.inference import Gpu, ModelCard
from blueprint.engines.sizing.engine import size_engine
from blueprint.engines.sizing.fit import check_reuse
from blueprint.engines.sizing.result import DoesNotFitError, EngineSizing, Limit
from blueprint.file.model.serving import KvCacheType, Load, Profile, Quantization

CELL = "prefill-decode-cell"


@dataclass(frozen=True)
class Layout:
    """One way to use a node.

    Attributes:
        name: ``prefill-decode-cell``, or such as ``aggregated TP2 x 2``.
        engine: The engine that bounds the sessions; of a cell, the one that decodes.
        prefill: The engine of a cell that prefills.
        replicas_per_node: Cells, or engines, of one node.
        replicas: As many as the asked sessions need.
        nodes: Nodes for these.
        usd_per_hour: Price of these nodes; ``None`` where no price is known.
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
        """Sessions of one node when each has the longest context."""
        return self.engine.sessions_at_full_context * self.replicas_per_node

    @property
    def limit(self) -> Limit:
        """What binds the sessions."""
        return self.engine.limit


@dataclass(frozen=True)
class RefusedLayout:
    """A way that does not work, and why."""

    name: str
    vm_size: str
    refusal: DoesNotFitError


@dataclass(frozen=True)
class Asked:
    """What an engine is asked for; the same for every layout that is compared."""

    load: Load
    quantization: Quantization = Quantization.NONE
    kv_cache_type: KvCacheType = KvCacheType.AUTO
    profile: Profile = Profile.TUNED

    def engine(self, model: ModelCard, gpu: Gpu, tensor_parallel: int) -> EngineSizing:
        """Size one engine.

        Raises:
            DoesNotFitError: It does not fit.
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


def nvlink_groups(vm: VmSize) -> tuple[tuple[int, ...], ...]:
    """Return the GPUs of a node in groups that NVLink joins; a GPU without NVLink is a group of its own."""
    return tuple(dict.fromkeys(vm.nvlink_domain_of(gpu) for gpu in range(vm.gpu_count)))


def engines_per_node(vm: VmSize, tensor_parallel: int) -> int:
    """Return how many engines of ``tensor_parallel`` GPUs a node holds, each inside one NVLink domain.

    Raises:
        DoesNotFitError: No domain is that large. Across domains every layer's all-reduce takes PCIe: 25 instead of
            193 GB/s on NC96ads by Microsoft's own health checks.
    """
    groups = nvlink_groups(vm)
    count = sum(len(group) // tensor_parallel for group in groups)
    if count == 0:
        largest = max(map(len, groups), default=0)
        raise DoesNotFitError(
            f"TP {tensor_parallel} needs {tensor_parallel} GPUs that NVLink joins; {vm.name} joins at most {largest} "
            f"of its {vm.gpu_count}",
            f"tensor_parallel of at most {largest}, or another size",
        )
    return count


def cell_groups(vm: VmSize) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the GPUs of prefill and of decode: the node's two NVLink pairs.

    Raises:
        DoesNotFitError: The node has no two NVLink domains of the same size. A cell is one pod on all GPUs of a node,
            since without RDMA the KV cache would cross nodes over TCP.
    """
    groups = [group for group in nvlink_groups(vm) if len(group) > 1]
    if len(groups) != 2 or len(groups[0]) != len(groups[1]) or sum(map(len, groups)) != vm.gpu_count:  # noqa: PLR2004
        raise DoesNotFitError(
            f"a cell takes two NVLink pairs of one node; {vm.name} has {len(groups)}",
            "use Standard_NC96ads_A100_v4, or an aggregated service",
        )
    return groups[0], groups[1]


def cell_layout(model: ModelCard, gpu: Gpu, vm: VmSize, asked: Asked, *, region: str) -> Layout:
    """Lay a model out as one prefill/decode cell for each node.

    The sessions are those that the decode engine's KV cache holds: prefill hands a session over and forgets it.

    Raises:
        DoesNotFitError: The node is no cell, the model allows no KV transfer, or an engine does not fit.
    """
    check_reuse(model)
    prefill, decode = (asked.engine(model, gpu, len(group)) for group in cell_groups(vm))
    return _layout(CELL, vm, decode, per_node=1, load=asked.load, region=region, prefill=prefill)


def aggregated_layout(
    model: ModelCard, gpu: Gpu, vm: VmSize, asked: Asked, *, tensor_parallel: int, region: str
) -> Layout:
    """Lay a model out as engines that prefill and decode.

    Raises:
        DoesNotFitError: The engine does not fit, or its GPUs are not joined by NVLink.
    """
    per_node = engines_per_node(vm, tensor_parallel)
    engine = asked.engine(model, gpu, tensor_parallel)
    name = f"aggregated TP{tensor_parallel} x {per_node}"
    return _layout(name, vm, engine, per_node=per_node, load=asked.load, region=region, prefill=None)


def _layout(
    name: str, vm: VmSize, engine: EngineSizing, *, per_node: int, load: Load, region: str, prefill: EngineSizing | None
) -> Layout:
    replicas = math.ceil(load.sessions / engine.sessions)
    nodes = math.ceil(replicas / per_node)
    price = vm.usd_per_hour.get(region)
    return Layout(name, vm.name, engine, prefill, per_node, replicas, nodes, price * nodes if price else None)


def layouts(model: ModelCard, gpu: Gpu, vm: VmSize, asked: Asked, *, region: str) -> tuple[Layout | RefusedLayout, ...]:
    """Return every way to lay a model out on a node, the refused ones with their reason: the cell, TP 2, TP 1."""

    def aggregated(tensor_parallel: int) -> Layout:
        return aggregated_layout(model, gpu, vm, asked, tensor_parallel=tensor_parallel, region=region)

    ways: dict[str, Callable[[], Layout]] = {
        CELL: lambda: cell_layout(model, gpu, vm, asked, region=region),
        "aggregated TP2": lambda: aggregated(2),
        "aggregated TP1": lambda: aggregated(1),
    }
    return tuple(_tried(name, vm, way) for name, way in ways.items())


def _tried(name: str, vm: VmSize, way: Callable[[], Layout]) -> Layout | RefusedLayout:
    try:
        return way()
    except DoesNotFitError as refusal:
        return RefusedLayout(name, vm.name, refusal)
