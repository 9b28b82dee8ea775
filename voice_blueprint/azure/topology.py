"""Model of the kubelet's Topology Manager: admission of pods by NUMA node, and the GPUs that are allocated to them.

The algorithm is that of Kubernetes 1.34, ``pkg/kubelet/cm/topologymanager/policy.go``. Every resource provides sets of
NUMA nodes that can serve a request ("hints"), and prefers the sets with the fewest nodes. One hint of each resource is
merged by intersection; the result is preferred only if all hints are the same preferred set. ``best-effort`` uses the
best merge, ``restricted`` rejects a pod whose best merge is not preferred, and ``single-numa-node`` considers only
preferred hints that consist of one node. AKS supports no scope other than the container.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.file.model.azure import TopologyPolicy

NumaNodes = frozenset[int]
"""A set of NUMA nodes."""


@dataclass(frozen=True)
class ContainerRequest:
    """Resource requests of one container.

    Attributes:
        gpus: Number of whole GPUs.
        cpus: Whole CPUs that the static CPU manager pins, if the container's requests equal its limits. ``None`` for
            any other container, whose CPUs are not aligned.
    """

    gpus: int
    cpus: int | None


@dataclass(frozen=True)
class FreeResources:
    """Free resources of a node.

    Attributes:
        cpus: Free CPUs of each NUMA node.
        gpus: Free GPUs.
    """

    cpus: tuple[int, ...]
    gpus: tuple[int, ...]

    def without_gpus(self, *gpus: int) -> "FreeResources":
        """Return the free resources without the given GPUs, which other pods use."""
        return replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu not in gpus))


@dataclass(frozen=True)
class AdmissionDecision:
    """The kubelet's decision about a container.

    Attributes:
        is_admitted: Whether the container starts. A rejected pod fails with ``TopologyAffinityError`` and is not
            rescheduled.
        gpus: The allocated GPUs.
        nodes: NUMA nodes from which resources are allocated first; empty if the policy does not align resources.
        is_preferred: Whether every resource is on the same, smallest set of NUMA nodes.
        reason: Reason for a rejection.
    """

    is_admitted: bool
    gpus: tuple[int, ...] = ()
    nodes: NumaNodes = frozenset()
    is_preferred: bool = False
    reason: str = ""


class _TopologyHint(NamedTuple):
    nodes: NumaNodes
    is_preferred: bool


def calculate_kube_reserved_cpus(size: VmSize) -> float:
    """Return the CPUs that AKS reserves: 0.14 for the first four, and 0.01 for each further one.

    The table of learn.microsoft.com/azure/aks/node-resource-reservations ends at 64 with 0.74; the increase from 4 to
    64 is assumed to continue for larger sizes.
    """
    return 0.14 + 0.01 * max(0, size.vcpus - 4)


def calculate_empty_node_resources(size: VmSize, reserved_cpus: int | None = None) -> FreeResources:
    """Return the resources of an empty node.

    Args:
        size: VM size.
        reserved_cpus: Whole CPUs of the first NUMA node that the static CPU manager does not allocate to containers.
            The default is the reservation of AKS, rounded up as the kubelet does.
    """
    if reserved_cpus is None:
        reserved_cpus = math.ceil(calculate_kube_reserved_cpus(size))
    cpus = [node.vcpus for node in size.numa_nodes]
    return FreeResources((cpus[0] - reserved_cpus, *cpus[1:]) if cpus else (), tuple(range(size.gpu_count)))


def admit_container(
    size: VmSize, free: FreeResources, request: ContainerRequest, policy: TopologyPolicy
) -> AdmissionDecision:
    """Return the kubelet's decision about a container, given the free resources of its node.

    If the catalogue does not contain the NUMA nodes of a size, the result is exact only for ``none`` and
    ``best-effort``, which never reject a pod. The other policies are assumed to admit the pod.
    """
    if request.gpus > len(free.gpus):
        return AdmissionDecision(False, reason=f"{request.gpus} GPUs of {len(free.gpus)} that are free")
    if size.numa_nodes and (request.cpus or 0) > sum(free.cpus):
        return AdmissionDecision(False, reason=f"{request.cpus} CPUs of {sum(free.cpus)} that are free")
    if policy is TopologyPolicy.NONE or not size.numa_nodes:
        return AdmissionDecision(True, _select_preferred_gpus(size, free.gpus, request.gpus))
    offers = _build_resource_hints(size, free, request)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        offers = [[hint for hint in hints if hint.is_preferred and len(hint.nodes) == 1] for hints in offers]
    merged_hint = _merge_hints(offers, frozenset(range(len(size.numa_nodes))))
    if policy is not TopologyPolicy.BEST_EFFORT and not merged_hint.is_preferred:
        return AdmissionDecision(False, nodes=merged_hint.nodes, reason=_explain_refusal(size, request, policy))
    local_gpus = tuple(gpu for gpu in free.gpus if _find_numa_node(size, gpu) in merged_hint.nodes)
    remote_gpus = tuple(gpu for gpu in free.gpus if gpu not in local_gpus)
    gpus = _select_preferred_gpus(size, local_gpus, min(request.gpus, len(local_gpus)))
    gpus += _select_preferred_gpus(size, remote_gpus, request.gpus - len(gpus))
    return AdmissionDecision(True, tuple(sorted(gpus)), merged_hint.nodes, merged_hint.is_preferred)


def admit_pods(
    size: VmSize, requests: Sequence[ContainerRequest], policy: TopologyPolicy, free: FreeResources
) -> Iterator[AdmissionDecision]:
    """Yield the decisions about containers that start one after another on the same node."""
    for request in requests:
        admission = admit_container(size, free, request, policy)
        if admission.is_admitted:
            free = FreeResources(
                _calculate_remaining_cpus(free.cpus, request.cpus or 0, admission.nodes), free.gpus
            ).without_gpus(*admission.gpus)
        yield admission


def are_nvlink_connected(size: VmSize, gpus: Sequence[int]) -> bool:
    """Return True if NVLink connects all GPUs with each other. A single GPU needs no link."""
    return len(gpus) <= 1 or set(gpus) <= set(size.find_nvlink_domain(gpus[0]))


def find_admitted_cpus(size: VmSize, gpus: int, policy: TopologyPolicy) -> range | None:
    """Return the CPU requests for which a policy admits a container with this number of GPUs to an empty node."""
    free = calculate_empty_node_resources(size)
    fit = [
        cpus
        for cpus in range(1, size.vcpus + 1)
        if admit_container(size, free, ContainerRequest(gpus, cpus), policy).is_admitted
    ]
    return range(fit[0], fit[-1] + 1) if fit else None


def _find_numa_node(size: VmSize, gpu: int) -> int | None:
    return next((index for index, node in enumerate(size.numa_nodes) if gpu in node.gpus), None)


def _count_gpus_by_node(size: VmSize, gpus: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(gpu in node.gpus for gpu in gpus) for node in size.numa_nodes)


def _build_resource_hints(size: VmSize, free: FreeResources, request: ContainerRequest) -> list[list[_TopologyHint]]:
    """Return the sets of NUMA nodes that could provide CPUs and GPUs, one list per requested resource."""
    offers = []
    if request.cpus:
        offers.append(_build_numa_hints([node.vcpus for node in size.numa_nodes], free.cpus, request.cpus))
    if request.gpus:
        all_nodes = _count_gpus_by_node(size, range(size.gpu_count))
        offers.append(_build_numa_hints(all_nodes, _count_gpus_by_node(size, free.gpus), request.gpus))
    return offers


def _build_numa_hints(total: Sequence[int], free: Sequence[int], amount: int) -> list[_TopologyHint]:
    """Return every set of NUMA nodes with enough free resources for a request.

    A set is preferred if it is as small as the smallest sufficient set of an empty node.
    """
    min_nodes = _calculate_min_node_count(total, amount)
    return [
        _TopologyHint(nodes, len(nodes) == min_nodes)
        for nodes in _iter_node_sets(len(total))
        if sum(free[node] for node in nodes) >= amount
    ]


def _calculate_min_node_count(total: Sequence[int], amount: int) -> int:
    sizes = [len(nodes) for nodes in _iter_node_sets(len(total)) if sum(total[node] for node in nodes) >= amount]
    return min(sizes, default=len(total))


def _iter_node_sets(count: int) -> Iterator[NumaNodes]:
    for length in range(1, count + 1):
        yield from map(frozenset, itertools.combinations(range(count), length))


def _merge_hints(offers: list[list[_TopologyHint]], all_nodes: NumaNodes) -> _TopologyHint:
    """Return the best intersection of one hint per resource."""
    # If no merge is preferred, the resource that needs the most nodes determines the desired number of nodes.
    desired = max((min((len(hint.nodes) for hint in hints), default=0) for hints in offers), default=0)
    merged_hint: _TopologyHint | None = None
    for hints in itertools.product(*offers):
        nodes = all_nodes.intersection(*(hint.nodes for hint in hints))
        preferred = all(hint.is_preferred and hint.nodes == hints[0].nodes for hint in hints)
        if nodes and (
            merged_hint is None
            or _build_hint_sort_key(_TopologyHint(nodes, preferred), desired)
            < _build_hint_sort_key(merged_hint, desired)
        ):
            merged_hint = _TopologyHint(nodes, preferred)
    return merged_hint or _TopologyHint(all_nodes, False)


def _build_hint_sort_key(hint: _TopologyHint, desired_nodes: int) -> tuple[bool, bool, int, int]:
    """Return the key by which merged hints are sorted.

    Preferred merges sort first, then those whose number of nodes is closest to the desired one (fewer before more),
    then those with low node numbers.
    """
    count = len(hint.nodes)
    mask = sum(1 << node for node in hint.nodes)
    if hint.is_preferred:
        return False, False, count, mask
    return True, count > desired_nodes, abs(count - desired_nodes), mask


def _select_preferred_gpus(size: VmSize, gpus: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the GPUs that NVIDIA's device plugin prefers: those with the most NVLink connections.

    If several groups have the same score, the plugin prefers the one with the lowest numbers.

    The plugin's best-effort policy scores NVLink far above PCIe (``github.com/NVIDIA/go-gpuallocator``).
    """
    groups = itertools.combinations(sorted(gpus), count)
    return min(
        groups, key=lambda group: -sum(are_nvlink_connected(size, pair) for pair in itertools.combinations(group, 2))
    )


