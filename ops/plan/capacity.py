"""How many calls each tier carries, for `voice plan`: what binds, whose number it is, and what a load asks for."""

from collections.abc import Iterator

from rich.table import Table

from blueprint.capacity import (
    Link,
    by_tier,
    conversation_chains,
    conversations_of,
    of_callers,
    peak_calls,
    sized,
    sized_callers,
)
from blueprint.file.model.deployment import Deployment
from ops.output import empty_table, span


def _asked_of(deployment: Deployment) -> dict[str, str]:
    """Return what the load asks of each tier that carries its calls."""
    load = deployment.load
    if load is None:
        return {}
    if aws := deployment.aws_half:
        return {each.name: text for each, text in sized(aws, load)}
    callers, agents = deployment.azure.callers, deployment.azure.agents
    return {each.name: text for each, text in sized_callers(callers, agents, load)} if callers else {}


def capacity_table(deployment: Deployment) -> Table | None:
    """Return the tiers with their calls; with a load, also what the file should say for it. None without callers."""
    load, found, asked = deployment.load, of_callers(deployment), _asked_of(deployment)
    if not found:
        return None
    # The store has its own bound on memory; the others limit what can be in a call at a time.
    room = by_tier(found)
    tier, (_, most) = min(room.items(), key=lambda item: item[1][1])
    caption = f"{tier} binds: at most {most:,} calls at a time"
    if load:
        caption += f"; the load is {load.calls:,}, at its peak {peak_calls(load):,}"
    table = empty_table(
        "calls at a time",
        ["tier"],
        ["a unit", "units", "calls"],
        "what binds a unit",
        caption,
    )
    if asked:
        table.add_column("for the load", no_wrap=True)
    for each in found:
        bound = each.binding
        table.add_row(
            each.name,
            f"{each.calls:,}",
            span(each.units.min, each.units.max),
            f"{each.low:,}-{each.most:,}",
            f"{bound.name} ({bound.kind}): {bound.source}",
            *([asked.get(each.name, "-")] if asked else []),
        )
    return table


def conversation_tables(deployment: Deployment) -> Iterator[Table]:
    """Yield what each part of a conversation's chain carries, and what a load takes of it, for each half with any."""
    for chain in _chains(deployment):
        asked = _asked(deployment, chain)
        binds = min(chain, key=lambda each: each.most)
        caption = f"{binds.name} binds: at most {binds.most:,} conversations at a time"
        if asked and deployment.load:
            mean, peak = conversations_of(deployment.load)
            caption += f"; the load has {mean:,.0f}, at its peak {peak:,}"
        if chain[0].location[0] == "aws":
            caption += "; language model and speech are endpoints elsewhere"
        title = f"conversations at a time, {chain[0].location[0]}"
        table = empty_table(title, ["part"], ["a unit", "units", "conversations"], "what binds a unit", caption)
        if asked:
            table.add_column("units for the load", no_wrap=True)
        for each in chain:
            cells = [f"{each.calls:,}", span(each.units.min, each.units.max), f"{each.low:,}-{each.most:,}"]
            table.add_row(each.name, *cells, each.source, *([span(*asked[each.name])] if asked else []))
        yield table


def conversations_as_dict(deployment: Deployment) -> list[dict[str, object]]:
    """Return the same for ``--json``; the first of the least is what binds."""
    return [
        vars(each) | {"for_load": _asked(deployment, chain).get(each.name)}
        for chain in _chains(deployment)
        for each in chain
    ]


def _chains(deployment: Deployment) -> list[tuple[Link, ...]]:
    try:
        return list(conversation_chains(deployment))
    except LookupError:
        return []  # a check says which pool is missing


def _asked(deployment: Deployment, chain: tuple[Link, ...]) -> dict[str, tuple[int, int]]:
    """Return the units of each part for the load's mean and peak; the load comes to the AWS half where there is one."""
    load = deployment.load
    if load is None or (deployment.aws_half and chain[0].location[0] == "azure"):
        return {}
    mean, peak = conversations_of(load)
    return {each.name: (each.units_for(mean), each.units_for(peak)) for each in chain if each.most}


def capacity_as_dict(deployment: Deployment) -> list[dict[str, object]]:
    """Return the same for ``--json``, with every bound."""
    asked = _asked_of(deployment)
    return [
        vars(each) | {"calls": each.calls, "most": each.most, "for_load": asked.get(each.name)}
        for each in of_callers(deployment)
    ]
