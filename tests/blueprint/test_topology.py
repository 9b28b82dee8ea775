"""Model of the kubelet's topology manager: admitted pods, assigned GPUs, and equivalence with Kubernetes."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_blueprint.azure.topology import (
    ContainerRequest,
    FreeResources,
    admit_container,
    admit_pods,
    are_nvlink_connected,
    calculate_empty_node_resources,
    calculate_kube_reserved_cpus,
    find_admitted_cpus,
)
from voice_blueprint.catalog.azure import NumaNode, VmSize
from voice_blueprint.file.model.azure import TopologyPolicy

NONE, BEST_EFFORT, RESTRICTED, SINGLE = TopologyPolicy
REFUSAL = "refused"
PAIRS = ((0, 1), (2, 3))


def vm_size(*nodes: NumaNode, domains: tuple[tuple[int, ...], ...] = (), gpus: int | None = None) -> VmSize:
    """Return a size with these NUMA nodes; additional GPUs belong to no node."""
    count = sum(len(node.gpus) for node in nodes) if gpus is None else gpus
    return VmSize(
        name="made up", vcpus=sum(node.vcpus for node in nodes) or 96, memory_gib=880, gpu="A100", gpu_count=count,
        numa_nodes=nodes, nvlink_domains=domains, network_gbps=80, rdma=False, quota_family="f",
        capacity_reservation=True, spot=True, usd_per_hour={}, price_date="2026-11", source="this test",
    )  # fmt: skip


NC96 = vm_size(*(NumaNode(vcpus=24, gpus=(gpu,)) for gpu in range(4)), domains=PAIRS)
"""VM size with four NUMA nodes of one GPU, and NVLink between 0 and 1 and between 2 and 3."""
NC80 = vm_size(NumaNode(vcpus=40, gpus=(0,)), NumaNode(vcpus=40, gpus=(1,)), domains=((0, 1),))
UNKNOWN_TOPOLOGY = vm_size(gpus=8, domains=(tuple(range(8)),))


def two_pairs(policy: TopologyPolicy, cpus: int, free: FreeResources | None = None) -> list[tuple[int, ...] | str]:
    """Return the GPUs of two containers with two each, in order."""
    answers = admit_pods(NC96, [ContainerRequest(2, cpus)] * 2, policy, free or calculate_empty_node_resources(NC96, 0))
    return [answer.gpus if answer.is_admitted else REFUSAL for answer in answers]


@pytest.mark.parametrize(
    ("policy", "cpus", "gets"),
    [
        (NONE, 20, [(0, 1), (2, 3)]),
        (NONE, 40, [(0, 1), (2, 3)]),
        (BEST_EFFORT, 20, [(0, 1), (2, 3)]),
        (BEST_EFFORT, 40, [(0, 1), (2, 3)]),
        (RESTRICTED, 20, [REFUSAL, REFUSAL]),
        (RESTRICTED, 40, [(0, 1), (2, 3)]),
        (SINGLE, 20, [REFUSAL, REFUSAL]),
        (SINGLE, 40, [REFUSAL, REFUSAL]),
    ],
)
def test_two_gpus_on_four_numa_nodes_are_placed(
    policy: TopologyPolicy, cpus: int, gets: list[tuple[int, ...] | str]
) -> None:
    assert two_pairs(policy, cpus) == gets


@pytest.mark.parametrize("policy", [NONE, BEST_EFFORT, RESTRICTED])
def test_single_gpu_pods_break_nvlink_pairs(policy: TopologyPolicy) -> None:
    (gets, _) = two_pairs(policy, 40, calculate_empty_node_resources(NC96, 0).without_gpus(0, 2))
    assert gets == (1, 3)
    assert not are_nvlink_connected(NC96, (1, 3))


@pytest.mark.parametrize(
    ("policy", "gpus", "cpus"),
    [
        (RESTRICTED, 2, range(25, 49)),
        (RESTRICTED, 4, range(73, 95)),  # the kubelet reserves two
        (RESTRICTED, 1, range(1, 25)),
        (SINGLE, 2, None),
        (SINGLE, 1, range(1, 25)),
        (BEST_EFFORT, 2, range(1, 95)),
        (NONE, 4, range(1, 95)),
    ],
)
def test_admitted_cpus_depend_on_the_topology_policy(policy: TopologyPolicy, gpus: int, cpus: range | None) -> None:
    assert find_admitted_cpus(NC96, gpus, policy) == cpus


def test_containers_without_whole_cpus_are_not_pinned() -> None:
    assert admit_container(
        NC96, calculate_empty_node_resources(NC96, 0), ContainerRequest(2, None), RESTRICTED
    ).gpus == (0, 1)
    assert not admit_container(
        NC96, calculate_empty_node_resources(NC96, 0), ContainerRequest(2, None), SINGLE
    ).is_admitted


def test_cpus_reserved_by_aks() -> None:
    """Rows of https://learn.microsoft.com/azure/aks/node-resource-reservations."""
    for vcpus, reserved in ((4, 0.14), (8, 0.18), (16, 0.26), (32, 0.42), (64, 0.74)):
        assert calculate_kube_reserved_cpus(vm_size(NumaNode(vcpus=vcpus))) == pytest.approx(reserved)
    assert calculate_empty_node_resources(NC96).cpus == (22, 24, 24, 24)


