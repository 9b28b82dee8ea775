"""Computes the calls and conversations per tier, and the sizes for a load, for `voice plan`."""

from collections.abc import Iterator

from rich.table import Table

from voice_blueprint.capacity.conversations import (
    ConversationStage,
    calculate_concurrent_conversations,
    iter_conversation_chains,
)
from voice_blueprint.capacity.load import calculate_peak_calls, recommend_caller_sizes, recommend_sizes
from voice_blueprint.capacity.tiers import build_caller_tier_capacities, sum_calls_by_tier
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import create_table, format_range


def _calculate_recommended_sizes(deployment: Deployment) -> dict[str, str]:
    """Return the recommended size of each tier for the load, as text."""
    load = deployment.load
    if load is None:
        return {}
    if aws := deployment.aws_section:
        return {each.name: text for each, text in recommend_sizes(aws, load)}
    callers, agents = deployment.azure.callers, deployment.azure.agents
    return {each.name: text for each, text in recommend_caller_sizes(callers, agents, load)} if callers else {}


def create_capacity_table(deployment: Deployment) -> Table | None:
    """Return a table of the tiers with their calls and the recommended sizes; ``None`` if the file has no callers."""
    load, result, recommended = (
        deployment.load,
        build_caller_tier_capacities(deployment),
        _calculate_recommended_sizes(deployment),
    )
    if not result:
        return None
    # Memory limits the calls of the store, and concurrency those of the other tiers.
    tier_ranges = sum_calls_by_tier(result)
    tier, (_, max_calls) = min(tier_ranges.items(), key=lambda item: item[1][1])
    caption = f"at most {max_calls:,} concurrent calls, limited by {tier}"
    if load:
        caption += f"; the load is {load.calls:,}, and {calculate_peak_calls(load):,} at its peak"
    table = create_table(
        "concurrent calls",
        ["tier"],
        ["per unit", "units", "calls"],
        "limit of a unit",
        caption,
    )
    if recommended:
        table.add_column("for the load", no_wrap=True)
    for each in result:
        bound = each.limiting_bound
        table.add_row(
            each.name,
            f"{each.calls:,}",
            format_range(each.units.min, each.units.max),
            f"{each.min_calls:,}-{each.max_calls:,}",
            f"{bound.name} ({bound.kind}): {bound.source}",
            *([recommended.get(each.name, "-")] if recommended else []),
        )
    return table


def create_conversation_tables(deployment: Deployment) -> Iterator[Table]:
    """Yield a table of the conversations per tier, and the units for the load, for each section with agents."""
    for chain in _list_conversation_chains(deployment):
        recommended = _calculate_required_units(deployment, chain)
        bottleneck = min(chain, key=lambda each: each.most)
        caption = f"at most {bottleneck.most:,} concurrent conversations, limited by {bottleneck.name}"
        if recommended and deployment.load:
            mean, peak = calculate_concurrent_conversations(deployment.load)
            caption += f"; the load has {mean:,.0f}, and {peak:,} at its peak"
        if chain[0].location[0] == "aws":
            caption += "; the language model and speech are external endpoints"
        title = f"concurrent conversations, {chain[0].location[0]}"
        table = create_table(title, ["part"], ["per unit", "units", "conversations"], "limit of a unit", caption)
        if recommended:
            table.add_column("units for the load", no_wrap=True)
        for each in chain:
            cells = [
                f"{each.calls:,}",
                format_range(each.units.min, each.units.max),
                f"{each.low:,}-{each.most:,}",
            ]
            table.add_row(
                each.name, *cells, each.source, *([format_range(*recommended[each.name])] if recommended else [])
            )
        yield table


def serialize_conversations(deployment: Deployment) -> list[dict[str, object]]:
    """Return the conversations for ``--json``. The first part with the lowest capacity is the limiting factor."""
    return [
        vars(each) | {"for_load": _calculate_required_units(deployment, chain).get(each.name)}
        for chain in _list_conversation_chains(deployment)
        for each in chain
    ]


def _list_conversation_chains(deployment: Deployment) -> list[tuple[ConversationStage, ...]]:
    try:
        return list(iter_conversation_chains(deployment))
    except LookupError:
        return []  # the missing pool is reported by a check


def _calculate_required_units(
    deployment: Deployment, chain: tuple[ConversationStage, ...]
) -> dict[str, tuple[int, int]]:
    """Return the units that each part needs for the mean and the peak of the load.

    The result is empty for the Azure section of a file that also has an AWS section.
    """
    load = deployment.load
    if load is None or (deployment.aws_section and chain[0].location[0] == "azure"):
        return {}
    mean, peak = calculate_concurrent_conversations(load)
    return {
        each.name: (each.calculate_required_units(mean), each.calculate_required_units(peak))
        for each in chain
        if each.most
    }


def serialize_capacity(deployment: Deployment) -> list[dict[str, object]]:
    """Return the calls per tier for ``--json``, with all limits."""
    recommended = _calculate_recommended_sizes(deployment)
    return [
        vars(each) | {"calls": each.calls, "most": each.max_calls, "for_load": recommended.get(each.name)}
        for each in build_caller_tier_capacities(deployment)
    ]
