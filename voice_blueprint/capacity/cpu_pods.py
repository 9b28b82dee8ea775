"""CPUs and memory of the pods that serve callers, and the required number of nodes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.sizing.host import calculate_allocatable_gib
from voice_blueprint.file.model.agents import AgentPods
from voice_blueprint.file.model.azure_callers import Callers
from voice_blueprint.file.model.base import HostCount

RESERVED_NODE_CPUS = 1.0
"""Number of CPUs on a node that Kubernetes and the DaemonSets use. ASSUMED."""
AGENT_CPUS = 1.0
"""Number of CPUs for an agent's pod, whose process uses one core."""
AGENT_POD_MEMORY_GIB = 1
"""Memory for an agent's pod, GiB. The process uses 140 MiB, and 14 MiB per conversation (voice models are shared)."""
SIDECAR_CPUS = 0.15
"""CPUs for a pod's sidecars, which sign in to the state store and export the program's metrics to Prometheus."""
SIDECAR_MEMORY_GIB = 0.375
"""Memory for these sidecars, GiB."""


@dataclass(frozen=True)
class CpuPodGroup:
    """Resource requests of a pod on the CPU pool, including its sidecars, and the number of these pods."""

    cpus: float
    memory_gib: float
    replicas: HostCount

    def calculate_occupied_cpus(self, vm_size: str) -> float:
        """Return the CPUs on a node that the pod occupies.

        If the pod requests a larger share of the node's memory than of its CPUs, the result is that share of the CPUs.
        """
        return max(
            self.cpus, self.memory_gib / calculate_allocatable_memory_gib(vm_size) * calculate_allocatable_cpus(vm_size)
        )


def calculate_allocatable_cpus(vm_size: str) -> float:
    """Return the CPUs on a node that its pods can request."""
    return catalog.vm_sizes()[vm_size].vcpus - RESERVED_NODE_CPUS


def calculate_allocatable_memory_gib(vm_size: str) -> float:
    """Return the memory on a node that its pods can request, GiB."""
    return calculate_allocatable_gib(catalog.vm_sizes()[vm_size])


def build_cpu_pods_by_tier(callers: Callers | None, agents: AgentPods | None) -> dict[str, CpuPodGroup]:
    """Return the pods in each tier on the CPU pool.

    Without callers, the pool has no pods.
    """
    if callers is None:
        return {}
    gateway, vad, asr = callers.edge.gateway, callers.vad, callers.asr
    tier_pods = {
        Tier.GATEWAY: (gateway.cpus, gateway.memory_gib, gateway.replicas),
        Tier.VAD: (vad.cpus, vad.memory_gib, vad.replicas),
        Tier.ASR: (asr.cpus, asr.memory_gib, asr.replicas),
        **({Tier.AGENT: (AGENT_CPUS, AGENT_POD_MEMORY_GIB, agents.replicas)} if agents else {}),
    }
    return {
        tier.value: CpuPodGroup(cpus + SIDECAR_CPUS, memory_gib + SIDECAR_MEMORY_GIB, replicas)
        for tier, (cpus, memory_gib, replicas) in tier_pods.items()
    }


def calculate_required_cpu_nodes(vm_size: str, pods: Mapping[str, CpuPodGroup], counts: Mapping[str, int]) -> int:
    """Return the number of nodes of one size for a number of pods in each tier.

    On each node, as many CPUs as the largest pod requests may remain unused. The result is at least the number of nodes
    required if each node runs as many pods of a single tier as its CPUs and memory allow.
    """
    cpus = calculate_allocatable_cpus(vm_size)
    required_cpus = sum(pod.cpus * counts[tier] for tier, pod in pods.items())
    nodes_by_cpus = required_cpus / max(cpus - max(pod.cpus for pod in pods.values()) + 1, 1)
    nodes_by_tier = sum(
        counts[tier] / max(cpus // pod.calculate_occupied_cpus(vm_size), 1) for tier, pod in pods.items()
    )
    return math.ceil(max(nodes_by_cpus, nodes_by_tier))