def test_cpus_reserved_by_the_kubelet_take_precedence_over_nvlink() -> None:
    free = calculate_empty_node_resources(NC96)
    assert admit_container(NC96, free, ContainerRequest(2, 48), RESTRICTED).gpus == (1, 2)
    assert admit_container(NC96, free, ContainerRequest(2, 46), RESTRICTED).gpus == (0, 1)


@pytest.mark.parametrize(
    ("policy", "cpus", "message"),
    [
        (RESTRICTED, 20, "2 GPUs lie on 2 of 4 NUMA nodes, 20 CPUs on 1; restricted wants both on the same"),
        (SINGLE, 20, "2 GPUs lie on 2 of 4 NUMA nodes, 20 CPUs on 1; single-numa-node wants everything on one"),
        (BEST_EFFORT, 97, "97 CPUs of 96 that are free"),
    ],
)
def test_refusal_contains_the_numbers(policy: TopologyPolicy, cpus: int, message: str) -> None:
    answer = admit_container(NC96, calculate_empty_node_resources(NC96, 0), ContainerRequest(2, cpus), policy)
    assert not answer.is_admitted
    assert message in answer.reason


def test_more_gpus_than_are_free_are_refused() -> None:
    answer = admit_container(
        NC96, calculate_empty_node_resources(NC96, 0).without_gpus(0, 1, 2), ContainerRequest(2, 1), NONE
    )
    assert answer.reason == "2 GPUs of 1 that are free"


def test_a_pair_on_two_numa_nodes_is_placed() -> None:
    assert not admit_container(
        NC80, calculate_empty_node_resources(NC80, 0), ContainerRequest(2, 40), RESTRICTED
    ).is_admitted
    assert admit_container(NC80, calculate_empty_node_resources(NC80, 0), ContainerRequest(2, 41), RESTRICTED).gpus == (
        0,
        1,
    )


def test_a_size_with_unknown_numa_nodes_admits_pods() -> None:
    answers = list(
        admit_pods(
            UNKNOWN_TOPOLOGY, [ContainerRequest(1, 10)] * 8, SINGLE, calculate_empty_node_resources(UNKNOWN_TOPOLOGY, 0)
        )
    )
    assert [answer.gpus for answer in answers] == [(gpu,) for gpu in range(8)]
    assert not admit_container(
        UNKNOWN_TOPOLOGY, calculate_empty_node_resources(UNKNOWN_TOPOLOGY, 0), ContainerRequest(9, 1), NONE
    ).is_admitted


def test_nvlink_domains() -> None:
    assert are_nvlink_connected(NC96, (2, 3))
    assert are_nvlink_connected(NC96, (1,))
    assert not are_nvlink_connected(NC96, (1, 2))
    assert not are_nvlink_connected(NC96, (0, 1, 2))
    assert are_nvlink_connected(UNKNOWN_TOPOLOGY, range(8))


# --- The same rule with bit masks, step by step as the kubelet compares, against the product's sets -------


