"""Number of hosts, tasks or replicas of each tier for a load."""

import math
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.capacity.bounds import (
    MAX_STORE_FILL,
    REDIS_GB,
    REDIS_SHARE,
    STORE_BYTES_PER_CALL,
    limiting_bound,
    store_bounds,
)
from voice_blueprint.capacity.tiers import Capacity, caller_capacities, capacities, peak_calls_for
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.agents import AgentRules
from voice_blueprint.file.model.aws import Aws, StateStore
from voice_blueprint.file.model.azure_callers import Callers
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad


def load_on_tier(tier: Tier, load: CallLoad, agents: AgentRules | None) -> CallLoad:
    """Return the part of a load that reaches a tier.

    Audio that the language model consumes bypasses the transcription tiers.
    """
    if not is_bypassed_by(tier, agents):
        return load
    return load.model_copy(update={"calls": math.ceil(load.calls * (1 - load.conversation_share))})


def is_bypassed_by(tier: Tier, agents: AgentRules | None) -> bool:
    """Return True if conversations bypass a tier, because the language model receives their audio."""
    return agents is not None and agents.listening == "audio" and tier in {Tier.VAD, Tier.ASR}


def recommended_caller_sizes(
    callers: Callers, agents: AgentRules | None, load: CallLoad
) -> Iterator[tuple[Capacity, str]]:
    """Yield each caller tier of an Azure section with its recommended settings for a load, as YAML."""
    for each in caller_capacities(callers):
        tier_load = load_on_tier(each.tier, load, agents)
        if each.tier is Tier.STATE:
            required_gb = peak_calls(load) / MAX_STORE_FILL * STORE_BYTES_PER_CALL / 1e9 / REDIS_SHARE
            yield each, next((sku for sku, gb in REDIS_GB.items() if gb >= required_gb), "none: use `cells`")
            continue
        low, high = each.units_for(tier_load.calls), each.units_for(peak_calls(tier_load))
        yield each, f"{{min: {low}, max: {max(high, low + 1)}}}"


def recommended_sizes(aws: Aws, load: CallLoad) -> Iterator[tuple[Capacity, str]]:
    """Yield each tier's capacity with its recommended settings for a load, as YAML: bounds, or the store's node type.

    For a tier that serves no calls, the reason is yielded instead.
    """
    units = units_by_fleet(aws, load)
    for each in capacities(aws):
        if each.tier is Tier.STATE:
            calls = math.ceil(peak_calls(load) / MAX_STORE_FILL)
            yield each, _cheapest_node_type(aws.state, calls, archives=aws.edge.archive is not None)
        elif each.name in units:
            low, high = (count // each.parts for count in units[each.name])
            yield each, f"{{min: {low}, max: {high}}}"
        else:
            yield each, f"other hosts: {each.limiting_bound.source}"


def units_by_fleet(aws: Aws, load: CallLoad) -> dict[str, tuple[int, int]]:
    """Return the number of hosts or tasks that a load requires at its mean and at its peak, by fleet.

    The shares of the ASR fleets are kept.

    Tiers that serve no calls are omitted.
    """
    results = [each for each in capacities(aws) if each.calls and each.tier is not Tier.STATE]
    asr = sum(each.max_calls for each in results if each.tier is Tier.ASR)
    units = {}
    for each in results:
        share = each.max_calls / asr if each.tier is Tier.ASR else 1.0
        tier_load = load_on_tier(each.tier, load, aws.agents)
        low, high = (each.units_for(calls * share) for calls in (tier_load.calls, peak_calls(tier_load)))
        units[each.name] = low, max(high, low + each.parts)
    return units


def _cheapest_node_type(state: StateStore, calls: int, *, archives: bool) -> str:
    """Return the cheapest node type with enough capacity, preferably of the same family."""
    family = state.node_type.rpartition(".")[0]
    suitable_types = [
        kind
        for kind in catalog.cache_node_types().values()
        if limiting_bound(store_bounds(state.model_copy(update={"node_type": kind.name}), archives=archives)).calls
        >= calls
    ]
    if not suitable_types:
        return "none in the catalogue: use fewer calls, or `cells`"
    return min(suitable_types, key=lambda kind: (not kind.name.startswith(f"{family}."), kind.memory_gib)).name


def exceeds_one_deployment(deployment: Deployment) -> bool:
    """Return True if the peak exceeds the capacity of every state store, and requires several deployments."""
    if not deployment.load:
        return False
    if aws := deployment.aws_section:
        state_stores = (aws.state.model_copy(update={"node_type": name}) for name in catalog.cache_node_types())
        max_calls = max(
            limiting_bound(store_bounds(kind, archives=aws.edge.archive is not None)).calls for kind in state_stores
        )
    else:
        max_calls = int(max(REDIS_GB.values()) * 1e9 * REDIS_SHARE / STORE_BYTES_PER_CALL)
    return peak_calls_for(Tier.STATE, max_calls) < peak_calls(deployment.load)


REQUESTS_PER_SESSION = 3
"""Number of requests to the session API per session: open, read events, close."""


def peak_requests_per_s(load: CallLoad) -> int:
    """Return the requests per second to the session API at the peak."""
    return math.ceil(peak_calls(load) / (60 * load.minutes_each) * REQUESTS_PER_SESSION)


def peak_calls(load: CallLoad) -> int:
    return math.ceil(load.calls * load.peak_factor)
