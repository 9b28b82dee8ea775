"""Checks on NUMA nodes and NVLink: admission by the kubelet, and the connections between an engine's GPUs."""

from collections.abc import Iterator
from dataclasses import replace

from voice_blueprint.azure.topology import (
    AdmissionDecision,
    ContainerRequest,
    admit_pods,
    are_nvlink_connected,
    calculate_empty_node_resources,
    find_admitted_cpus,
)
from voice_blueprint.checks.azure.cluster import Cluster, PodGroup, build_configured_cluster
from voice_blueprint.checks.base import Severity, Violation, cluster_check, deployment_check, iter_sizing_violations
from voice_blueprint.engines.cell import build_cell_cpus_remedy, can_pin_engines
from voice_blueprint.engines.sizing.layouts import count_engines_per_node, group_gpus_by_nvlink, select_cell_gpu_groups
from voice_blueprint.file.model.azure import TopologyPolicy
from voice_blueprint.file.model.deployment import Deployment

TOPOLOGY_MANAGER_DOCS = (
    "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager (rule: voice_blueprint/azure/topology.py)"
)
REJECTING_POLICIES = (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)


@cluster_check(
    "numa-admits-pods",
    "The kubelet of every pool admits as many pods of its services as a node has GPUs for.",
    source=f"{TOPOLOGY_MANAGER_DOCS}; https://github.com/pytorch/ci-infra/issues/696",
)
def check_numa_admits_pods(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        # The last rejection has the most useful reason: in a cell, it concerns the container with the GPUs.
        rejection = next(
            (answer for answer in reversed(list(_iter_kubelet_decisions(pod))) if not answer.is_admitted), None
        )
        if rejection and pod.gpus:
            yield Violation(
                pod.pool_location if pod.is_cell else pod.location.locate_setting("cpus"),
                f"pool {pod.pool.name} ({pod.size.name}, {pod.pool.policy}) rejects a pod of {pod.name}: "
                f"{rejection.reason}",
                _build_admissible_cpus_remedy(pod),
            )


@cluster_check(
    "cell-engines-beside-their-gpus",
    "The kubelet pins a cell's engines to the NUMA nodes of their GPUs.",
    source=f"{TOPOLOGY_MANAGER_DOCS}; amounts: voice_blueprint/engines/cell.py",
    is_acceptable=False,
)
def check_cell_engines_near_their_gpus(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        pinned = {engine.request_index: engine.gpus for engine in pod.engines if engine.gpus}
        # Another check reports sizes that do not fit a cell.
        if (
            not pod.is_cell
            or not pinned
            or any(iter_sizing_violations(pod.pool_location, pod.title, select_cell_gpu_groups, pod.size))
        ):
            continue
        if not can_pin_engines(pod.size, pod.cpus, pod.requests, pinned, pod.pool.policy):
            cpu_text = " and ".join(str(pod.requests[request].cpus) for request in pinned)
            yield Violation(
                pod.location.locate_setting("cpus"),
                f"engines of {pod.name} request {cpu_text} CPUs, but the kubelet of {pod.size.name} "
                f"({pod.pool.policy}) does not pin them to the NUMA nodes of their GPUs",
                build_cell_cpus_remedy(pod.size, pod.pool.policy),
            )


@deployment_check(
    "numa-nodes-known",
    "Topology policies that can reject a pod are used only on sizes with documented NUMA nodes.",
    source=TOPOLOGY_MANAGER_DOCS,
    level=Severity.WARNING,
)
def check_numa_nodes_known(deployment: Deployment) -> Iterator[Violation]:
    cluster = build_configured_cluster(deployment.azure)
    for pool in cluster.pools:
        has_pods = any(pod.pool is pool for pod in cluster.pods)
        if has_pods and pool.policy in REJECTING_POLICIES and not pool.size.numa_nodes:
            yield Violation(
                pool.location.locate_setting("topology_policy"),
                f"the NUMA nodes of {pool.size.name} are not documented; whether {pool.policy} admits a pod is known "
                "only on the node",
                "set topology_policy: best-effort, which rejects no pod",
            )


@cluster_check(
    "engine-on-one-nvlink-domain",
    "The GPUs of every engine are in one NVLink domain, and the engines of a node use all of its GPUs.",
    source="https://github.com/Azure/azurehpc-health-checks/tree/main/conf (NC96ads: 193 GB/s in a pair, 25 over "
    "four); https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html",
    is_acceptable=False,
)
def check_engine_on_one_nvlink_domain(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        for engine in pod.engines:
            groups, width, at = (
                group_gpus_by_nvlink(pod.size),
                engine.tensor_parallel,
                pod.location.locate_setting("tensor_parallel"),
            )
            if engine.gpus and not are_nvlink_connected(pod.size, engine.gpus):
                domains = ", ".join(map(str, pod.size.nvlink_domains)) or "none"
                yield Violation(
                    at,
                    f"{pod.name}: an engine uses GPUs {engine.gpus} of {pod.size.name}, whose NVLink domains are "
                    f"{domains}",
                    "use GPUs of one domain",
                )
            elif not pod.is_cell and groups:
                violations = list(iter_sizing_violations(at, pod.title, count_engines_per_node, pod.size, width))
                yield from violations
                if not violations and any(len(group) % width for group in groups):
                    divisors = [str(n) for n in range(1, len(groups[0]) + 1) if len(groups[0]) % n == 0]
                    yield Violation(
                        at,
                        f"{pod.name}: engines of {width} GPUs do not divide the NVLink domains of {pod.size.name} "
                        f"({' + '.join(str(len(group)) for group in groups)}); the remaining GPUs stay idle",
                        f"set tensor_parallel to one of {', '.join(divisors)}",
                    )


@cluster_check(
    "cell-has-two-domains",
    "A prefill/decode cell runs on a size with two NVLink domains, one for each engine.",
    source="https://github.com/vllm-project/vllm/pull/55906 (separate pods fall back to TCP); "
    "https://github.com/ai-dynamo/nixl/issues/1195",
    is_acceptable=False,
)
def check_cell_has_two_nvlink_domains(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        if pod.is_cell:
            yield from iter_sizing_violations(pod.pool_location, pod.title, select_cell_gpu_groups, pod.size)


@deployment_check(
    "cell-gpus-reach-each-other",
    "Prefill transfers the KV cache to decode only between GPUs with known peer-to-peer access.",
    source="https://github.com/NVIDIA/cuQuantum/issues/191 (NC96ads, driver 570: `topo -p2p w` is NS between its "
    "pairs); https://github.com/vllm-project/vllm/pull/55906 (without CUDA IPC the fallback is silent)",
    level=Severity.WARNING,
)
def check_cell_gpus_reach_each_other(deployment: Deployment) -> Iterator[Violation]:
    for pod in build_configured_cluster(deployment.azure).pods:
        if pod.is_cell:
            yield Violation(
                pod.location.locate_setting("kind"),
                f"{pod.name} transfers the KV cache between the NVLink pairs of {pod.size.name}, but a public report "
                "shows no peer access between them, and audio is sent directly to decode without the GPUs of prefill",
                "use an aggregated service on the same pool, as in production-azure.yaml; `voice plan` shows both "
                "layouts. A cell's start-up check rejects such a node, or warns (without_peer_access)",
            )


@cluster_check(
    "pods-get-linked-gpus",
    "Engines with several GPUs do not share a pool with pods that could split an NVLink domain.",
    source="https://github.com/NVIDIA/k8s-device-plugin/issues/1193; " + TOPOLOGY_MANAGER_DOCS,
)
def check_pods_get_linked_gpus(cluster: Cluster) -> Iterator[Violation]:
    for pod in cluster.pods:
        if pod.is_cell:
            continue
        others = [p for p in cluster.pods if p.pool.name == pod.pool.name and pod.gpus > max(p.gpus, 1)]
        if others:
            yield Violation(
                others[0].pool_location,
                f"each pod of {others[0].name} uses {others[0].gpus} GPU(s) in pool {pod.pool.name}, but {pod.name} "
                f"uses {pod.gpus}: the remaining {pod.gpus} GPUs may have no NVLink between them",
                "give each its own pool",
            )
        cpus = max((request.cpus or 0 for request in pod.requests), default=0)
        split_gpus = _find_unlinked_gpus(pod, cpus)
        if split_gpus and are_nvlink_connected(pod.size, range(pod.gpus)):
            reduction = next((step for step in range(1, cpus) if not _find_unlinked_gpus(pod, cpus - step)), cpus - 1)
            yield Violation(
                pod.location.locate_setting("cpus"),
                f"with {cpus} CPUs, an engine of {pod.name} gets GPUs {split_gpus} of {pod.size.name}, which NVLink "
                "does not connect: CPUs that the kubelet reserves on the first NUMA node leave too few on it",
                f"request {reduction} fewer CPUs",
            )


def _iter_kubelet_decisions(pod: PodGroup) -> Iterator[AdmissionDecision]:
    """Yield the kubelet's decisions about the containers on a full node, in the order of the containers."""
    return admit_pods(
        pod.size, pod.requests * pod.pods_on_full_node, pod.pool.policy, calculate_empty_node_resources(pod.size)
    )


def _find_unlinked_gpus(pod: PodGroup, cpus: int) -> tuple[int, ...]:
    """Return the first allocation on a full node that gives a pod GPUs without NVLink between them.

    The result is empty if NVLink connects the GPUs of every pod.
    """
    cpu_text = replace(pod, requests=tuple(ContainerRequest(request.gpus, cpus) for request in pod.requests))
    return next(
        (
            answer.gpus
            for answer in _iter_kubelet_decisions(cpu_text)
            if not are_nvlink_connected(pod.size, answer.gpus)
        ),
        (),
    )


def _build_admissible_cpus_remedy(pod: PodGroup) -> str:
    """Return a remedy with the CPU requests that the topology policy admits, if any."""
    fit = find_admitted_cpus(pod.size, pod.gpus, pod.pool.policy)
    if fit:
        cpus = f"{fit.start} to {fit.stop - 1} CPUs"
        return f"set the CPUs of the container with the GPUs to {cpus}, or set topology_policy: best-effort on the pool"
    return "set topology_policy: best-effort on the pool; this policy admits the pod with no number of CPUs"
