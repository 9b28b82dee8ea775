"""The containers beside the engines of a pod: what they take, and who of a cell is pinned to which CPUs.

The engines bind themselves to the NUMA nodes of their GPUs. The kubelet gives out CPUs one container after another and
knows nothing of that, so the amounts have to be such that it gives each engine the nodes that it binds to.
"""

from collections.abc import Mapping, Sequence

from blueprint.azure.topology import Nodes, Request, place, whole_node
from blueprint.catalog.azure import VmSize
from blueprint.engines.sizing.layouts import cell_groups
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.azure import (
    AggregatedService,
    AzureService,
    LmcachePool,
    PrefillDecodeCell,
    TopologyPolicy,
)

LMCACHE_CPUS = 1.9
PD_ROUTER_CPUS = 1.9
FRONT_CPUS = 0.9
HOLDER_CPUS = 0.1
"""Fractions on purpose: the kubelet pins whole CPUs only. What is pinned before the engines would take CPUs of the NUMA
nodes that prefill belongs on, and the decode engine's LMCache server, pinned there, could not bind to its own. How much
they need is ASSUMED: copies between GPU and pinned memory are the GPU's work."""

HELPER_CPUS = 2 * LMCACHE_CPUS + PD_ROUTER_CPUS + FRONT_CPUS + HOLDER_CPUS

LMCACHE_PROCESS_GIB = 8.0
"""An LMCache server beside its pool: Python and a CUDA context for each GPU. ASSUMED, not measured."""
PD_ROUTER_GIB = 4.0
FRONT_GIB = 4.0
HOLDER_GIB = 0.25
"""The sleep takes 1 MiB. The container runtime's hooks, which find the GPUs' libraries and cache them, run in its
memory too, and are killed where the limit is small (https://github.com/eclipse-che/che/issues/21765). The device plugin
has as much. ASSUMED, not measured."""
HELPER_GIB = 2 * LMCACHE_PROCESS_GIB + PD_ROUTER_GIB + FRONT_GIB + HOLDER_GIB
"""Memory of a cell's pod beside its engines and its pools of KV cache."""

RESERVED_CPUS = 1
"""Least that the kubelet keeps from pinned containers; the static CPU manager does not start without any."""


def helpers_gib(service: AzureService) -> float:
    """Return the memory of what stands beside the engines of a service's pod, its pools of KV cache left out."""
    match service:
        case PrefillDecodeCell():
            return HELPER_GIB
        case AggregatedService(lmcache=LmcachePool()):
            return LMCACHE_PROCESS_GIB
        case _:
            return 0.0


def engine_cpus(cpus: int) -> int:
    """Return the CPUs of either engine, of all that a cell asks for: whole, so that the kubelet pins them."""
    return max(0, int((cpus - HELPER_CPUS) // 2))


def cpus_beside_lmcache(cpus: int) -> int:
    """Return the CPUs of an engine with one LMCache server in its pod: whole, so that the kubelet pins them."""
    return cpus - int(LMCACHE_CPUS) - 1


def check_cell_cpus(size: VmSize, cpus: int, policy: TopologyPolicy) -> None:
    """Refuse an amount of CPUs with which the kubelet puts an engine elsewhere than beside its GPUs.

    Raises:
        DoesNotFitError: It does, or refuses the pod; or the size is no cell's.
    """
    if not _fits(size, cpus, policy):
        raise DoesNotFitError(
            f"{cpus} CPUs are {engine_cpus(cpus)} for each engine of a cell; the kubelet of {size.name} ({policy}) "
            "does not pin them beside the engine's GPUs",
            cell_cpus_remedy(size, policy),
        )


def cell_cpus_remedy(size: VmSize, policy: TopologyPolicy) -> str:
    """Say which amounts of CPUs for a whole cell would do."""
    possible = [amount for amount in range(1, size.vcpus) if _fits(size, amount, policy)]
    return f"{possible[0]} to {possible[-1]} cpus" if possible else f"topology_policy: {TopologyPolicy.BEST_EFFORT}"


def cell_cpus(cpus: int) -> float:
    """Return the CPUs that a cell's containers ask for together: engines get whole ones, so it may be a little less."""
    return 2 * engine_cpus(cpus) + HELPER_CPUS


def cell_requests(gpus: int, cpus: int) -> tuple[Request, ...]:
    """Return what a cell's containers ask the kubelet for: prefill, decode, and the holder of the GPUs."""
    return Request(0, engine_cpus(cpus)), Request(0, engine_cpus(cpus)), Request(gpus, None)


def engines_beside_gpus(
    size: VmSize,
    cpus: float,
    requests: Sequence[Request],
    engines: Mapping[int, tuple[int, ...]],
    policy: TopologyPolicy,
) -> bool:
    """Whether the kubelet admits a pod and pins its engines to the NUMA nodes of their GPUs.

    Args:
        size: The node.
        cpus: CPUs of all containers.
        requests: What the containers ask for, one after another.
        engines: The GPUs of each engine, by the number of its request.
        policy: The kubelet's.
    """
    if cpus > size.vcpus - RESERVED_CPUS or any((requests[engine].cpus or 0) < 1 for engine in engines):
        return False
    if policy is TopologyPolicy.NONE or not size.numa_nodes:
        return True
    answers = list(place(size, requests, policy, whole_node(size, RESERVED_CPUS)))
    return all(answer.admitted for answer in answers) and all(
        answers[engine].nodes == _nodes_of(size, gpus) for engine, gpus in engines.items()
    )


def _fits(size: VmSize, cpus: int, policy: TopologyPolicy) -> bool:
    requests = cell_requests(size.gpu_count, cpus)
    asked = cell_cpus(cpus)
    return engines_beside_gpus(size, asked, requests, dict(enumerate(cell_groups(size))), policy)


def _nodes_of(size: VmSize, gpus: tuple[int, ...]) -> Nodes:
    return frozenset(index for index, node in enumerate(size.numa_nodes) if set(node.gpus) & set(gpus))
