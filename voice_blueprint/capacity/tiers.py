"""Calls for each tier: the minimum of its limits, times its units."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from voice_blueprint.capacity.bounds import (
    MAX_STORE_UTILIZATION,
    REDIS_MEMORY_GB_BY_SKU,
    STORE_BYTES_PER_CALL,
    USABLE_REDIS_FRACTION,
    CallBound,
    CallBounds,
    calculate_asr_host_call_bounds,
    calculate_gateway_pod_call_bounds,
    calculate_gateway_task_call_bounds,
    calculate_state_store_call_bounds,
    calculate_vad_host_call_bounds,
    calculate_vad_pod_call_bounds,
    find_limiting_bound,
)
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.agents import ConversationSettings
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure_callers import Callers
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location

HOST_LOAD_STANDARD_DEVIATIONS = 5.0
"""Number of standard deviations by which random assignment can raise the load of one of many hosts above the mean. The
standard deviation is the square root of the mean; larger deviations are rare, but with 100,000 callers, some may still
reach a full host."""

TARGET_UTILIZATION = 0.7
"""Utilization for which a tier is sized; the remainder is the headroom for scaling. ASSUMED."""


@dataclass(frozen=True)
class TierCapacity:
    """Capacity of a fleet, the gateway service or the state store.

    Attributes:
        name: Name of the fleet, or of the tier.
        units: Minimum and maximum number of hosts or tasks; the store counts as one.
        location: Location in the file of the number of units, or of the size of the store.
        parts: Number of groups over which the units are evenly distributed; the bounds in the file apply to each group.
    """

    tier: Tier
    name: str
    units: HostCount
    bounds: CallBounds
    location: Location
    parts: int = 1

    @property
    def limiting_bound(self) -> CallBound:
        """The bound that determines the calls per unit."""
        return find_limiting_bound(self.bounds)

    @property
    def calls(self) -> int:
        """Calls per unit."""
        return self.limiting_bound.calls

    @property
    def min_calls(self) -> int:
        """Calls at the minimum number of units."""
        return self.units.min * self.calls

    @property
    def max_calls(self) -> int:
        """Calls at the maximum number of units."""
        return self.units.max * self.calls

    def calculate_required_units(self, calls: float) -> int:
        """Return the number of units that serve these calls at a utilization of ``TARGET_UTILIZATION``.

        The units are evenly distributed over the parts.

        Raises:
            ValueError: A unit serves no calls.
        """
        if not self.calls:
            raise ValueError(f"{self.name} supports no calls: {self.limiting_bound.source}")
        return self.parts * max(1, math.ceil(calls / (self.calls * TARGET_UTILIZATION * self.parts)))


def build_aws_tier_capacities(aws: Aws) -> tuple[TierCapacity, ...]:
    """Return the capacities of the tiers in an AWS section, in the order of a call's path.

    The order is gateway, VAD, each ASR fleet, state store.
    """
    zones, per_zone, tasks = len(aws.availability_zones), aws.vad.hosts_per_zone, aws.edge.gateway.tasks
    vad = HostCount(min=per_zone.min * zones, max=per_zone.max * zones)
    gateway = HostCount(min=tasks.min, max=tasks.max)
    return (
        TierCapacity(
            Tier.GATEWAY,
            "gateway",
            gateway,
            calculate_gateway_task_call_bounds(aws.edge.gateway),
            ("aws", "edge", "gateway", "tasks"),
        ),
        TierCapacity(
            Tier.VAD, "vad", vad, calculate_vad_host_call_bounds(aws.vad), ("aws", "vad", "hosts_per_zone"), zones
        ),
        *(
            TierCapacity(
                Tier.ASR, fleet.name, fleet.hosts, calculate_asr_host_call_bounds(fleet), ("aws", "asr", index, "hosts")
            )
            for index, fleet in enumerate(aws.asr)
        ),
        TierCapacity(
            Tier.STATE,
            "state",
            HostCount(min=1, max=1),
            calculate_state_store_call_bounds(aws.state, archives=aws.edge.archive is not None),
            ("aws", "state", "node_type"),
        ),
    )


def build_azure_caller_capacities(callers: Callers) -> tuple[TierCapacity, ...]:
    """Return the capacities of the gateway, VAD, ASR and state tiers in an Azure section.

    The services that the ASR tier calls are not included.
    """
    location = ("azure", "callers")
    gateway, vad, asr = callers.edge.gateway, callers.vad, callers.asr
    slots = CallBound("slots", asr.sessions, "assumed", "callers.asr.sessions of the deployment file")
    memory = int(REDIS_MEMORY_GB_BY_SKU[callers.state.sku] * 1e9 * USABLE_REDIS_FRACTION / STORE_BYTES_PER_CALL)
    memory_bound = CallBound(
        "memory", memory, "assumed", f"{USABLE_REDIS_FRACTION:.0%} of {REDIS_MEMORY_GB_BY_SKU[callers.state.sku]:g} GB"
    )
    return (
        TierCapacity(
            Tier.GATEWAY,
            "gateway",
            gateway.replicas,
            calculate_gateway_pod_call_bounds(gateway),
            (*location, "edge", "gateway", "replicas"),
        ),
        TierCapacity(Tier.VAD, "vad", vad.replicas, calculate_vad_pod_call_bounds(vad), (*location, "vad", "replicas")),
        TierCapacity(Tier.ASR, "asr", asr.replicas, (slots,), (*location, "asr", "replicas")),
        TierCapacity(Tier.STATE, "state", HostCount(min=1, max=1), (memory_bound,), (*location, "state", "sku")),
    )


def build_caller_tier_capacities(deployment: Deployment) -> tuple[TierCapacity, ...]:
    """Return the capacities of the tiers that serve callers.

    If a deployment has both sections, the capacities are those of AWS. Without callers, there are no capacities.
    """
    if aws := deployment.aws_section:
        return build_aws_tier_capacities(aws)
    callers = deployment.azure.callers
    return build_azure_caller_capacities(callers) if callers else ()


def calculate_max_mean_calls(slots: int) -> float:
    """Return the mean number of randomly assigned calls per host at which a host is hardly ever full.

    It is the largest mean for which mean + HOST_LOAD_STANDARD_DEVIATIONS * sqrt(mean) does not exceed the slots of a
    host.
    """
    return ((math.sqrt(HOST_LOAD_STANDARD_DEVIATIONS**2 + 4 * slots) - HOST_LOAD_STANDARD_DEVIATIONS) / 2) ** 2


def build_agent_capacity(agents: ConversationSettings, units: HostCount, location: Location) -> TierCapacity:
    """Return the capacity of the agents for a number of tasks or replicas."""
    return TierCapacity(Tier.AGENT, "agent", units, (build_agent_bound(agents),), location)


def build_agent_bound(agents: ConversationSettings) -> CallBound:
    """Return the limit on the conversations in an agent process, which the file configures."""
    return CallBound("slots", agents.conversations, "assumed", "agents.conversations of the deployment file")


def calculate_supported_peak_calls(tier: Tier, max_calls: int) -> int:
    """Return the number of peak calls for which a tier with this maximum is sized."""
    return int(max_calls * MAX_STORE_UTILIZATION) if tier is Tier.STATE else max_calls


def sum_calls_by_tier(capacities: Iterable[TierCapacity]) -> dict[Tier, tuple[int, int]]:
    """Return the calls for each tier at the minimum and the maximum number of units."""
    ranges: dict[Tier, tuple[int, int]] = {}
    for each in capacities:
        low, max_calls = ranges.get(each.tier, (0, 0))
        ranges[each.tier] = low + each.min_calls, max_calls + each.max_calls
    return ranges
