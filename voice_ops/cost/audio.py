"""Audio hours per month, by which the cost of a deployment is divided."""

from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.capacity.tiers import (
    TARGET_UTILIZATION,
    build_aws_tier_capacities,
    build_azure_caller_capacities,
    sum_calls_by_tier,
)
from voice_blueprint.engines.sizing.service import iter_transcription_capacities
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.load import CallLoad
from voice_ops.cost.model import Amount, AudioUsage
from voice_ops.cost.prices import HOURS_PER_MONTH


def estimate_aws_calls(aws: Aws, load: CallLoad) -> Amount:
    """Return the number of concurrent calls in the AWS section.

    The low case is limited by the capacity of the minimum number of hosts.
    """
    return _estimate_calls([low for low, _ in sum_calls_by_tier(build_aws_tier_capacities(aws)).values()], load)


def estimate_azure_calls(azure: Azure, load: CallLoad) -> Amount:
    """Return the number of concurrent calls in the Azure section, with the same limit as on AWS."""
    return _estimate_calls([low for low, _ in _calculate_tier_capacities(azure).values()], load)


def estimate_aws_audio(aws: Aws, load: CallLoad, *, has_load: bool) -> AudioUsage:
    """Return the audio hours for the AWS section.

    Args:
        load: The load of the designed day.
        has_load: Whether the file contains the load.
    """
    capacity_texts = {
        each.name: f"{each.min_calls:,}-{each.max_calls:,} calls ({each.limiting_bound.name})"
        for each in build_aws_tier_capacities(aws)
    }
    return _estimate_audio(estimate_aws_calls(aws, load), load, "" if has_load else _join_capacities(capacity_texts))


def estimate_azure_audio(azure: Azure, load: CallLoad | None, *, has_load: bool) -> AudioUsage:
    """Return the audio hours for the Azure section.

    The capacity of an engine is the number of sessions that fit into its memory.
    """
    engines = list(iter_transcription_capacities(azure))
    if not engines or load is None:
        return AudioUsage(None, "the file has no service that transcribes audio")
    texts = {
        engine.service: f"{engine.min_replicas}-{engine.max_replicas} replicas x {engine.sessions} sessions"
        for engine in engines
    }
    texts |= {
        name: f"{low:,}-{maximum:,} calls"
        for name, (low, maximum) in _calculate_tier_capacities(azure).items()
        if name != "engines"
    }
    reason = f"{_join_capacities(texts)}; sessions are upper limits by memory"
    return _estimate_audio(estimate_azure_calls(azure, load), load, "" if has_load else reason)


def _join_capacities(texts: dict[str, str]) -> str:
    return ", ".join(f"{name} {calls}" for name, calls in texts.items())


def _estimate_calls(minimums: list[int], load: CallLoad) -> Amount:
    return Amount(min(min(minimums) * TARGET_UTILIZATION, load.calls), load.calls, calculate_peak_calls(load))


def _estimate_audio(calls: Amount, load: CallLoad, capacity_text: str) -> AudioUsage:
    assumptions = f"{load.calls:,} calls, {calculate_peak_calls(load):,} at the peak, {load.curve}"
    if capacity_text:
        share = f"{TARGET_UTILIZATION:.0%} of the smallest tier's maximum ({capacity_text})"
        assumptions = f"the file has no load; assumed: {assumptions}, {share}"
    else:
        assumptions = f"load of the file: {assumptions}"
    return AudioUsage(calls * HOURS_PER_MONTH, assumptions)


def _calculate_tier_capacities(azure: Azure) -> dict[str, tuple[int, int]]:
    """Return the capacity of each tier in calls, at the minimum and at the maximum number of units."""
    pools = list(iter_transcription_capacities(azure))
    engines = (
        sum(pool.min_replicas * pool.sessions for pool in pools),
        sum(pool.max_replicas * pool.sessions for pool in pools),
    )
    tiers = sum_calls_by_tier(build_azure_caller_capacities(azure.callers)) if azure.callers else {}
    return {"engines": engines} | {tier.value: calls for tier, calls in tiers.items()}
