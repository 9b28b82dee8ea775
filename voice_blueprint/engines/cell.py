"""Helper containers of an engine pod: their resources, and the pinning of a cell's containers to CPUs.

The engines bind themselves to the NUMA nodes of their GPUs. The kubelet allocates CPUs container by container,
regardless of these bindings. The CPU requests must therefore ensure that each engine is allocated CPUs of its own NUMA
nodes.
"""

from collections.abc import Mapping, Sequence

from voice_blueprint.azure.topology import ContainerRequest, NumaNodes, admit_pods, calculate_empty_node_resources
from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.engines.sizing.layouts import select_cell_gpu_groups
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.azure import (
    AggregatedService,
    AzureService,
    LmcachePool,
    PrefillDecodeCell,
    TopologyPolicy,
)

LMCACHE_CPUS = 1.9
PD_ROUTER_CPUS = 1.9
FRONT_CPUS = 0.9
GPU_HOLDER_CPUS = 0.1
"""CPUs of helper containers are fractions, since the kubelet only pins whole CPUs. If helper containers were pinned
before the engines, they would use CPUs of the prefill engine's NUMA nodes, and the decode engine's LMCache server could
not bind to its own nodes. The amounts are ASSUMED to be sufficient, since the GPU performs the copies between GPU and
pinned memory."""

HELPER_CPUS = 2 * LMCACHE_CPUS + PD_ROUTER_CPUS + FRONT_CPUS + GPU_HOLDER_CPUS

LMCACHE_PROCESS_MEMORY_GIB = 8.0
"""Memory of an LMCache server without its pool: Python and a CUDA context for each GPU. ASSUMED, not measured."""
PD_ROUTER_MEMORY_GIB = 4.0
FRONT_MEMORY_GIB = 4.0
GPU_HOLDER_MEMORY_GIB = 0.25
"""Memory of the container that requests the GPUs. Its ``sleep`` process uses 1 MiB. The container runtime's hooks,
which find and cache the GPUs' libraries, also count against the limit, and are killed if the limit is too low
(https://github.com/eclipse-che/che/issues/21765). The device plugin has the same limit. ASSUMED, not measured."""
HELPER_MEMORY_GIB = 2 * LMCACHE_PROCESS_MEMORY_GIB + PD_ROUTER_MEMORY_GIB + FRONT_MEMORY_GIB + GPU_HOLDER_MEMORY_GIB
"""Memory of a cell's pod without its engines and their KV cache pools."""

MIN_RESERVED_CPUS = 1
"""Minimum number of CPUs that the kubelet must reserve. Without a reservation, the static CPU manager does not
start."""


def calculate_helper_memory_gib(service: AzureService) -> float:
    """Return the memory of a pod's helper containers, without KV cache pools."""
    match service:
        case PrefillDecodeCell():
            return HELPER_MEMORY_GIB
        case AggregatedService(lmcache=LmcachePool()):
            return LMCACHE_PROCESS_MEMORY_GIB
        case _:
            return 0.0


def calculate_cell_engine_cpus(cpus: int) -> int:
    """Return the number of CPUs for each engine in a cell.

    The kubelet pins only whole CPUs, so the number is an integer.
    """
    return max(0, int((cpus - HELPER_CPUS) // 2))


def calculate_single_engine_cpus(cpus: int) -> int:
    """Return the number of CPUs for an engine whose pod contains one LMCache server.

    The kubelet pins only whole CPUs, so the number is an integer.
    """
    return cpus - int(LMCACHE_CPUS) - 1


def validate_cell_cpus(size: VmSize, cpus: int, policy: TopologyPolicy) -> None:
    """Reject a number of CPUs with which the kubelet would not pin each engine next to its GPUs.

    Raises:
        DoesNotFitError: The kubelet pins an engine elsewhere or rejects the pod, or the size does not support cells.
    """
    if not _can_pin_cell(size, cpus, policy):
        raise DoesNotFitError(
            f"{cpus} CPUs are {calculate_cell_engine_cpus(cpus)} for each engine of a cell; the kubelet of {size.name} "
            f"({policy}) does not pin them beside the engine's GPUs",
            build_cell_cpus_remedy(size, policy),
        )


def build_cell_cpus_remedy(size: VmSize, policy: TopologyPolicy) -> str:
    """Return a remedy with CPU requests for a whole cell that the kubelet admits."""
    admitted_amounts = [amount for amount in range(1, size.vcpus) if _can_pin_cell(size, amount, policy)]
    return (
        f"{admitted_amounts[0]} to {admitted_amounts[-1]} cpus"
        if admitted_amounts
        else f"topology_policy: {TopologyPolicy.BEST_EFFORT}"
    )


def calculate_total_cell_cpus(cpus: int) -> float:
    """Return the total CPU request of a cell's containers.

    It can be slightly lower than ``cpus``, since each engine requests whole CPUs.
    """
    return 2 * calculate_cell_engine_cpus(cpus) + HELPER_CPUS


def build_cell_requests(gpus: int, cpus: int) -> tuple[ContainerRequest, ...]:
    """Return the CPU and GPU requests of a cell's prefill engine, decode engine, and GPU holder."""
    return (
        ContainerRequest(0, calculate_cell_engine_cpus(cpus)),
        ContainerRequest(0, calculate_cell_engine_cpus(cpus)),
        ContainerRequest(gpus, None),
    )


def can_pin_engines(
    size: VmSize,
    cpus: float,
    requests: Sequence[ContainerRequest],
    engines: Mapping[int, tuple[int, ...]],
    policy: TopologyPolicy,
) -> bool:
    """Return True if the kubelet admits a pod and pins its engines to the NUMA nodes of their GPUs.

    Args:
        size: VM size of the node.
        cpus: CPUs over all containers.
        requests: Requests of the containers in their order.
        engines: GPUs of each engine, by the index of its request.
        policy: Topology policy of the kubelet.
    """
    if cpus > size.vcpus - MIN_RESERVED_CPUS or any((requests[engine].cpus or 0) < 1 for engine in engines):
        return False
    if policy is TopologyPolicy.NONE or not size.numa_nodes:
        return True
    admissions = list(admit_pods(size, requests, policy, calculate_empty_node_resources(size, MIN_RESERVED_CPUS)))
    return all(answer.is_admitted for answer in admissions) and all(
        admissions[engine].nodes == _find_gpu_numa_nodes(size, gpus) for engine, gpus in engines.items()
    )


def _can_pin_cell(size: VmSize, cpus: int, policy: TopologyPolicy) -> bool:
    requests = build_cell_requests(size.gpu_count, cpus)
    cpu_requests = calculate_total_cell_cpus(cpus)
    return can_pin_engines(size, cpu_requests, requests, dict(enumerate(select_cell_gpu_groups(size))), policy)


def _find_gpu_numa_nodes(size: VmSize, gpus: tuple[int, ...]) -> NumaNodes:
    return frozenset(index for index, node in enumerate(size.numa_nodes) if set(node.gpus) & set(gpus))
