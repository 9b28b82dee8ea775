"""A cost estimate as tables and as JSON."""

from rich.table import Table

from voice_ops.cost.model import ZERO_AMOUNT, Amount, CostLine, Estimate, UnavailableHosts, sum_amounts
from voice_ops.output import create_table, format_markup, out

COST_CASES = ("low", "expected", "peak")
MAX_LISTED_REGIONS = 3
MIN_SHOWN_FRACTION = 0.001
"""Minimum share of the peak cost for a separate row. Smaller items are summed in one row."""


def print_estimate(estimate: Estimate) -> None:
    """Print the cost by tier and by item, the assumptions, and the omitted items."""
    out.print(_build_tier_table(estimate))
    out.print(_build_item_table(estimate))
    out.print(f"  audio hours: {estimate.audio.assumptions}", soft_wrap=True)
    if estimate.conversations:
        out.print(f"  conversations: {estimate.conversations.assumptions}", soft_wrap=True)
    dates = sorted(line.price.date for line in estimate.lines)
    read = format_markup(
        "  list prices read from {} to {} [dim](--json has the source of each)[/]", dates[0], dates[-1]
    )
    out.print(read, soft_wrap=True)
    for region, items in estimate.prices_from_other_regions.items():
        out.print(f"  prices of {region} are used for {', '.join(items)}", soft_wrap=True)
    for note in estimate.notes:
        out.print(f"  {note}", soft_wrap=True)
    out.print(format_markup("  [bold]not included[/]"))
    for item in estimate.unpriced_items:
        out.print(format_markup("  [yellow]![/] {}: {} [dim]({})[/]", item.kind, item.what, item.why), soft_wrap=True)
    free = format_markup("  free of charge: {} types [dim](--json lists them)[/]", len(estimate.free))
    out.print(free, soft_wrap=True)


def print_total(estimates: list[Estimate]) -> None:
    """Print the total of several regions and clouds."""
    usd = " / ".join(f"{case:,.0f}" for case in sum_amounts(each.usd for each in estimates).cases)
    at_least = "at least " * any(each.unavailable_hosts for each in estimates)
    parts = ", ".join(f"{each.cloud} {each.region}" for each in estimates)
    template = "  [bold]total {}{}[/] USD per month, low / expected / peak: {}"
    out.print(format_markup(template, at_least, usd, parts), soft_wrap=True)


def print_difference(estimate: Estimate | None, other: Estimate | None, name: str) -> None:
    """Print the difference in cost between two files' sections for the same cloud.

    Args:
        estimate: Cost of this file's section.
        other: Cost of the other file's section.
        name: Name of the other file.
    """
    present = estimate or other
    if present is None:
        return
    table = create_table(f"{present.cloud}: difference, USD per month", ["tier"], COST_CASES)
    for tier, change in _calculate_tier_changes(estimate, other).items():
        table.add_row(tier, *(f"{usd:+,.0f}" for usd in change.cases))
    table.add_section()
    table.add_row("total", *(f"{usd:+,.0f}" for usd in _calculate_cost_difference(estimate, other).cases))
    out.print(f"compared with {name}", soft_wrap=True)
    out.print(table)


def serialize_estimate(estimate: Estimate) -> dict[str, object]:
    return {
        "cloud": estimate.cloud,
        "region": estimate.region,
        # A sum without its most expensive hosts must not be mistaken for the total.
        "usd_per_month_at_least" if estimate.unavailable_hosts else "usd_per_month": estimate.usd,
        "hosts_without_price": estimate.unavailable_hosts,
        "usd_per_audio_hour": None
        if estimate.unavailable_hosts
        else estimate.audio.calculate_usd_per_hour(estimate.usd),
        "audio_hours_per_month": estimate.audio.hours,
        "audio_assumed": estimate.audio.assumptions,
        "usd_per_conversation_minute": None if estimate.unavailable_hosts else estimate.usd_per_conversation_minute,
        "conversation_minutes_per_month": estimate.conversations.minutes if estimate.conversations else None,
        "conversations_assumed": estimate.conversations.assumptions if estimate.conversations else None,
        "tiers": estimate.calculate_usd_by_tier(),
        "lines": [
            {
                "tier": line.tier,
                "resource": line.resource,
                "type": line.kind,
                "item": line.price.item,
                "amount": line.amount,
                "usd": line.price.usd,
                "unit": line.price.unit,
                "price_region": line.price.region,
                "price_date": line.price.date,
                "price_source": line.price.source,
                "usd_per_month": line.usd,
            }
            for line in estimate.lines
        ],
        "unpriced": estimate.unpriced_items,
        "free": estimate.free,
        "notes": estimate.notes,
    }


