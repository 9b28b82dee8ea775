"""Checks on NUMA nodes and NVLink: what the kubelet admits, and what an engine's GPUs have between them."""

from collections.abc import Iterator, Sequence

from blueprint.azure.topology import Request, admitted_cpus, place, share_nvlink, whole_node
from blueprint.catalog import VmSize
from blueprint.checks.azure_pods import ServicePod, refused, service_pods
from blueprint.checks.base import Level, Violation, check
from blueprint.engines.cell import check_cell_cpus
from blueprint.engines.sizing.layouts import cell_groups, engines_per_node, nvlink_groups
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.azure import TopologyPolicy
from blueprint.file.model.deployment import Deployment

KUBELET = "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager (rule: blueprint/azure/topology.py)"
REFUSING = (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)


@check(
    "numa-admits-pods",
    Level.ERROR,
    "The kubelet of every pool admits the pods of its services, as many as a node has GPUs for.",
    source=f"{KUBELET}; https://github.com/pytorch/ci-infra/issues/696",
)
def numa_admits_pods(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        # In a cell the GPUs are a container's of their own, beside those that have the CPUs.
        request = Request(pod.gpus, None if pod.is_cell else pod.service.cpus)
        for answer in place(pod.size, [request] * pod.per_node, pod.pool.topology_policy, whole_node(pod.size)):
            if not answer.admitted:
                yield Violation(
                    pod.pool_at if pod.is_cell else (*pod.location, "cpus"),
                    f"pool {pod.pool.name} ({pod.size.name}, {pod.pool.topology_policy}) refuses a pod of "
                    f"{pod.service.name}: {answer.reason}",
                    _admitting(pod),
                )
                break


@check(
    "cell-engines-beside-their-gpus",
    Level.ERROR,
    "The kubelet pins a cell's engines to the NUMA nodes of their GPUs, to which they bind themselves.",
    source=f"{KUBELET}; blueprint/engines/cell.py has the amounts",
)
def cell_engines_beside_their_gpus(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.is_cell and _is_cell_size(pod.size):
            yield from refused((*pod.location, "cpus"), pod, _check_cell_cpus)


def _is_cell_size(size: VmSize) -> bool:
    try:
        cell_groups(size)
    except DoesNotFitError:
        return False
    return True


def _check_cell_cpus(pod: ServicePod) -> None:
    check_cell_cpus(pod.size, pod.service.cpus, pod.pool.topology_policy)


@check(
    "numa-nodes-known",
    Level.WARNING,
    "Policies that may refuse a pod are used only on sizes whose NUMA nodes a source gives.",
    source=KUBELET,
)
def numa_nodes_known(deployment: Deployment) -> Iterator[Violation]:
    for pod in _one_per_pool(service_pods(deployment.azure)):
        if pod.pool.topology_policy in REFUSING and not pod.size.numa_nodes:
            index = deployment.azure.pools.index(pod.pool)
            yield Violation(
                ("azure", "pools", index, "topology_policy"),
                f"no source gives the NUMA nodes of {pod.size.name}; whether {pod.pool.topology_policy} admits a "
                "pod shows on the node only",
                "set topology_policy: best-effort, which refuses nothing",
            )


@check(
    "engine-on-one-nvlink-domain",
    Level.ERROR,
    "The GPUs of every engine are one NVLink domain, and the engines of a node use all of it.",
    source="https://github.com/Azure/azurehpc-health-checks/tree/main/conf (NC96ads: 193 GB/s in a pair, 25 over "
    "four); https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html",
)
def engine_on_one_nvlink_domain(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.is_cell:
            continue
        at = (*pod.location, "tensor_parallel")
        too_wide = list(refused(at, pod, _check_domain))
        yield from too_wide
        groups = nvlink_groups(pod.size)
        if not too_wide and any(len(group) % pod.tensor_parallel for group in groups):
            shape = " + ".join(str(len(group)) for group in groups)
            divisors = [str(n) for n in range(1, len(groups[0]) + 1) if len(groups[0]) % n == 0]
            yield Violation(
                at,
                f"{pod.service.name}: engines of {pod.tensor_parallel} GPUs do not divide the NVLink domains of "
                f"{pod.size.name} ({shape}); what is left over stays idle",
                f"set tensor_parallel to one of {', '.join(divisors)}",
            )


@check(
    "cell-has-two-domains",
    Level.ERROR,
    "A prefill/decode cell runs on a size with two NVLink domains, one for each engine.",
    source="https://github.com/vllm-project/vllm/pull/55906 (separate pods fall back to TCP); "
    "https://github.com/ai-dynamo/nixl/issues/1195",
)
def cell_has_two_domains(deployment: Deployment) -> Iterator[Violation]:
    for pod in service_pods(deployment.azure):
        if pod.is_cell:
            yield from refused(pod.pool_at, pod, _check_cell)


@check(
    "pods-get-linked-gpus",
    Level.ERROR,
    "Engines of several GPUs share a pool with nothing that could split an NVLink domain.",
    source="https://github.com/NVIDIA/k8s-device-plugin/issues/1193; " + KUBELET,
)
def pods_get_linked_gpus(deployment: Deployment) -> Iterator[Violation]:
    pods = list(service_pods(deployment.azure))
    for pod in pods:
        others = [p for p in pods if p.pool == pod.pool and p.gpus != pod.gpus and pod.gpus > max(p.gpus, 1)]
        if others and not pod.is_cell:
            yield Violation(
                others[0].pool_at,
                f"{others[0].service.name} takes {others[0].gpus} GPU(s) a pod in pool {pod.pool.name}, where "
                f"{pod.service.name} takes {pod.gpus}: it can leave {pod.gpus} GPUs without NVLink between them",
                "give each its own pool",
            )
        split = _split_gpus(pod, pod.service.cpus)
        if split and not pod.is_cell and share_nvlink(pod.size, range(pod.gpus)):
            fewer = next((cpus for cpus in range(pod.service.cpus - 1, 0, -1) if not _split_gpus(pod, cpus)), 1)
            yield Violation(
                (*pod.location, "cpus"),
                f"with {pod.service.cpus} CPUs a pod of {pod.service.name} gets GPUs {split} of {pod.size.name}, "
                "which NVLink does not join: the CPUs that the kubelet keeps on the first NUMA node push it away",
                f"ask for at most {fewer} CPUs",
            )


def _one_per_pool(pods: Iterator[ServicePod]) -> Sequence[ServicePod]:
    return list({pod.pool.name: pod for pod in pods}.values())


def _check_domain(pod: ServicePod) -> None:
    if pod.gpus and pod.size.gpu_count:
        engines_per_node(pod.size, pod.tensor_parallel)


def _check_cell(pod: ServicePod) -> None:
    cell_groups(pod.size)


def _split_gpus(pod: ServicePod, cpus: int) -> tuple[int, ...]:
    """Return the first GPUs without NVLink between them that a pod of a full node would get; nothing where none."""
    answers = place(pod.size, [Request(pod.gpus, cpus)] * pod.per_node, pod.pool.topology_policy, whole_node(pod.size))
    return next((answer.gpus for answer in answers if not share_nvlink(pod.size, answer.gpus)), ())


def _admitting(pod: ServicePod) -> str:
    """Say which CPU request the policy would admit, or that none would."""
    fit = admitted_cpus(pod.size, pod.gpus, pod.pool.topology_policy)
    if fit:
        return f"ask for {fit.start} to {fit.stop - 1} CPUs, or set topology_policy: best-effort on the pool"
    return "set topology_policy: best-effort on the pool; no number of CPUs is admitted with this one"
