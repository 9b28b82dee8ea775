"""Rules on where pods land: pools, taints, NUMA nodes, NVLink domains."""

from collections import defaultdict
from collections.abc import Iterator

from stacks.azure.policy.cluster import placed, pools
from stacks.azure.policy.engines import Engine, engines
from stacks.azure.policy.pods import Pod, pods
from stacks.azure.policy.rules import Found, Stack, stack_rule


@stack_rule(
    "deployment-is-known",
    "The configuration of a stack with GPU pods names its deployment file, where pools and agreements stand.",
    remedy="pulumi config set deployment FILE",
    source="https://www.pulumi.com/docs/iac/concepts/config",
)
def deployment_is_known(stack: Stack) -> Iterator[Found]:
    first = next((pod for pod in pods(stack) if pod.gpus), None)
    if first and not pools(stack):
        yield Found(first.urn, f"nothing says which nodes {first.name} and the others with GPUs land on, or what for")


@stack_rule(
    "gpu-pod-names-its-pool",
    "Every pod with GPUs selects a pool whose VM size is known.",
    remedy="select a pool of the deployment file by the label voice-serve/pool",
    source="https://learn.microsoft.com/azure/aks/use-labels",
)
def pool_is_known(stack: Stack) -> Iterator[Found]:
    known = pools(stack)
    for pod in pods(stack):
        if known and pod.gpus and pod.pool not in known:
            named = f'selects pool "{pod.pool}"' if pod.pool else "selects no pool"
            yield Found(
                pod.urn, f"{pod.name} asks for {pod.gpus} GPU(s) and {named}; known pools: {', '.join(known) or 'none'}"
            )


@stack_rule(
    "taints-are-tolerated",
    "Every pod tolerates the taints of the pool that it selects.",
    remedy="add the toleration, or select another pool",
    source="https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration",
)
def taints_are_tolerated(stack: Stack) -> Iterator[Found]:
    for pod, pool in placed(stack):
        for taint in pool.taints:
            if taint.rpartition(":")[2] != "PreferNoSchedule" and not _tolerates(pod, taint):
                yield Found(pod.urn, f"{pod.name} selects pool {pool.name} and does not tolerate its taint {taint}")


@stack_rule(
    "engine-has-its-gpus",
    "An engine's tensor parallelism is the number of its GPUs, and the engines of a pod take all GPUs of the pod.",
    remedy="set --tensor-parallel-size, CUDA_VISIBLE_DEVICES and the pod's nvidia.com/gpu to agree",
    source="https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html",
)
def engine_has_its_gpus(stack: Stack) -> Iterator[Found]:
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
        if {gpu for engine in members for gpu in engine.pod_gpus} != set(range(pod.gpus)):
            parts = ", ".join(f"{engine.container.name} {engine.pod_gpus}" for engine in members)
            yield Found(urn, f"engines of {pod.name} take GPUs {parts}; the pod has {pod.gpus}")


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
