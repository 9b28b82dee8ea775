"""Checks on what lets callers into an Azure half."""

import math
from collections.abc import Iterator

from blueprint import catalog
from blueprint.capacity import agent_capacity, caller_capacities, load_of, peak_calls, sized_callers
from blueprint.checks.base import Level, Violation, check, place
from blueprint.contract.network import Tier
from blueprint.file.model.azure import Azure
from blueprint.file.model.base import HostCount
from blueprint.file.model.deployment import Deployment, Environment
from blueprint.file.model.edge import NoAuthorizer

NODE_CPUS = 1.0
"""CPUs of a node that Kubernetes and the agents on every node take. ASSUMED."""
AGENT_CPUS = 1.0
"""Of an agent's pod: one process uses one core."""
SIDECAR_CPUS = 0.15
"""Of the sidecars that keep a pod signed in to the state store, and show Prometheus what its program tells."""


@check(
    "load-fits-callers",
    "Each tier that lets callers into an Azure half carries the peak of the load at its most pods.",
    source="blueprint/capacity.py: bounds with their sources (`voice plan` shows them)",
)
def load_fits_callers(deployment: Deployment) -> Iterator[Violation]:
    load, callers, agents = deployment.load, deployment.azure.callers, deployment.azure.agents
    if load is None or callers is None or deployment.aws_half:
        return
    for each, text in sized_callers(callers, agents, load):
        own = load_of(each.tier, load, agents)
        if each.most < (peak := peak_calls(own)):
            yield Violation(
                each.location,
                f"tier {each.tier} carries {each.most:,} calls at the most, the load's peak is {peak:,} "
                f"({own.calls:,} x {load.peak_factor:g})",
                f"set {place(each.location)} to {text}",
            )


def cpu_pods(azure: Azure) -> dict[str, tuple[float, HostCount]]:
    """Return the CPUs of a pod with its sidecars, and the pods, of each tier on the CPU pool; none without callers."""
    callers, agents = azure.callers, azure.agents
    if callers is None:
        return {}
    asked = {
        Tier.GATEWAY: (callers.edge.gateway.cpus, callers.edge.gateway.replicas),
        Tier.VAD: (callers.vad.cpus, callers.vad.replicas),
        Tier.ASR: (callers.asr.cpus, callers.asr.replicas),
        **({Tier.AGENT: (AGENT_CPUS, agents.replicas)} if agents else {}),
    }
    return {tier.value: (cpus + SIDECAR_CPUS, replicas) for tier, (cpus, replicas) in asked.items()}


@check(
    "router-carries-utterances",
    "On Azure utterances reach their model through the cluster's router, which carries no WebSockets.",
    source="https://github.com/vllm-project/production-stack (main_router.py: HTTP routes only)",
    acceptable=False,
)
def router_carries_utterances(deployment: Deployment) -> Iterator[Violation]:
    callers = deployment.azure.callers
    if callers and catalog.models()[callers.asr.model].hears_live:
        yield Violation(
            ("azure", "callers", "asr", "model"),
            f"{callers.asr.model} takes audio as it comes, by a WebSocket, and the cluster's router carries none",
            "name a model that takes whole utterances, such as voxtral-small-24b; on AWS it may be `vllm.model`",
        )


@check(
    "cpu-pool-holds-callers",
    "The CPU pool at its maximum has CPUs for every pod that carries callers, and for one more of each in a rollout.",
    source="https://learn.microsoft.com/azure/aks/cluster-autoscaler-overview; whole CPUs of a pod lie on one node",
)
def cpu_pool_holds_callers(deployment: Deployment) -> Iterator[Violation]:
    callers, pool = deployment.azure.callers, deployment.azure.cpu_pool
    if callers is None or pool is None:
        return
    room, asked = catalog.vm_sizes()[pool.vm_size].vcpus - NODE_CPUS, cpu_pods(deployment.azure)
    at = ("azure", "cpu_pool", "nodes")
    for name, (cpus, _) in asked.items():
        if cpus > room:
            yield Violation(
                at,
                f"a pod of {name} asks for {cpus - SIDECAR_CPUS:g} CPUs; a node of {pool.vm_size} has {room:g} for "
                "pods",
                "take a larger size, or fewer CPUs a pod",
            )
            return
    # What is left over on each node is the largest pod at the most.
    largest = max(cpus for cpus, _ in asked.values())
    need = sum(cpus * (replicas.max + 1) for cpus, replicas in asked.values())
    nodes = math.ceil(need / max(room - largest + 1, 1))
    if nodes > pool.nodes.max:
        yield Violation(
            at,
            f"{pool.nodes.max} nodes of {pool.vm_size} at the most; the pods that carry callers may ask for {need:.0f} "
            f"CPUs, which take {nodes}",
            f"set {place(at)}.max to {nodes}, or lower replicas.max",
        )


@check(
    "callers-are-known",
    "In production, an Azure half knows who opens sessions.",
    source="docs/decisions/16-jwts-at-the-gateway.md",
)
def callers_are_known(deployment: Deployment) -> Iterator[Violation]:
    callers = deployment.azure.callers
    production = deployment.environment is Environment.PRODUCTION
    if callers and production and isinstance(callers.edge.authorizer, NoAuthorizer):
        yield Violation(
            ("azure", "callers", "edge", "authorizer", "kind"),
            "kind none: anybody on the internet could open sessions of a production deployment",
            "choose jwt",
        )


@check(
    "caller-tiers-survive",
    "In production, each tier that lets callers in keeps two pods at least.",
    source="a node image comes weekly, and empties a node at a time",
    level=Level.WARNING,
)
def caller_tiers_survive(deployment: Deployment) -> Iterator[Violation]:
    callers = deployment.azure.callers
    if callers is None or deployment.environment is not Environment.PRODUCTION:
        return
    agents = deployment.azure.agents
    own = (agent_capacity(agents, agents.replicas, ("azure", "agents", "replicas")),) if agents else ()
    for each in (*caller_capacities(callers)[:3], *own):
        if each.units.min < 2:  # noqa: PLR2004  what the check says
            yield Violation(
                each.location, f"{each.name} may be {each.units.min} pod: its loss ends calls", "set min to 2"
            )
