"""The containers of a prefill/decode cell as the kubelet sees them: who is pinned to which CPUs.

The engines bind themselves to the NUMA nodes of their GPUs. The kubelet gives out CPUs one container after another and
knows nothing of that, so the amounts have to be such that it gives each engine the nodes that it binds to.
"""

from blueprint.azure.topology import Nodes, Request, place, whole_node
from blueprint.catalog.azure import VmSize
from blueprint.engines.sizing.layouts import cell_groups
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.azure import TopologyPolicy

LMCACHE_CPUS = 1.9
PD_ROUTER_CPUS = 1.9
FRONT_CPUS = 0.9
HOLDER_CPUS = 0.1
"""Fractions on purpose: the kubelet pins whole CPUs only. What is pinned before the engines would take CPUs of the NUMA
nodes that prefill belongs on, and the decode engine's LMCache server, pinned there, could not bind to its own. How much
they need is ASSUMED: copies between GPU and pinned memory are the GPU's work."""

HELPER_CPUS = 2 * LMCACHE_CPUS + PD_ROUTER_CPUS + FRONT_CPUS + HOLDER_CPUS

RESERVED_CPUS = 1
"""Least that the kubelet keeps from pinned containers; the static CPU manager does not start without any."""


def engine_cpus(cpus: int) -> int:
    """Return the CPUs of either engine, of all that a cell asks for: whole, so that the kubelet pins them."""
    return max(0, int((cpus - HELPER_CPUS) // 2))


def check_cell_cpus(size: VmSize, cpus: int, policy: TopologyPolicy) -> None:
    """Refuse an amount of CPUs with which the kubelet puts an engine elsewhere than beside its GPUs.

    Raises:
        DoesNotFitError: It does, or refuses the pod; or the size is no cell's.
    """
    if _fits(size, cpus, policy):
        return
    possible = [amount for amount in range(1, size.vcpus) if _fits(size, amount, policy)]
    raise DoesNotFitError(
        f"{cpus} CPUs are {engine_cpus(cpus)} for each engine of a cell; the kubelet of {size.name} ({policy}) does "
        "not pin them beside the engine's GPUs",
        f"{possible[0]} to {possible[-1]} cpus" if possible else f"topology_policy: {TopologyPolicy.BEST_EFFORT}",
    )


def _fits(size: VmSize, cpus: int, policy: TopologyPolicy) -> bool:
    each = engine_cpus(cpus)
    if each < 1 or cpus > size.vcpus - RESERVED_CPUS:
        return False
    if policy is TopologyPolicy.NONE or not size.numa_nodes:
        return True
    engines = [Request(0, each), Request(0, each)]
    holder = Request(size.gpu_count, None)
    *placed, held = place(size, [*engines, holder], policy, whole_node(size, RESERVED_CPUS))
    return held.admitted and all(
        answer.admitted and answer.nodes == _nodes_of(size, gpus)
        for answer, gpus in zip(placed, cell_groups(size), strict=True)
    )


def _nodes_of(size: VmSize, gpus: tuple[int, ...]) -> Nodes:
    return frozenset(index for index, node in enumerate(size.numa_nodes) if set(node.gpus) & set(gpus))
