"""Rules on where pods land: pools, taints, NUMA nodes, NVLink domains."""

from collections import defaultdict
from collections.abc import Iterator

from blueprint.azure.topology import Admission, Request, place, share_nvlink, whole_node
from stacks.azure.policy.engines import Engine, engines
from stacks.azure.policy.pods import Container, Pod, pods
from stacks.azure.policy.pools import Pool, placed, pools
from stacks.azure.policy.rules import Found, Rule, Scope, Stack

KUBELET = "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager"
DEVICE_PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin/issues/1193"
NUMACTL = "--cpunodebind="


def deployment_is_known(stack: Stack) -> Iterator[Found]:
    """The stack's configuration names the deployment file; without it other rules have nothing to compare with."""
    first = next((pod for pod in pods(stack) if pod.gpus), None)
    if first and not pools(stack):
        yield Found(first.urn, f"nothing says which nodes {first.name} and the others with GPUs land on, or what for")


def pool_is_known(stack: Stack) -> Iterator[Found]:
    """A pod with GPUs names a pool, and the pool is one of the cluster's."""
    known = pools(stack)
    for pod in pods(stack):
        if known and pod.gpus and pod.pool not in known:
            named = f'selects pool "{pod.pool}"' if pod.pool else "selects no pool"
            yield Found(
                pod.urn, f"{pod.name} asks for {pod.gpus} GPU(s) and {named}; known pools: {', '.join(known) or 'none'}"
            )


def taints_are_tolerated(stack: Stack) -> Iterator[Found]:
    """A pod tolerates every taint of the pool that it selects."""
    for pod, pool in placed(stack, pods(stack)):
        for taint in pool.taints:
            if taint.rpartition(":")[2] != "PreferNoSchedule" and not _tolerates(pod, taint):
                yield Found(pod.urn, f"{pod.name} selects pool {pool.name} and does not tolerate its taint {taint}")


def pods_do_not_split_domains(stack: Stack) -> Iterator[Found]:
    """Pods of one pool take GPUs in the same number, a number that divides the node."""
    by_pool: dict[str, list[tuple[Pod, Pool]]] = defaultdict(list)
    for pod, pool in placed(stack, pods(stack)):
        if pod.gpus > pool.size.gpu_count:
            yield Found(
                pod.urn,
                f"{pod.name} asks for {pod.gpus} GPUs; {pool.size.name} of pool {pool.name} has {pool.size.gpu_count}",
            )
        elif pod.gpus:
            by_pool[pool.name].append((pod, pool))
    for members in by_pool.values():
        largest, pool = max(members, key=lambda member: member[0].gpus)
        for pod, _ in members:
            if pod.gpus != largest.gpus:
                yield Found(
                    pod.urn,
                    f"{pod.name} takes {pod.gpus} GPU(s) of pool {pool.name}, {largest.name} takes {largest.gpus}: "
                    f"it leaves a node of {pool.size.name} on which NVLink joins too few for the other",
                )


def kubelet_admits(stack: Stack) -> Iterator[Found]:
    """The kubelet's Topology Manager admits as many pods as a node has GPUs for."""
    for pod, pool in placed(stack, pods(stack)):
        for container, answer in _alignment(pod, pool):
            if not answer.admitted:
                yield Found(
                    pod.urn,
                    f"{pod.name}/{container.name}: {pool.size.name} with policy {pool.policy} refuses: {answer.reason}",
                )
                break


def engine_has_its_gpus(stack: Stack) -> Iterator[Found]:
    """Tensor parallelism takes as many GPUs as an engine has, and every GPU of a pod has an engine."""
    taken: dict[str, list[Engine]] = defaultdict(list)
    for engine in engines(stack):
        taken[engine.pod.urn].append(engine)
        width, asked, seen = engine.tensor_parallel, engine.container.gpus, len(engine.visible)
        if not asked and not seen:
            yield Found(engine.pod.urn, f"{engine.name} asks for no GPU and is not told which of its pod's to take")
        if asked and asked != width:
            yield Found(engine.pod.urn, f"{engine.name} asks for {asked} GPU(s) and spreads over {width}")
        if seen and seen < width:
            yield Found(engine.pod.urn, f"{engine.name} sees GPUs {engine.visible} and spreads over {width}")
    for urn, members in taken.items():
        pod = members[0].pod
        need = sum(engine.tensor_parallel for engine in members)
        if need != pod.gpus:
            parts = " + ".join(f"{e.container.name} {e.tensor_parallel}" for e in members)
            yield Found(urn, f"engines of {pod.name} spread over {parts} = {need} GPUs; the pod has {pod.gpus}")
        own = [gpu for engine in members for gpu in engine.own_gpus]
        twice = sorted({gpu for gpu in own if own.count(gpu) > 1})
        if twice:
            yield Found(urn, f"two engines of {pod.name} take GPU {', '.join(map(str, twice))}")


