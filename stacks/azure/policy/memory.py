"""Rules on amounts: quantities that parse, memory and CPUs that add up, shared memory that is large enough."""

from collections.abc import Iterator

from blueprint.azure.topology import kube_reserved_cpus
from blueprint.engines.sizing.host import DAEMONS_GIB, kube_reserved_gib
from stacks.azure.policy.caches import LMCACHE_SIZE, ephemeral_gib
from stacks.azure.policy.engines import engines
from stacks.azure.policy.pods import Pod, bytes_text, pods
from stacks.azure.policy.pools import Pool, placed
from stacks.azure.policy.quantities import QuantityError, amount, gib, quantity
from stacks.azure.policy.rules import Found, Resource, Rule, Scope, Stack
from stacks.azure.policy.values import Value

RESERVATIONS = "https://learn.microsoft.com/azure/aks/node-resource-reservations"
QUANTITY_MAPS = ("limits", "requests", "hard", "default", "defaultRequest", "capacity")
LEAST_SHARED_GIB = 1.0
"""For each GPU of an engine: NCCL and vLLM's message queues. The runtime's default is 64 MiB for all."""
SLACK_GIB = 0.5
"""Rounding of the sums."""


def quantities_parse(stack: Stack) -> Iterator[Found]:
    """Every quantity of a Kubernetes object is one."""
    for resource in stack.resources:
        if resource.type.startswith("kubernetes:"):
            for path, value in _quantities(resource):
                try:
                    quantity(value.text)
                except QuantityError as error:
                    yield Found(resource.urn, f"{path}: {error}")


def requests_below_limits(stack: Stack) -> Iterator[Found]:
    """No container asks for more than it may have."""
    for pod in pods(stack):
        for container in pod.containers:
            resources = container.value["resources"]
            for kind, request in resources["requests"].texts().items():
                limit = resources["limits"][kind].text
                if limit and amount(request) > amount(limit):
                    yield Found(pod.urn, f"{pod.name}/{container.name} asks for {kind} {request}, limit {limit}")
            if not resources["limits"]["memory"].text:
                yield Found(pod.urn, f"{pod.name}/{container.name} has no memory limit: one leak takes the node down")


def node_holds_pods(stack: Stack) -> Iterator[Found]:
    """A node has memory, CPUs and NVMe for as many pods as it has GPUs for."""
    for pod, pool in placed(stack, pods(stack)):
        size, copies = pool.size, _copies(pod, pool)
        lmcache = sum(float(amount(c.option(LMCACHE_SIZE))) for c in pod.running)
        memory = copies * max(pod.memory_gib, lmcache)
        most = size.memory_gib - kube_reserved_gib(size.memory_gib) - DAEMONS_GIB
        if memory > most + SLACK_GIB:
            yield Found(
                pod.urn,
                f"{copies} pod(s) of {pod.name} take {bytes_text(memory)} on {size.name}: {size.memory_gib:g} GiB less "
                f"{kube_reserved_gib(size.memory_gib):.1f} of the kubelet and {DAEMONS_GIB:g} of DaemonSets",
            )
        cpus = size.vcpus - kube_reserved_cpus(size)
        if copies * pod.cpus > cpus:
            yield Found(
                pod.urn,
                f"{copies} pod(s) of {pod.name} ask for {copies * pod.cpus:g} CPUs on {size.name}; {cpus:.1f} are left",
            )
        nvme = copies * ephemeral_gib(pod)
        if nvme > size.nvme_gib:
            yield Found(
                pod.urn, f"{copies} pod(s) of {pod.name} want {nvme:.0f} GiB of NVMe; {size.name} has {size.nvme_gib}"
            )


def shared_memory_is_enough(stack: Stack) -> Iterator[Found]:
    """Every engine has a ``/dev/shm`` of its pod's, large enough for its GPUs."""
    for engine in engines(stack):
        need = LEAST_SHARED_GIB * max(1, engine.tensor_parallel)
        have = engine.pod.shared_memory_gib(engine.container)
        if have is None:
            yield Found(
                engine.pod.urn,
                f"{engine.name} has the runtime's 64 MiB of /dev/shm and needs {need:g} GiB",
            )
        elif have < need:
            yield Found(engine.pod.urn, f"{engine.name} has {bytes_text(have)} of /dev/shm and needs {need:g} GiB")


def volumes_fit_pods(stack: Stack) -> Iterator[Found]:
    """Memory volumes are not larger than the pod's memory, which they count against."""
    for pod in pods(stack):
        for volume in pod.spec["volumes"]:
            source = volume["emptyDir"]
            size = gib(source["sizeLimit"].text)
            if source["medium"].text == "Memory" and size > pod.memory_gib:
                yield Found(
                    pod.urn,
                    f"{pod.name}: volume {volume['name'].text} of {bytes_text(size)} in memory; the pod may have "
                    f"{bytes_text(pod.memory_gib)}",
                )


def _copies(pod: Pod, pool: Pool) -> int:
    return max(1, pool.size.gpu_count // pod.gpus) if pod.gpus else 1


def _quantities(resource: Resource) -> Iterator[tuple[str, Value]]:
    for path, value in resource.props.walk():
        key = path.rpartition(".")[2]
        if key in QUANTITY_MAPS:
            yield from ((f"{path}.{kind}", item) for kind, item in value.items() if not item.unknown)
        elif key == "sizeLimit" and not value.unknown:
            yield path, value


RULES = (
    Rule(
        "quantities-parse",
        "Every amount of memory, CPU or storage is a Kubernetes quantity.",
        "spell it as the API server does: 400Gi, 500m",
        "https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity",
        Scope.RESOURCE,
        quantities_parse,
    ),
    Rule(
        "requests-below-limits",
        "Every container has a memory limit, and asks for no more than its limits.",
        "set limits, at or above the requests",
        "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers",
        Scope.RESOURCE,
        requests_below_limits,
    ),
    Rule(
        "node-holds-pods",
        "A node has memory, CPUs and local disks for as many pods as it has GPUs for.",
        "lower the pods' memory, CPUs or LMCache pools, or take a larger size",
        RESERVATIONS,
        Scope.STACK,
        node_holds_pods,
    ),
    Rule(
        "shared-memory-is-enough",
        "Every engine mounts a /dev/shm in memory with at least 1 GiB for each of its GPUs.",
        "mount an emptyDir with medium: Memory at /dev/shm",
        "https://docs.vllm.ai/en/stable/deployment/k8s.html",
        Scope.RESOURCE,
        shared_memory_is_enough,
    ),
    Rule(
        "memory-volumes-fit-pods",
        "No volume in memory is larger than the memory of its pod.",
        "lower sizeLimit, or raise the containers' limits",
        "https://kubernetes.io/docs/concepts/storage/volumes#emptydir",
        Scope.RESOURCE,
        volumes_fit_pods,
    ),
)
