"""Number of hosts, tasks or replicas in each tier for a load."""

import math
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.capacity.bounds import (
    MAX_STORE_UTILIZATION,
    REDIS_MEMORY_GB_BY_SKU,
    STORE_BYTES_PER_CALL,
    USABLE_REDIS_FRACTION,
    calculate_state_store_call_bounds,
    find_limiting_bound,
)
from voice_blueprint.capacity.tiers import (
    TierCapacity,
    build_aws_tier_capacities,
    build_azure_caller_capacities,
    calculate_supported_peak_calls,
)
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.agents import ConversationSettings
from voice_blueprint.file.model.aws import Aws, StateStore
from voice_blueprint.file.model.azure_callers import Callers
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad


def calculate_tier_load(tier: Tier, load: CallLoad, agents: ConversationSettings | None) -> CallLoad:
    """Return the part of a load that reaches a tier.

    Audio that the language model consumes bypasses the transcription tiers.
    """
    if not is_tier_bypassed(tier, agents):
        return load
    return load.model_copy(update={"calls": math.ceil(load.calls * (1 - load.conversation_share))})


def is_tier_bypassed(tier: Tier, agents: ConversationSettings | None) -> bool:
    """Return True if conversations bypass a tier, because the language model receives their audio."""
    return agents is not None and agents.listening == "audio" and tier in {Tier.VAD, Tier.ASR}


def recommend_caller_sizes(
    callers: Callers, agents: ConversationSettings | None, load: CallLoad
) -> Iterator[tuple[TierCapacity, str]]:
    """Yield each caller tier of an Azure section with its recommended settings for a load, as YAML."""
    for each in build_azure_caller_capacities(callers):
        tier_load = calculate_tier_load(each.tier, load, agents)
        if each.tier is Tier.STATE:
            required_gb = (
                calculate_peak_calls(load) / MAX_STORE_UTILIZATION * STORE_BYTES_PER_CALL / 1e9 / USABLE_REDIS_FRACTION
            )
            yield (
                each,
                next((sku for sku, gb in REDIS_MEMORY_GB_BY_SKU.items() if gb >= required_gb), "none: use `cells`"),
            )
            continue
        low, high = (
            each.calculate_required_units(tier_load.calls),
            each.calculate_required_units(calculate_peak_calls(tier_load)),
        )
        yield each, f"{{min: {low}, max: {max(high, low + 1)}}}"


def recommend_sizes(aws: Aws, load: CallLoad) -> Iterator[tuple[TierCapacity, str]]:
    """Yield each tier's capacity with its recommended settings for a load, as YAML: bounds, or the store's node type.

    For a tier that serves no calls, the reason is yielded instead.
    """
    units = calculate_units_by_fleet(aws, load)
    for each in build_aws_tier_capacities(aws):
        if each.tier is Tier.STATE:
            calls = math.ceil(calculate_peak_calls(load) / MAX_STORE_UTILIZATION)
            yield each, _find_cheapest_node_type(aws.state, calls, archives=aws.edge.archive is not None)
        elif each.name in units:
            low, high = (count // each.parts for count in units[each.name])
            yield each, f"{{min: {low}, max: {high}}}"
        else:
            yield each, f"other hosts: {each.limiting_bound.source}"


def calculate_units_by_fleet(aws: Aws, load: CallLoad) -> dict[str, tuple[int, int]]:
    """Return the number of hosts or tasks that a load requires at its mean and at its peak, by fleet.

    The shares of the ASR fleets do not change.

    Tiers that serve no calls are omitted.
    """
    results = [each for each in build_aws_tier_capacities(aws) if each.calls and each.tier is not Tier.STATE]
    asr = sum(each.max_calls for each in results if each.tier is Tier.ASR)
    units = {}
    for each in results:
        share = each.max_calls / asr if each.tier is Tier.ASR else 1.0
        tier_load = calculate_tier_load(each.tier, load, aws.agents)
        low, high = (
            each.calculate_required_units(calls * share) for calls in (tier_load.calls, calculate_peak_calls(tier_load))
        )
        units[each.name] = low, max(high, low + each.parts)
    return units


def _find_cheapest_node_type(state: StateStore, calls: int, *, archives: bool) -> str:
    """Return the cheapest node type with enough capacity, preferably of the same family."""
    family = state.node_type.rpartition(".")[0]
    suitable_types = [
        kind
        for kind in catalog.cache_node_types().values()
        if find_limiting_bound(
            calculate_state_store_call_bounds(state.model_copy(update={"node_type": kind.name}), archives=archives)
        ).calls
        >= calls
    ]
    if not suitable_types:
        return "none in the catalogue: use fewer calls, or `cells`"
    return min(suitable_types, key=lambda kind: (not kind.name.startswith(f"{family}."), kind.memory_gib)).name


def requires_multiple_deployments(deployment: Deployment) -> bool:
    """Return True if the peak exceeds the capacity of every state store, so that several deployments are required."""
    if not deployment.load:
        return False
    if aws := deployment.aws_section:
        state_stores = (aws.state.model_copy(update={"node_type": name}) for name in catalog.cache_node_types())
        max_calls = max(
            find_limiting_bound(calculate_state_store_call_bounds(kind, archives=aws.edge.archive is not None)).calls
            for kind in state_stores
        )
    else:
        max_calls = int(max(REDIS_MEMORY_GB_BY_SKU.values()) * 1e9 * USABLE_REDIS_FRACTION / STORE_BYTES_PER_CALL)
    return calculate_supported_peak_calls(Tier.STATE, max_calls) < calculate_peak_calls(deployment.load)


REQUESTS_PER_SESSION = 3
"""Number of requests to the session API per session: open, read events, close."""


def calculate_peak_requests_per_s(load: CallLoad) -> int:
    """Return the requests per second to the session API at the peak."""
    return math.ceil(calculate_peak_calls(load) / (60 * load.minutes_each) * REQUESTS_PER_SESSION)


def calculate_peak_calls(load: CallLoad) -> int:
    return math.ceil(load.calls * load.peak_factor)
