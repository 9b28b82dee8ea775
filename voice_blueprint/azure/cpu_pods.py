"""CPUs of the pods that serve callers, and the required number of nodes."""

import math

from voice_blueprint import catalog
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.agents import AgentPods
from voice_blueprint.file.model.azure_callers import Callers
from voice_blueprint.file.model.base import HostCount

RESERVED_NODE_CPUS = 1.0
"""Number of CPUs of a node that Kubernetes and the DaemonSets use. ASSUMED."""
AGENT_CPUS = 1.0
"""Number of CPUs of an agent's pod, whose process uses one core."""
SIDECAR_CPUS = 0.15
"""CPUs of the sidecars of a pod, which sign in to the state store and export the metrics of its program to
Prometheus."""


def cpu_pods(callers: Callers | None, agents: AgentPods | None) -> dict[str, tuple[float, HostCount]]:
    """Return the CPUs per pod, including sidecars, and the number of pods for each tier on the CPU pool.

    Without callers, the pool has no pods.
    """
    if callers is None:
        return {}
    tier_pods = {
        Tier.GATEWAY: (callers.edge.gateway.cpus, callers.edge.gateway.replicas),
        Tier.VAD: (callers.vad.cpus, callers.vad.replicas),
        Tier.ASR: (callers.asr.cpus, callers.asr.replicas),
        **({Tier.AGENT: (AGENT_CPUS, agents.replicas)} if agents else {}),
    }
    return {tier.value: (cpus + SIDECAR_CPUS, replicas) for tier, (cpus, replicas) in tier_pods.items()}


def required_cpu_nodes(vm_size: str, pods: list[float], required_cpus: float) -> int:
    """Return the number of nodes of a size for pods that request ``required_cpus`` CPUs in total.

    CPUs of each node may remain unused, at most as many as the largest pod requests.
    """
    node_cpus = catalog.vm_sizes()[vm_size].vcpus - RESERVED_NODE_CPUS
    return math.ceil(required_cpus / max(node_cpus - max(pods) + 1, 1))
