"""What fits into the memory of a node: the kubelet's reserve, engines, shared memory and KV pools."""

from dataclasses import dataclass

from blueprint.catalog.azure import VmSize
from blueprint.engines.sizing.result import DoesNotFitError

MAX_PODS = 250
"""Pods of one node under Azure CNI overlay; AKS reserves memory by it."""

ENGINE_HOST_GIB_PER_GPU = 16.0
"""Host memory of one engine process per GPU: Python, CUDA context, pinned buffers, audio. ASSUMED, not measured."""

SHARED_MEMORY_GIB_PER_GPU = 4.0
"""Shared memory (``emptyDir`` of medium Memory) per GPU of a pod: NCCL and the engines' message queues; vLLM-Omni
passes audio in it. ASSUMED."""

DAEMONS_GIB = 4.0
"""DaemonSets of a node: network, metrics, device plugin, log agent. ASSUMED."""

_MB_IN_GIB = 1e6 / 2**30


def kube_reserved_gib(memory_gib: float, max_pods: int = MAX_PODS) -> float:
    """Memory that AKS keeps from pods: the lesser of 20 MB x pods + 50 MB and a quarter of the node, GiB.

    learn.microsoft.com/azure/aks/node-resource-reservations (Kubernetes 1.29 and later).
    """
    return min((20 * max_pods + 50) * _MB_IN_GIB, memory_gib / 4)


@dataclass(frozen=True)
class HostBudget:
    """Memory of one node, GiB."""

    node_gib: float
    reserved_gib: float
    daemons_gib: float
    engines_gib: float
    shared_memory_gib: float
    kv_pools_gib: float

    @property
    def used_gib(self) -> float:
        """Everything that is asked for."""
        return self.reserved_gib + self.daemons_gib + self.engines_gib + self.shared_memory_gib + self.kv_pools_gib

    @property
    def free_gib(self) -> float:
        """What is left; negative when it does not fit."""
        return self.node_gib - self.used_gib

    def arithmetic(self) -> str:
        """The sum, for people."""
        return (
            f"{self.reserved_gib:.1f} kubelet + {self.daemons_gib:g} daemons + {self.engines_gib:g} engines + "
            f"{self.shared_memory_gib:g} shared memory + {self.kv_pools_gib:g} LMCache = {self.used_gib:.1f} of "
            f"{self.node_gib:g} GiB"
        )


def size_host(vm: VmSize, *, pods: int, gpus_per_pod: int, kv_pool_gib: float = 0.0) -> HostBudget:
    """Add up the memory of a node.

    Args:
        vm: The node.
        pods: Pods of the service on it.
        gpus_per_pod: GPUs of each; an engine has one process per GPU.
        kv_pool_gib: LMCache's host memory of each pod in total, over its servers.

    Raises:
        DoesNotFitError: It is more than the node has.
    """
    gpus = pods * gpus_per_pod
    budget = HostBudget(
        node_gib=vm.memory_gib,
        reserved_gib=kube_reserved_gib(vm.memory_gib),
        daemons_gib=DAEMONS_GIB,
        engines_gib=gpus * ENGINE_HOST_GIB_PER_GPU,
        shared_memory_gib=gpus * SHARED_MEMORY_GIB_PER_GPU,
        kv_pools_gib=pods * kv_pool_gib,
    )
    if budget.free_gib < 0:
        room = max(0.0, (budget.free_gib + budget.kv_pools_gib) / pods)
        raise DoesNotFitError(
            f"{pods} pod(s) of {gpus_per_pod} GPU(s) do not fit the memory of {vm.name}: {budget.arithmetic()}",
            f"at most {int(room)} GiB of LMCache for each pod",
        )
    return budget
