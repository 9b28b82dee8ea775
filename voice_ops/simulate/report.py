"""Report on a simulation: refused and degraded calls, time to capacity, overshoot, cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.table import Table

from voice_ops.output import create_table, format_range
from voice_ops.simulate.capacity import FleetPlan
from voice_ops.simulate.run import PolicyResult
from voice_ops.simulate.shortfall import find_shortfall
from voice_ops.simulate.traces import LoadTrace

_HOUR_S = 3600


@dataclass(frozen=True)
class PolicySummary:
    """Results of one policy.

    Attributes:
        offered_calls: Number of callers.
        refused_call_seconds: Missed talk time of refused callers, and the remainder of cut-off calls.
        cut_calls: Calls whose host failed without a replacement.
        degraded_call_seconds: Call-seconds during a change of hosts.
        gpu_call_seconds: Call-seconds that GPUs served, for lack of Neuron hosts.
        short_of_places_s: Time to capacity: the longest period in which more calls were requested than the tiers in
            service could serve, or 0.
        still_short: Whether the shortage continued at the end of the trace.
        overshoot_percent: Maximum slots in service, relative to the maximum of requested calls.
        host_hours: Hours of running hosts by fleet, from launch to termination.
        stopped_host_hours: Hours of hosts in warm pools; their volumes are not included in the price.
        usd: On-Demand list price of running hosts.
        not_priced: Fleets whose instance type has no list price in the region, which ``usd`` excludes.
        launches_refused: Launches that a quota rejected, including retries.
        conversations: Callers with a slot in all other tiers who request an agent; ``None`` without agents.
        refused_conversations: Subset of these callers without a free agent, who also count as refused calls.
    """

    policy: str
    offered_calls: int
    refused_calls: int
    refused_call_seconds: float
    cut_calls: int
    degraded_call_seconds: float
    gpu_call_seconds: float
    short_of_places_s: float
    still_short: bool
    overshoot_percent: float
    host_hours: dict[str, float]
    stopped_host_hours: float
    usd: float
    not_priced: tuple[str, ...]
    launches_refused: int
    scaling_actions: int
    conversations: int | None
    refused_conversations: int


def summarize_result(result: PolicyResult) -> PolicySummary:
    """Calculate the totals of a policy from its time series."""
    course, call_results = result.time_series, result.call_results
    hours = result.tick_s / _HOUR_S
    host_hours = {name: float(hosts.sum()) * hours for name, hosts in course.hosts.items()}
    prices = {plan.name: plan.usd_per_hour for plan in result.plans}
    short_s, longest_s = _find_longest_shortage(course.wanted > course.places, result.tick_s)
    return PolicySummary(
        policy=result.policy,
        offered_calls=call_results.offered,
        refused_calls=call_results.refused,
        refused_call_seconds=(call_results.refused + call_results.cut) * result.mean_call_s,
        cut_calls=call_results.cut,
        degraded_call_seconds=call_results.degraded_s,
        gpu_call_seconds=call_results.gpu_s,
        short_of_places_s=short_s,
        still_short=longest_s,
        overshoot_percent=max(0.0, 100 * (float(course.places.max()) / float(course.wanted.max()) - 1)),
        host_hours=host_hours,
        stopped_host_hours=float(sum(stopped.sum() for stopped in course.stopped.values())) * hours,
        usd=sum(spent * (prices[name] or 0) for name, spent in host_hours.items()),
        not_priced=tuple(name for name, price in prices.items() if price is None),
        launches_refused=result.refused_launches,
        scaling_actions=result.scaling_actions,
        conversations=call_results.conversations if any(plan.kind == "agent" for plan in result.plans) else None,
        refused_conversations=call_results.conversations_refused,
    )


def _find_longest_shortage(short: np.ndarray[tuple[int], np.dtype[np.bool_]], tick_s: int) -> tuple[float, bool]:
    """Return the longest run of ``True`` in seconds, and whether the last value is ``True``."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], short, [False]])))
    runs = edges[1::2] - edges[::2]
    return (float(runs.max()) * tick_s if runs.size else 0.0), bool(short[-1])


def serialize_results(
    trace: LoadTrace, results: Sequence[PolicyResult], sweep_results: Mapping[float, PolicyResult], *, seed: int
) -> dict[str, object]:
    """Return all results for ``--json``, with one value per minute in each time series."""
    text = find_shortfall(results[-1])
    return {
        "trace": trace.name,
        "seconds": trace.duration_s,
        "peak_calls": trace.peak,
        "seed": seed,
        "fleets": [
            {
                "fleet": plan.name,
                "places_per_host": plan.slots,
                "places_source": plan.slots_source,
                "boot": [asdict(phase) for phase in plan.boot.phases],
                "usd_per_host_hour": plan.usd_per_hour,
            }
            for plan in results[0].plans
        ],
        "alerts": [asdict(firing) for firing in results[-1].firings],
        "shortfall": asdict(text) if text else None,
        "busy_at_full": [
            {"busy_at_full": busy} | asdict(summarize_result(result)) for busy, result in sweep_results.items()
        ],
        "policies": [
            asdict(summarize_result(result)) | {"course": _serialize_time_series(result)} for result in results
        ],
    }


