"""What fits into the memory of a node: the kubelet's reserve, engines, shared memory and KV pools."""

from collections.abc import Mapping
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

FILE_SYSTEM_SHARE = 1.05
"""Size of a volume over what it has to hold: ext4's own blocks, and files that are evicted a little late."""

ROUNDING_GIB = 0.1
"""Containers ask for whole MiB."""

_MB_IN_GIB = 1e6 / 2**30


def kube_reserved_gib(memory_gib: float, max_pods: int = MAX_PODS) -> float:
    """Memory that AKS keeps from pods: the lesser of 20 MB x pods + 50 MB and a quarter of the node, GiB.

    learn.microsoft.com/azure/aks/node-resource-reservations (Kubernetes 1.29 and later).
    """
    return min((20 * max_pods + 50) * _MB_IN_GIB, memory_gib / 4)


def host_parts(gpus: int, kv_pool_gib: float = 0.0, helpers_gib: float = 0.0) -> dict[str, float]:
    """Return what one pod takes of its node's memory, GiB; an engine has one process per GPU.

    Args:
        gpus: GPUs of the pod.
        kv_pool_gib: LMCache's host memory in total, over its servers.
        helpers_gib: What stands beside the engines.
    """
    return {
        "engines": gpus * ENGINE_HOST_GIB_PER_GPU,
        "shared memory": gpus * SHARED_MEMORY_GIB_PER_GPU,
        "LMCache": kv_pool_gib,
        "helpers": helpers_gib,
    }


@dataclass(frozen=True)
class HostBudget:
    """Memory of one node.

    Attributes:
        pods: Pods that it holds.
        parts_gib: What one pod may take, by what takes it.
    """

    vm: VmSize
    pods: int
    parts_gib: Mapping[str, float]

    @property
    def engines_gib(self) -> float:
        return self.pods * self.parts_gib["engines"]

    @property
    def shared_memory_gib(self) -> float:
        return self.pods * self.parts_gib["shared memory"]

    @property
    def kv_pools_gib(self) -> float:
        return self.pods * self.parts_gib.get("LMCache", 0)

    @property
    def free_gib(self) -> float:
        """What is left; negative when it does not fit."""
        asked_gib = kube_reserved_gib(self.vm.memory_gib) + DAEMONS_GIB + self.pods * sum(self.parts_gib.values())
        return self.vm.memory_gib - asked_gib

    def arithmetic(self) -> str:
        """The sum, for people."""
        parts = "".join(f" + {self.pods * gib:g} {name}" for name, gib in self.parts_gib.items() if gib)
        return (
            f"{kube_reserved_gib(self.vm.memory_gib):.1f} kubelet + {DAEMONS_GIB:g} daemons{parts} = "
            f"{self.vm.memory_gib - self.free_gib:.1f} of {self.vm.memory_gib:g} GiB"
        )

    def check(self) -> None:
        """Refuse pods that take more memory than the node has.

        Raises:
            DoesNotFitError: They do.
        """
        if self.free_gib < -ROUNDING_GIB:
            room = max(0.0, (self.free_gib + self.kv_pools_gib) / self.pods)
            raise DoesNotFitError(
                f"{self.pods} pod(s) do not fit the memory of {self.vm.name}: {self.arithmetic()}",
                f"at most {int(room)} GiB of LMCache for each pod" if room else "fewer pods a node, or a larger size",
            )


def size_host(
    vm: VmSize, *, pods: int, gpus_per_pod: int, kv_pool_gib: float = 0.0, helpers_gib: float = 0.0
) -> HostBudget:
    """Add up the memory of a node with so many pods; the other arguments are those of ``host_parts``.

    Raises:
        DoesNotFitError: It is more than the node has.
    """
    budget = HostBudget(vm, pods, host_parts(gpus_per_pod, kv_pool_gib, helpers_gib))
    budget.check()
    return budget
