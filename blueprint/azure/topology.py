"""Which pods a node admits and which GPUs they get: the kubelet's Topology Manager over a VM size's NUMA nodes.

The rule is that of Kubernetes 1.34, ``pkg/kubelet/cm/topologymanager/policy.go``: every resource offers sets of NUMA
nodes that could serve a request ("hints"), those with the fewest nodes are preferred, one hint of each resource is
merged by intersection, and the result is preferred only where all of the hints were the same preferred set.
``best-effort`` takes the best merge, ``restricted`` refuses a pod whose best merge is not preferred, and
``single-numa-node`` looks at preferred hints of one node only. AKS has no other scope than the container.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from blueprint.catalog.azure import VmSize
from blueprint.file.model.azure import TopologyPolicy

Nodes = frozenset[int]
"""A set of NUMA nodes."""


@dataclass(frozen=True)
class Request:
    """What one container asks for.

    Attributes:
        gpus: Whole GPUs.
        cpus: CPUs that the static CPU manager pins: whole ones of a container whose requests equal its limits.
            ``None`` is any other container; its CPUs take no part in the alignment.
    """

    gpus: int
    cpus: int | None


@dataclass(frozen=True)
class Free:
    """What of a node nobody has taken.

    Attributes:
        cpus: Free CPUs of each NUMA node.
        gpus: Free GPUs.
    """

    cpus: tuple[int, ...]
    gpus: tuple[int, ...]

    def without(self, *gpus: int) -> "Free":
        """Return the same after other pods have taken some GPUs."""
        return replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu not in gpus))


@dataclass(frozen=True)
class Admission:
    """The kubelet's answer to one container.

    Attributes:
        admitted: Whether it starts; a refused pod fails with ``TopologyAffinityError`` and is not tried elsewhere.
        gpus: The GPUs that it gets.
        nodes: NUMA nodes that its resources are taken from first; empty where the policy aligns nothing.
        preferred: Whether every resource lies on the same, smallest set of NUMA nodes.
        reason: Why it is refused.
    """

    admitted: bool
    gpus: tuple[int, ...] = ()
    nodes: Nodes = frozenset()
    preferred: bool = False
    reason: str = ""


class _Hint(NamedTuple):
    nodes: Nodes
    preferred: bool


def kube_reserved_cpus(size: VmSize) -> float:
    """Return the CPUs that AKS keeps from pods: 0.14 of the first four, and 0.01 of each one above.

    The table of learn.microsoft.com/azure/aks/node-resource-reservations ends at 64 with 0.74; larger sizes are taken
    to go on as it does from 4 to 64.
    """
    return 0.14 + 0.01 * max(0, size.vcpus - 4)


def whole_node(size: VmSize, reserved_cpus: int | None = None) -> Free:
    """Return a node before its first pod.

    Args:
        size: Its VM size.
        reserved_cpus: Whole CPUs, of the first NUMA node, that the static CPU manager gives to no container; by default
            what AKS reserves, rounded up as the kubelet does.
    """
    if reserved_cpus is None:
        reserved_cpus = math.ceil(kube_reserved_cpus(size))
    cpus = [node.vcpus for node in size.numa_nodes]
    return Free((cpus[0] - reserved_cpus, *cpus[1:]) if cpus else (), tuple(range(size.gpu_count)))


def admit(size: VmSize, free: Free, request: Request, policy: TopologyPolicy) -> Admission:
    """Answer for one container, as the kubelet of a node with this much left would.

    Where the catalogue does not know the NUMA nodes of a size, only ``none`` and ``best-effort``, which refuse
    nothing, can be answered for; the other two are taken to admit.
    """
    if request.gpus > len(free.gpus):
        return Admission(False, reason=f"{request.gpus} GPUs of {len(free.gpus)} that are free")
    if size.numa_nodes and (request.cpus or 0) > sum(free.cpus):
        return Admission(False, reason=f"{request.cpus} CPUs of {sum(free.cpus)} that are free")
    if policy is TopologyPolicy.NONE or not size.numa_nodes:
        return Admission(True, _linked(size, free.gpus, request.gpus))
    offers = _offers(size, free, request)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        offers = [[hint for hint in hints if hint.preferred and len(hint.nodes) == 1] for hints in offers]
    best = _merge(offers, frozenset(range(len(size.numa_nodes))))
    if policy is not TopologyPolicy.BEST_EFFORT and not best.preferred:
        return Admission(False, nodes=best.nodes, reason=_why_not(size, request, policy))
    near = tuple(gpu for gpu in free.gpus if _node_of(size, gpu) in best.nodes)
    far = tuple(gpu for gpu in free.gpus if gpu not in near)
    gpus = _linked(size, near, min(request.gpus, len(near)))
    gpus += _linked(size, far, request.gpus - len(gpus))
    return Admission(True, tuple(sorted(gpus)), best.nodes, best.preferred)


def place(size: VmSize, requests: Sequence[Request], policy: TopologyPolicy, free: Free) -> Iterator[Admission]:
    """Yield the answers to containers that start one after another on a node."""
    for request in requests:
        answer = admit(size, free, request, policy)
        if answer.admitted:
            free = Free(_pinned(free.cpus, request.cpus or 0, answer.nodes), free.gpus).without(*answer.gpus)
        yield answer


def share_nvlink(size: VmSize, gpus: Sequence[int]) -> bool:
    """Whether NVLink joins GPUs with each other; one GPU alone needs no link."""
    return len(gpus) <= 1 or set(gpus) <= set(size.nvlink_domain_of(gpus[0]))


def admitted_cpus(size: VmSize, gpus: int, policy: TopologyPolicy) -> range | None:
    """Return the CPU requests with which a policy admits a container of so many GPUs to an empty node."""
    free = whole_node(size)
    fit = [cpus for cpus in range(1, size.vcpus + 1) if admit(size, free, Request(gpus, cpus), policy).admitted]
    return range(fit[0], fit[-1] + 1) if fit else None


def _node_of(size: VmSize, gpu: int) -> int | None:
    return next((index for index, node in enumerate(size.numa_nodes) if gpu in node.gpus), None)


def _gpus_by_node(size: VmSize, gpus: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(gpu in node.gpus for gpu in gpus) for node in size.numa_nodes)


def _offers(size: VmSize, free: Free, request: Request) -> list[list[_Hint]]:
    """Return the hints of each resource that a container asks for."""
    offers = []
    if request.cpus:
        offers.append(_hints([node.vcpus for node in size.numa_nodes], free.cpus, request.cpus))
    if request.gpus:
        everything = _gpus_by_node(size, range(size.gpu_count))
        offers.append(_hints(everything, _gpus_by_node(size, free.gpus), request.gpus))
    return offers


def _hints(total: Sequence[int], free: Sequence[int], amount: int) -> list[_Hint]:
    """Return every set of nodes with enough left; preferred are those as small as an empty node would allow."""
    smallest = _fewest_nodes(total, amount)
    return [
        _Hint(nodes, len(nodes) == smallest)
        for nodes in _sets(len(total))
        if sum(free[node] for node in nodes) >= amount
    ]


def _fewest_nodes(total: Sequence[int], amount: int) -> int:
    sizes = [len(nodes) for nodes in _sets(len(total)) if sum(total[node] for node in nodes) >= amount]
    return min(sizes, default=len(total))


def _sets(count: int) -> Iterator[Nodes]:
    for length in range(1, count + 1):
        yield from map(frozenset, itertools.combinations(range(count), length))


def _merge(offers: list[list[_Hint]], everything: Nodes) -> _Hint:
    """Return the best intersection of one hint of each resource."""
    # The resource that needs the most nodes says how many a merge should have when none is preferred.
    wanted = max((min((len(hint.nodes) for hint in hints), default=0) for hints in offers), default=0)
    best: _Hint | None = None
    for hints in itertools.product(*offers):
        nodes = everything.intersection(*(hint.nodes for hint in hints))
        preferred = all(hint.preferred and hint.nodes == hints[0].nodes for hint in hints)
        if nodes and (best is None or _rank(_Hint(nodes, preferred), wanted) < _rank(best, wanted)):
            best = _Hint(nodes, preferred)
    return best or _Hint(everything, False)


def _rank(hint: _Hint, wanted: int) -> tuple[bool, bool, int, int]:
    """Order merges: preferred first; then as many nodes as are wanted, sooner fewer than more; then low numbers."""
    count = len(hint.nodes)
    mask = sum(1 << node for node in hint.nodes)
    if hint.preferred:
        return False, False, count, mask
    return True, count > wanted, abs(count - wanted), mask


def _linked(size: VmSize, gpus: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the GPUs that NVIDIA's device plugin prefers: the most NVLink within the group, then low numbers.

    Its best-effort policy scores NVLink far above PCIe (``github.com/NVIDIA/go-gpuallocator``).
    """
    groups = itertools.combinations(sorted(gpus), count)
    return min(groups, key=lambda group: -sum(share_nvlink(size, pair) for pair in itertools.combinations(group, 2)))


def _pinned(free: tuple[int, ...], cpus: int, nodes: Nodes) -> tuple[int, ...]:
    """Return the CPUs of each node that are left: taken from the nodes of the alignment first, in their order."""
    left = list(free)
    for node in [*sorted(nodes), *(node for node in range(len(free)) if node not in nodes)]:
        taken = min(left[node], cpus)
        left[node] -= taken
        cpus -= taken
    return tuple(left)


def _why_not(size: VmSize, request: Request, policy: TopologyPolicy) -> str:
    count = len(size.numa_nodes)
    gpu_nodes = _fewest_nodes(_gpus_by_node(size, range(size.gpu_count)), request.gpus)
    spans = [f"{request.gpus} GPUs lie on {gpu_nodes} of {count} NUMA nodes"] if request.gpus else []
    if request.cpus:
        cpu_nodes = _fewest_nodes([node.vcpus for node in size.numa_nodes], request.cpus)
        spans.append(f"{request.cpus} CPUs on {cpu_nodes}")
    wants = "everything on one" if policy is TopologyPolicy.SINGLE_NUMA_NODE else "both on the same, smallest set"
    return f"{', '.join(spans)}; {policy} wants {wants}"
