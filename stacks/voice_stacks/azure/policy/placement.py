"""Rules on pod placement: pools, taints, NUMA nodes, NVLink domains."""

from collections import defaultdict
from collections.abc import Iterator

from voice_stacks.azure.policy.cluster import build_cluster, collect_gpu_pools_by_name, iter_pods_with_pools
from voice_stacks.azure.policy.engines import Engine, list_engines
from voice_stacks.azure.policy.pods import list_pods, tolerates_taint
from voice_stacks.azure.policy.rules import Stack, Violation, stack_rule


@stack_rule(
    "deployment-is-known",
    "The configuration of a stack with GPU pods must refer to its deployment file, which defines the pools.",
    remedy="pulumi config set deployment FILE",
    source="https://www.pulumi.com/docs/iac/concepts/config",
)
def check_deployment_is_known(stack: Stack) -> Iterator[Violation]:
    first = next((pod for pod in list_pods(stack) if pod.gpu_count), None)
    if first and not collect_gpu_pools_by_name(stack):
        yield Violation(
            first.urn, f"the pools of {first.name} and other pods with GPUs are unknown without a deployment file"
        )


@stack_rule(
    "gpu-pod-names-its-pool",
    "Every pod with GPUs must select a pool whose VM size is in the catalogue.",
    remedy="select a pool of the deployment file with the label voice-serve/pool",
    source="https://learn.microsoft.com/azure/aks/use-labels",
)
def check_gpu_pods_select_known_pool(stack: Stack) -> Iterator[Violation]:
    pools_by_name = collect_gpu_pools_by_name(stack)
    for pod in list_pods(stack):
        if pools_by_name and pod.gpu_count and pod.pool not in pools_by_name:
            pool_text = f'selects pool "{pod.pool}"' if pod.pool else "selects no pool"
            yield Violation(
                pod.urn,
                f"{pod.name} requests {pod.gpu_count} GPU(s) and {pool_text}; known pools: "
                f"{', '.join(pools_by_name) or 'none'}",
            )


@stack_rule(
    "taints-are-tolerated",
    "Every pod must tolerate the taints of the pool that it selects.",
    remedy="add the toleration, or select another pool",
    source="https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration",
)
def check_taints_are_tolerated(stack: Stack) -> Iterator[Violation]:
    for pod, pool in iter_pods_with_pools(stack):
        for taint in pool.taints:
            if taint.rpartition(":")[2] != "PreferNoSchedule" and not tolerates_taint(pod, taint):
                yield Violation(pod.urn, f"{pod.name} selects pool {pool.name} and does not tolerate its taint {taint}")


@stack_rule(
    "engine-has-its-gpus",
    "Tensor parallelism of an engine must equal its GPUs; the engines of a pod must use all its GPUs.",
    remedy="set --tensor-parallel-size, CUDA_VISIBLE_DEVICES and the pod's nvidia.com/gpu to matching values",
    source="https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html",
)
def check_engines_have_required_gpus(stack: Stack) -> Iterator[Violation]:
    engines_by_gpu: dict[str, list[Engine]] = defaultdict(list)
    for engine in list_engines(stack):
        engines_by_gpu[engine.pod.urn].append(engine)
        width, gpu_request, visible_count = (
            engine.tensor_parallel_size,
            engine.container.gpu_count,
            len(engine.visible_gpus),
        )
        if not gpu_request and not visible_count:
            yield Violation(engine.pod.urn, f"{engine.name} has neither a GPU limit nor CUDA_VISIBLE_DEVICES")
        if gpu_request and gpu_request != width:
            yield Violation(
                engine.pod.urn, f"{engine.name} requests {gpu_request} GPU(s), but its tensor parallelism is {width}"
            )
        if visible_count and visible_count < width:
            yield Violation(
                engine.pod.urn, f"{engine.name} uses GPUs {engine.visible_gpus}, but its tensor parallelism is {width}"
            )
    for urn, members in engines_by_gpu.items():
        pod = members[0].pod
        if {gpu for engine in members for gpu in engine.pod_gpus} != set(range(pod.gpu_count)):
            parts = ", ".join(f"{engine.container.name} {engine.pod_gpus}" for engine in members)
            yield Violation(urn, f"engines of {pod.name} use GPUs {parts}; the pod has {pod.gpu_count}")


@stack_rule(
    "pods-have-a-pool",
    "Pods must select a deployed pool and tolerate its taints; GPU DaemonSets must tolerate all GPU pools' taints.",
    remedy="select a pool of the deployment file, and add the toleration",
    source="https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node",
)
def check_pods_have_pool(stack: Stack) -> Iterator[Violation]:
    pools_by_name = {pool.name: pool for pool in build_cluster(stack).pools}
    for pod in list_pods(stack) if pools_by_name else ():
        if pod.pool and pod.pool not in pools_by_name:
            yield Violation(
                pod.urn, f"{pod.name} selects pool {pod.pool}; the deployed pools are {', '.join(pools_by_name)}"
            )
        is_on_every_node = pod.resource.type.endswith(":DaemonSet") and not pod.pool
        for pool in pools_by_name.values():
            if not (pool.gpu if is_on_every_node else pool.name == pod.pool):
                continue
            for taint in pool.taints:
                if not taint.endswith(":PreferNoSchedule") and not tolerates_taint(pod, taint):
                    yield Violation(pod.urn, f"{pod.name} does not tolerate taint {taint} of pool {pool.name}")
