"""Checks on the caller tiers in an Azure section."""

from collections.abc import Iterator

from voice_blueprint.capacity.bounds import MAX_STORE_UTILIZATION
from voice_blueprint.capacity.cpu_pods import (
    SIDECAR_CPUS,
    SIDECAR_MEMORY_GIB,
    build_cpu_pods_by_tier,
    calculate_allocatable_cpus,
    calculate_allocatable_memory_gib,
    calculate_required_cpu_nodes,
)
from voice_blueprint.capacity.load import calculate_peak_calls, calculate_tier_load, recommend_caller_sizes
from voice_blueprint.capacity.tiers import (
    build_agent_capacity,
    build_azure_caller_capacities,
    calculate_supported_peak_calls,
)
from voice_blueprint.checks.azure.sizing import RESERVATIONS_DOCS
from voice_blueprint.checks.base import Severity, Violation, deployment_check, format_location
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.file.model.edge import NoAuthorizer


@deployment_check(
    "load-fits-callers",
    "Each tier that serves callers on Azure has capacity for the peak of the load.",
    source="voice_blueprint/capacity: bounds with their sources (`voice plan` shows them)",
)
def check_load_fits_callers(deployment: Deployment) -> Iterator[Violation]:
    load, callers, agents = deployment.load, deployment.azure.callers, deployment.azure.agents
    if load is None or callers is None or deployment.aws_section:
        return
    for each, text in recommend_caller_sizes(callers, agents, load):
        tier_load = calculate_tier_load(each.tier, load, agents)
        if (max_calls := calculate_supported_peak_calls(each.tier, each.max_calls)) < (
            peak := calculate_peak_calls(tier_load)
        ):
            suffix = f", {MAX_STORE_UTILIZATION:.0%} of its memory" if each.tier is Tier.STATE else ""
            yield Violation(
                each.location,
                f"tier {each.tier} supports at most {max_calls:,} calls{suffix}, but the load's peak is {peak:,} "
                f"({tier_load.calls:,} x {load.peak_factor:g})",
                f"set {format_location(each.location)} to {text}",
            )


@deployment_check(
    "cpu-pool-holds-callers",
    "The CPU pool at its maximum has CPUs and memory for every pod that serves callers, and for one more of each "
    "during a rollout.",
    source=f"https://learn.microsoft.com/azure/aks/cluster-autoscaler-overview; {RESERVATIONS_DOCS}; a pod's CPUs and "
    "memory are on one node",
)
def check_cpu_pool_holds_callers(deployment: Deployment) -> Iterator[Violation]:
    callers, pool = deployment.azure.callers, deployment.azure.cpu_pool
    if callers is None or pool is None:
        return
    max_cpus, max_gib = calculate_allocatable_cpus(pool.vm_size), calculate_allocatable_memory_gib(pool.vm_size)
    pods = build_cpu_pods_by_tier(callers, deployment.azure.agents)
    at = ("azure", "cpu_pool", "nodes")
    for name, pod in pods.items():
        if pod.cpus > max_cpus:
            yield Violation(
                at,
                f"a pod of {name} requests {pod.cpus - SIDECAR_CPUS:g} CPUs, but a node of {pool.vm_size} has "
                f"{max_cpus:g} for pods",
                "use a larger size, or fewer CPUs per pod",
            )
            return
        if pod.memory_gib > max_gib:
            max_pod_gib = max_gib - SIDECAR_MEMORY_GIB
            yield Violation(
                at,
                f"a pod of {name} requests {pod.memory_gib - SIDECAR_MEMORY_GIB:g} GiB of memory, but a node of "
                f"{pool.vm_size} has {max_pod_gib:.1f} GiB for a pod without its sidecars",
                f"use a larger size, or at most {int(max_pod_gib)} GiB per pod",
            )
            return
    counts = {name: pod.replicas.max + 1 for name, pod in pods.items()}
    nodes = calculate_required_cpu_nodes(pool.vm_size, pods, counts)
    if nodes > pool.nodes.max:
        required_cpus, required_gib = (
            sum(pod.cpus * counts[name] for name, pod in pods.items()),
            sum(pod.memory_gib * counts[name] for name, pod in pods.items()),
        )
        yield Violation(
            at,
            f"the maximum is {pool.nodes.max} nodes of {pool.vm_size}, but the pods that serve callers can request "
            f"{required_cpus:.0f} CPUs and {required_gib:.0f} GiB of memory, which need {nodes} nodes",
            f"set {format_location(at)}.max to {nodes}, or lower replicas.max",
        )


@deployment_check(
    "callers-are-known",
    "In production, an Azure section authenticates callers.",
    source="docs/decisions/16-jwts-at-the-gateway.md",
)
def check_callers_are_authenticated(deployment: Deployment) -> Iterator[Violation]:
    callers = deployment.azure.callers
    production = deployment.environment is Environment.PRODUCTION
    if callers and production and isinstance(callers.edge.authorizer, NoAuthorizer):
        yield Violation(
            ("azure", "callers", "edge", "authorizer", "kind"),
            "kind none: anyone on the internet could open sessions of a production deployment",
            "choose jwt",
        )


@deployment_check(
    "caller-tiers-survive",
    "In production, each tier that admits callers has at least two pods.",
    source="node images are released weekly, and an upgrade drains one node at a time",
    level=Severity.WARNING,
)
def check_caller_tiers_are_redundant(deployment: Deployment) -> Iterator[Violation]:
    callers = deployment.azure.callers
    if callers is None or deployment.environment is not Environment.PRODUCTION:
        return
    agents = deployment.azure.agents
    tier_load = (build_agent_capacity(agents, agents.replicas, ("azure", "agents", "replicas")),) if agents else ()
    for each in (*build_azure_caller_capacities(callers)[:3], *tier_load):
        if each.units.min < 2:  # noqa: PLR2004  the limit in the check's description
            yield Violation(
                each.location,
                f"{each.name} has a minimum of {each.units.min} pod, whose loss would end calls",
                "set min to 2",
            )