def engine_is_one_domain(stack: Stack) -> Iterator[Found]:
    """NVLink joins the GPUs of every engine."""
    known = pools(stack)
    for engine in engines(stack):
        pool = known.get(engine.pod.pool)
        if pool is None or engine.tensor_parallel == 1:
            continue
        domains = [str(domain) for domain in pool.size.nvlink_domains] or ["none"]
        for gpus in _gpus_of(engine, pool):
            if len(gpus) > 1 and not share_nvlink(pool.size, gpus):
                yield Found(
                    engine.pod.urn,
                    f"{engine.name} spreads over GPUs {gpus} of {pool.size.name}; its NVLink domains are "
                    f"{', '.join(domains)}",
                )
                break


def bound_nodes_are_aligned(stack: Stack) -> Iterator[Found]:
    """``numactl`` binds a container to the NUMA nodes that the kubelet pins its CPUs on."""
    for pod, pool in placed(stack, pods(stack)):
        for container, answer in _alignment(pod, pool, copies=1):
            bound = next((arg.removeprefix(NUMACTL) for arg in container.argv if arg.startswith(NUMACTL)), "")
            wanted = {int(part) for part in bound.split(",") if part.isdecimal()}
            if wanted and answer.admitted and answer.nodes and not answer.nodes <= wanted:
                yield Found(
                    pod.urn,
                    f"{pod.name}/{container.name} binds itself to NUMA nodes {bound}; its {container.pinned_cpus} CPUs "
                    f"are pinned on {', '.join(map(str, sorted(answer.nodes)))}, so only part of them is left to it",
                )


def _alignment(pod: Pod, pool: Pool, copies: int | None = None) -> Iterator[tuple[Container, Admission]]:
    """Yield the kubelet's answers to the containers of pods that start one after another on an empty node."""
    if copies is None:
        copies = max(1, pool.size.gpu_count // pod.gpus) if pod.gpus else 1
    containers = [c for c in pod.running if c.gpus or c.pinned_cpus] * copies
    requests = [Request(container.gpus, container.pinned_cpus) for container in containers]
    return zip(containers, place(pool.size, requests, pool.policy, whole_node(pool.size)), strict=True)


def _gpus_of(engine: Engine, pool: Pool) -> Iterator[tuple[int, ...]]:
    """Yield the GPUs that an engine gets: those that it is told to, or the kubelet's choice in each pod of a node."""
    if engine.own_gpus:
        yield engine.own_gpus
        return
    for container, answer in _alignment(engine.pod, pool):
        if container.name == engine.container.name and answer.admitted:
            yield answer.gpus


def _tolerates(pod: Pod, taint: str) -> bool:
    rest, _, effect = taint.rpartition(":")
    key, _, value = rest.partition("=")
    for toleration in pod.spec["tolerations"]:
        exists = toleration["operator"].text == "Exists"
        if toleration["effect"].text not in {"", effect}:
            continue
        if toleration["key"].text in ({key, ""} if exists else {key}) and (exists or toleration["value"].text == value):
            return True
    return False


RULES = (
    Rule(
        "deployment-is-known",
        "The configuration of a stack with GPU pods names its deployment file, where pools and agreements stand.",
        "pulumi config set deployment FILE",
        "https://www.pulumi.com/docs/iac/concepts/config",
        Scope.STACK,
        deployment_is_known,
    ),
    Rule(
        "gpu-pod-names-its-pool",
        "Every pod with GPUs selects a pool whose VM size is known.",
        "select a pool of the deployment file by the label voice-serve/pool",
        "https://learn.microsoft.com/azure/aks/use-labels",
        Scope.STACK,
        pool_is_known,
    ),
    Rule(
        "taints-are-tolerated",
        "Every pod tolerates the taints of the pool that it selects.",
        "add the toleration, or select another pool",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration",
        Scope.STACK,
        taints_are_tolerated,
    ),
    Rule(
        "pods-do-not-split-nvlink-domains",
        "All pods of a pool take the same number of GPUs, no more than a node has.",
        "give each number of GPUs its own pool",
        DEVICE_PLUGIN,
        Scope.STACK,
        pods_do_not_split_domains,
    ),
    Rule(
        "kubelet-admits-pods",
        "The kubelet's Topology Manager admits every pod to the nodes that it selects.",
        "set the pool's topology policy to best-effort, or ask for CPUs on as many NUMA nodes as the GPUs lie on",
        KUBELET,
        Scope.STACK,
        kubelet_admits,
    ),
    Rule(
        "engine-has-its-gpus",
        "An engine's tensor parallelism is the number of its GPUs, and the engines of a pod take all GPUs of the pod.",
        "set --tensor-parallel-size, CUDA_VISIBLE_DEVICES and the pod's nvidia.com/gpu to agree",
        "https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html",
        Scope.STACK,
        engine_has_its_gpus,
    ),
    Rule(
        "engine-is-one-nvlink-domain",
        "NVLink joins the GPUs of every engine.",
        "lower the tensor parallelism to one domain, or put engines on GPUs of one domain",
        "https://github.com/Azure/azurehpc-health-checks/tree/main/conf",
        Scope.STACK,
        engine_is_one_domain,
    ),
    Rule(
        "bound-numa-nodes-are-aligned",
        "A container that binds itself to NUMA nodes has its CPUs pinned there.",
        "ask for so many CPUs that no other NUMA nodes have as many left",
        KUBELET,
        Scope.STACK,
        bound_nodes_are_aligned,
        advice=True,
    ),
)