def serialize_difference(estimate: Estimate | None, other: Estimate | None) -> dict[str, object]:
    """Return the cost of this file's section minus that of the other file, for ``--json``."""
    return {
        "usd_per_month": _calculate_cost_difference(estimate, other),
        "tiers": _calculate_tier_changes(estimate, other),
    }


def _calculate_cost_difference(estimate: Estimate | None, other: Estimate | None) -> Amount:
    return (estimate.usd if estimate else ZERO_AMOUNT) - (other.usd if other else ZERO_AMOUNT)


def _calculate_tier_changes(estimate: Estimate | None, other: Estimate | None) -> dict[str, Amount]:
    own_tiers = estimate.calculate_usd_by_tier() if estimate else {}
    other_tiers = other.calculate_usd_by_tier() if other else {}
    return {
        tier: own_tiers.get(tier, ZERO_AMOUNT) - other_tiers.get(tier, ZERO_AMOUNT)
        for tier in {**own_tiers, **other_tiers}
    }


def _build_tier_table(estimate: Estimate) -> Table:
    table = create_table(f"{estimate.cloud}, {estimate.region}: USD per month", ["tier"], COST_CASES)
    for tier, usd in estimate.calculate_usd_by_tier().items():
        table.add_row(tier, *(f"{case:,.0f}" for case in usd.cases))
    table.add_section()
    at_least = ", at least" if estimate.unavailable_hosts else ""
    table.add_row(
        "at least" if estimate.unavailable_hosts else "total", *(f"{case:,.0f}" for case in estimate.usd.cases)
    )
    for hosts in estimate.unavailable_hosts:
        named = (
            ", ".join(hosts.regions) if len(hosts.regions) <= MAX_LISTED_REGIONS else f"{len(hosts.regions)} regions"
        )
        table.add_row(f"and {hosts.item.removeprefix('Standard_')}, as in {named}", *_format_usd_ranges(hosts))
    per_hour = estimate.audio.calculate_usd_per_hour(estimate.usd)
    if per_hour and estimate.audio.hours:
        table.add_row("audio hours", *(f"{hours:,.0f}" for hours in estimate.audio.hours.cases))
        table.add_row(f"USD per audio hour{at_least}", *(f"{usd:.4f}" for usd in per_hour.cases))
    per_minute = estimate.usd_per_conversation_minute
    if per_minute and estimate.conversations:
        table.add_row("conversation minutes", *(f"{minutes:,.0f}" for minutes in estimate.conversations.minutes.cases))
        table.add_row(f"USD per conversation minute{at_least}", *(f"{usd:.4f}" for usd in per_minute.cases))
    return table


def _format_usd_ranges(hosts: UnavailableHosts) -> list[str]:
    pairs = zip(hosts.min_usd.cases, hosts.most.cases, strict=True)
    return [f"{low:,.0f}" if low == high else f"{low:,.0f}-{high:,.0f}" for low, high in pairs]


def _build_item_table(estimate: Estimate) -> Table:
    table = create_table("of which", ["tier", "item"], ["amount", "USD", "expected USD per month"])
    rows: dict[tuple[str, str], list[CostLine]] = {}
    for line in estimate.lines:
        rows.setdefault((line.tier, line.price.item), []).append(line)
    small = []
    for (tier, item), lines in rows.items():
        amount, price, usd = (
            sum_amounts(line.amount for line in lines),
            lines[0].price,
            sum_amounts(line.usd for line in lines),
        )
        if usd.peak < MIN_SHOWN_FRACTION * estimate.usd.peak:
            small.append(usd)
            continue
        size = f"{amount.low:,g}" if amount.low == amount.peak else f"{amount.low:,g}-{amount.peak:,g}"
        row = (tier, item.removeprefix("Standard_"), size, f"{price.usd:g} per {price.unit}", f"{usd.expected:,.2f}")
        table.add_row(*row)
    if small:
        table.add_row("", f"{len(small)} smaller items", "", "", f"{sum_amounts(small).expected:,.2f}")
    return table