def _calculate_remaining_cpus(free: tuple[int, ...], cpus: int, nodes: NumaNodes) -> tuple[int, ...]:
    """Return the free CPUs of each NUMA node after an allocation.

    The nodes of the alignment are used first, in ascending order.
    """
    remaining = list(free)
    for node in [*sorted(nodes), *(node for node in range(len(free)) if node not in nodes)]:
        used = min(remaining[node], cpus)
        remaining[node] -= used
        cpus -= used
    return tuple(remaining)


def _explain_refusal(size: VmSize, request: ContainerRequest, policy: TopologyPolicy) -> str:
    count = len(size.numa_nodes)
    gpu_nodes = _calculate_min_node_count(_count_gpus_by_node(size, range(size.gpu_count)), request.gpus)
    node_counts = [f"{request.gpus} GPUs lie on {gpu_nodes} of {count} NUMA nodes"] if request.gpus else []
    if request.cpus:
        cpu_nodes = _calculate_min_node_count([node.vcpus for node in size.numa_nodes], request.cpus)
        node_counts.append(f"{request.cpus} CPUs on {cpu_nodes}")
    requirement = "everything on one" if policy is TopologyPolicy.SINGLE_NUMA_NODE else "both on the same, smallest set"
    return f"{', '.join(node_counts)}; {policy} wants {requirement}"
