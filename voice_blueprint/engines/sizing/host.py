"""Memory of a node: kernel, kubelet reserve, engines, shared memory and KV pools."""

from collections.abc import Mapping
from dataclasses import dataclass

from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.engines.sizing.result import DoesNotFitError

MAX_PODS_PER_NODE = 50
"""Maximum number of pods on a node of the GPU and CPU pools. A node runs a few engines and a dozen agents; AKS reserves
memory for every pod that the node could run."""

ENGINE_HOST_GIB_PER_GPU = 16.0
"""Host memory for one engine process per GPU: Python, CUDA context, pinned buffers, audio. ASSUMED, not measured."""

SHARED_MEMORY_GIB_PER_GPU = 4.0
"""Shared memory (``emptyDir`` of medium Memory) per GPU of a pod, for NCCL and the engines' message queues; vLLM-Omni
also transfers audio through it. ASSUMED."""

DAEMONSET_MEMORY_GIB = 4.0
"""Memory for a node's DaemonSets: network, metrics, device plugin, log agent. ASSUMED."""

VOLUME_OVERHEAD_FACTOR = 1.05
"""Ratio of a volume's size to its content. ext4 uses blocks for metadata, and files are evicted with a delay."""

ROUNDING_TOLERANCE_GIB = 0.1
"""Memory that rounding may add, GiB, since containers request whole MiB."""

EVICTION_THRESHOLD_GIB = 100 / 1024
"""Memory for the kubelet's eviction threshold, GiB, which pods cannot request (source:
``calculate_kube_reserved_gib``)."""

_GIB_PER_MB = 1e6 / 2**30
_KERNEL_FRACTION, _KERNEL_GIB = 0.016, 0.2


def calculate_kernel_reserved_gib(memory_gib: float) -> float:
    """Return the memory of a VM size that Linux does not report as ``MemTotal``, GiB: page structures, crash kernel.

    Published: 866.1 of the 880 GiB of NC96ads_A100_v4 (MLPerf inference, Azure's system description), 27.4 of the 28 of
    NC4as_T4_v3 (github.com/carverauto/threadr/issues/68), 15.6 of 16 (github.com/Azure/AKS/issues/1216), 6.8 of 7
    (chunliu.me/2020/06/11/node-allocatable-in-aks).
    """
    return _KERNEL_FRACTION * memory_gib + _KERNEL_GIB


def calculate_kube_reserved_gib(memory_gib: float, max_pods: int = MAX_PODS_PER_NODE) -> float:
    """Return the memory that AKS reserves, GiB: the lesser of 20 MB x pods + 50 MB and a quarter of the node.

    Source: learn.microsoft.com/azure/aks/node-resource-reservations (Kubernetes 1.29 and later).
    """
    return min((20 * max_pods + 50) * _GIB_PER_MB, memory_gib / 4)


def calculate_allocatable_gib(vm: VmSize) -> float:
    """Return the memory on a node that its pods can request, GiB."""
    return vm.memory_gib - _calculate_system_reserved_gib(vm) - DAEMONSET_MEMORY_GIB


def _calculate_system_reserved_gib(vm: VmSize) -> float:
    """Return the memory on a node that the kernel and the kubelet reserve, GiB."""
    return (
        calculate_kernel_reserved_gib(vm.memory_gib)
        + calculate_kube_reserved_gib(vm.memory_gib)
        + EVICTION_THRESHOLD_GIB
    )


def calculate_pod_memory_by_purpose(gpus: int, kv_pool_gib: float = 0.0, helpers_gib: float = 0.0) -> dict[str, float]:
    """Return the memory of a pod by purpose, GiB. An engine has one process per GPU.

    Args:
        gpus: GPUs of the pod.
        kv_pool_gib: Host memory of LMCache, over all servers.
        helpers_gib: Memory of the helper containers.
    """
    return {
        "engines": gpus * ENGINE_HOST_GIB_PER_GPU,
        "shared memory": gpus * SHARED_MEMORY_GIB_PER_GPU,
        "LMCache": kv_pool_gib,
        "helpers": helpers_gib,
    }


@dataclass(frozen=True)
class HostMemoryBudget:
    """Memory of one node.

    Attributes:
        pods: Number of pods.
        parts_gib: Memory limits of one pod, by purpose.
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
        """Free memory; negative if the pods do not fit."""
        return calculate_allocatable_gib(self.vm) - self.pods * sum(self.parts_gib.values())

    def format_arithmetic(self) -> str:
        """Return the calculation in readable form."""
        parts = "".join(f" + {self.pods * gib:g} {name}" for name, gib in self.parts_gib.items() if gib)
        return (
            f"{_calculate_system_reserved_gib(self.vm):.1f} kernel and kubelet + {DAEMONSET_MEMORY_GIB:g} "
            f"daemons{parts} = "
            f"{self.vm.memory_gib - self.free_gib:.1f} of {self.vm.memory_gib:g} GiB"
        )

    def validate_memory(self) -> None:
        """Reject pods that need more memory than the node has.

        Raises:
            DoesNotFitError: The pods do not fit.
        """
        if self.free_gib < -ROUNDING_TOLERANCE_GIB:
            pod_gib = max(0.0, (self.free_gib + self.kv_pools_gib) / self.pods)
            raise DoesNotFitError(
                f"{self.pods} pod(s) do not fit the memory of {self.vm.name}: {self.format_arithmetic()}",
                f"at most {int(pod_gib)} GiB of LMCache for each pod"
                if pod_gib
                else "fewer pods a node, or a larger size",
            )


def calculate_host_memory_budget(
    vm: VmSize, *, pods: int, gpus_per_pod: int, kv_pool_gib: float = 0.0, helpers_gib: float = 0.0
) -> HostMemoryBudget:
    """Return the memory budget of a node with a number of pods, after checking that they fit.

    Raises:
        DoesNotFitError: The pods need more than the node has.
    """
    budget = HostMemoryBudget(vm, pods, calculate_pod_memory_by_purpose(gpus_per_pod, kv_pool_gib, helpers_gib))
    budget.validate_memory()
    return budget