def masks(count: int) -> Iterator[int]:
    for length in range(1, count + 1):
        for bits in itertools.combinations(range(count), length):
            yield sum(1 << bit for bit in bits)


Offer = tuple[int, bool]


def offers(total: tuple[int, ...], free: tuple[int, ...], amount: int) -> list[Offer]:
    def amount_in_mask(amounts: tuple[int, ...], mask: int) -> int:
        return sum(value for bit, value in enumerate(amounts) if mask >> bit & 1)

    smallest = len(total)
    found = []
    for mask in masks(len(total)):
        if amount_in_mask(total, mask) >= amount:
            smallest = min(smallest, mask.bit_count())
        if amount_in_mask(free, mask) >= amount:
            found.append(mask)
    return [(mask, mask.bit_count() == smallest) for mask in found]


def narrower_mask(one: int, other: int) -> int:
    if one.bit_count() == other.bit_count():
        return min(one, other)
    return one if one.bit_count() < other.bit_count() else other


def better_offer(current: Offer | None, candidate: Offer, gpu_count: int) -> Offer | None:
    if candidate[0] == 0:
        return current
    if current is None or (candidate[1] and not current[1]):
        return candidate
    if current[1] and not candidate[1]:
        return current
    have, new = current[0].bit_count(), candidate[0].bit_count()
    if current[1] or have > gpu_count or have == new:
        return (narrower_mask(candidate[0], current[0]), current[1])
    if have == gpu_count or new > gpu_count:
        return current
    return candidate if new > have else current


def merge_offers(groups: list[list[Offer]], count: int) -> Offer:
    wanted = max((min((mask.bit_count() for mask, _ in group), default=0) for group in groups), default=0)
    best: Offer | None = None
    for chosen in itertools.product(*groups):
        mask = (1 << count) - 1
        for one, _ in chosen:
            mask &= one
        same = all(one == chosen[0][0] for one, _ in chosen)
        best = better_offer(best, (mask, same and all(preferred for _, preferred in chosen)), wanted)
    return best or ((1 << count) - 1, False)


@st.composite
def placement_requests(draw: st.DrawFn) -> tuple[VmSize, FreeResources, ContainerRequest]:
    nodes = draw(st.integers(1, 4))
    per_node = draw(st.integers(0, 2))
    size = vm_size(
        *(NumaNode(vcpus=8, gpus=tuple(range(at * per_node, (at + 1) * per_node))) for at in range(nodes)),
    )
    free = FreeResources(
        tuple(draw(st.lists(st.integers(0, 8), min_size=nodes, max_size=nodes))),
        tuple(sorted(draw(st.sets(st.integers(0, nodes * per_node - 1))))) if per_node else (),
    )
    cpus = draw(st.none() | st.integers(1, max(1, sum(free.cpus))))
    return size, free, ContainerRequest(draw(st.integers(0, len(free.gpus))), cpus)


@given(placement_requests(), st.sampled_from([BEST_EFFORT, RESTRICTED, SINGLE]))
def test_allocation_matches_the_kubelet(
    situation: tuple[VmSize, FreeResources, ContainerRequest], policy: TopologyPolicy
) -> None:
    size, free, request = situation
    count = len(size.numa_nodes)
    groups = []
    if request.cpus:
        groups.append(offers((8,) * count, free.cpus, request.cpus))
    if request.gpus:
        total = tuple(len(node.gpus) for node in size.numa_nodes)
        left = tuple(len(set(node.gpus) & set(free.gpus)) for node in size.numa_nodes)
        groups.append(offers(total, left, request.gpus))
    if policy is SINGLE:
        groups = [[(mask, preferred) for mask, preferred in group if preferred and mask.bit_count() == 1]
                  for group in groups]  # fmt: skip
    mask, preferred = merge_offers(groups, count)
    answer = admit_container(size, free, request, policy)
    enough = (request.cpus or 0) <= sum(free.cpus)
    assert answer.is_admitted == (enough and (preferred or policy is BEST_EFFORT))
    if answer.is_admitted:
        assert sum(1 << node for node in answer.nodes) == mask
        assert len(answer.gpus) == request.gpus
        assert set(answer.gpus) <= set(free.gpus)