def _serialize_time_series(result: PolicyResult) -> dict[str, object]:
    step = max(1, 60 // result.tick_s)
    return {
        name: {fleet: values[::step].tolist() for fleet, values in found.items()}
        if isinstance(found, dict)
        else found[::step].tolist()
        for name, found in vars(result.time_series).items()
    }


def create_policy_table(title: str, summaries: Sequence[PolicySummary]) -> Table:
    missing = summaries[0].not_priced
    caption = "USD: running hosts at On-Demand list price; volumes of stopped hosts are not priced" + (
        f", nor is {', '.join(missing)}" if missing else ""
    )
    table = create_table(title, [""], [summary.policy for summary in summaries], caption=caption)
    rows = {
        "calls refused": [_format_fraction(one.refused_calls, one.offered_calls) for one in summaries],
        "of these by agents": [
            _format_fraction(one.refused_conversations, one.conversations or 1) for one in summaries
        ],
        "calls cut": [f"{one.cut_calls:,}" for one in summaries],
        "refused call-seconds": [f"{one.refused_call_seconds:,.0f}" for one in summaries],
        "degraded call-seconds": [f"{one.degraded_call_seconds:,.0f}" for one in summaries],
        "call-seconds on GPUs": [f"{one.gpu_call_seconds:,.0f}" for one in summaries],
        "time to capacity": [_format_time_to_capacity(one) for one in summaries],
        "overshoot": [f"{one.overshoot_percent:.0f} %" for one in summaries],
        "launches over quota": [f"{one.launches_refused:,}" for one in summaries],
        "host-hours, running": [f"{sum(one.host_hours.values()):,.1f}" for one in summaries],
        "host-hours, stopped": [f"{one.stopped_host_hours:,.1f}" for one in summaries],
        "USD": [f"{one.usd:,.2f}" for one in summaries],
    }
    if summaries[0].conversations is None:
        del rows["of these by agents"]
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def format_alerts(result: PolicyResult) -> str:
    """Return a line for each alert that fires, with the time of the first firing and the number of firings."""
    if not result.firings:
        return "alerts that fire: none"
    first: dict[str, float] = {}
    for firing in result.firings:
        first.setdefault(firing.name, firing.at_s)
    counts = Counter(firing.name for firing in result.firings)
    lines = (f"  {name} after {second:,.0f} s, {counts[name]} times" for name, second in first.items())
    return "\n".join(["alerts that fire:", *lines])


def create_sweep_table(sweep_results: Mapping[float, PolicyResult]) -> Table:
    """Create a table of the results for the file's own rules, by the utilization of a fully occupied ASR host."""
    first_result = next(iter(sweep_results.values()))
    table = create_table(
        f"{first_result.policy}, by how busy a full host is", [""], [f"{busy:.0%} busy" for busy in sweep_results]
    )
    summaries = [summarize_result(result) for result in sweep_results.values()]
    table.add_row("calls refused", *(_format_fraction(one.refused_calls, one.offered_calls) for one in summaries))
    table.add_row("time to capacity", *(_format_time_to_capacity(one) for one in summaries))
    table.add_row("USD", *(f"{one.usd:,.2f}" for one in summaries))
    return table


def format_percent(part: float, total: float) -> str:
    """Format a share as a percentage with one decimal. Small positive shares are formatted as ``< 0.1%``."""
    return f"{part / total:.1%}" if part / total >= 0.0005 else "< 0.1%"  # noqa: PLR2004  a smaller share would be formatted as 0.0%


def _format_fraction(part: int, total: int) -> str:
    return f"{part:,} ({format_percent(part, total)})" if part else "0"


def _format_time_to_capacity(summary: PolicySummary) -> str:
    if not summary.short_of_places_s:
        return "never short"
    minutes, seconds = divmod(round(summary.short_of_places_s), 60)
    return f"{'> ' if summary.still_short else ''}{minutes} min {seconds:02d} s"


def create_fleet_table(plans: Sequence[FleetPlan]) -> Table:
    """Create a table of the simulation inputs for each fleet."""
    table = create_table(
        "taken to be",
        ["fleet"],
        ["hosts", "calls a host", "boot", "from warm pool"],
        "calls a host: whose number",
        "CPU is taken to be the share of a host's places in use, which flatters target tracking",
    )
    for plan in plans:
        table.add_row(
            plan.name,
            format_range(sum(group.min_hosts for group in plan.groups), plan.max_hosts),
            f"{plan.slots:,}",
            f"{plan.boot.cold_s:g} s",
            f"{plan.boot.warm_s:g} s" if plan.warm_hosts else "-",
            plan.slots_source,
        )
    return table
