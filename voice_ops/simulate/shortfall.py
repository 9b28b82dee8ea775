"""Analysis of refused calls: the capacity at the time, the time until new capacity, and the cost of a reserve."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from voice_blueprint.capacity.tiers import calculate_max_mean_calls
from voice_ops.cost.prices import HOURS_PER_MONTH
from voice_ops.simulate.capacity import TRANSCRIBING_KINDS, FleetPlan
from voice_ops.simulate.run import PolicyResult

MARGIN_STANDARD_DEVIATIONS = 4.0
"""Margin for deviations of the number of calls from the trace, in standard deviations. A standard deviation is the
square root of the number of calls, and larger deviations are rare."""


@dataclass(frozen=True)
class Shortfall:
    """The first time at which more calls were requested than a tier had slots.

    Attributes:
        at_s: Time at which the shortfall starts, s.
        places: Maximum calls of the smallest tier at that time.
        help_s: Time until the first new host accepted calls; ``None`` if there was none.
        wanted: Requested calls at that time.
        peak: Maximum calls of the trace.
        reserve: Minimum hosts of each fleet that serve the peak without scaling, the cheapest ASR slots first; empty if
            the file's maximum is too small.
        too_few: Fronts that refuse calls even at the file's maximum, since callers are distributed randomly.
        hold_usd_per_hour: Additional cost of the reserve; ``None`` if a host has no price.
    """

    at_s: float
    places: int
    help_s: float | None
    wanted: int
    peak: int
    reserve: dict[str, int]
    too_few: tuple[str, ...]
    hold_usd_per_hour: float | None

    def __str__(self) -> str:
        first_host = "no new host started"
        if self.help_s is not None:
            first_host = f"the first new host started {self.help_s:.0f} s later"
        text = (
            f"calls exceeded the {self.places:,} slots in service after {self.at_s:.0f} s; "
            f"{first_host}, when {self.wanted:,} were required\n"
            f"accepting all {self.peak:,} calls requires "
        )
        if not self.reserve:
            return text + "more hosts than the file allows: raise hosts.max"
        text += "a reserve that is already in service: " + ", ".join(
            f"{fleet} {hosts}" for fleet, hosts in self.reserve.items()
        )
        if self.too_few:
            text += f" (and more of {', '.join(self.too_few)} than the file allows)"
        if self.hold_usd_per_hour is None:
            return text
        monthly = self.hold_usd_per_hour * HOURS_PER_MONTH
        return text + f"; {self.hold_usd_per_hour:,.2f} USD more per hour, {monthly:,.0f} per month"


def find_shortfall(result: PolicyResult) -> Shortfall | None:
    """Return the first shortfall under a policy that refused calls, or ``None`` if each tier had enough slots."""
    course = result.time_series
    short = np.flatnonzero(course.wanted > course.places)
    if not result.call_results.refused or not short.size:
        return None
    begin = int(short[0])
    growth_ticks = np.flatnonzero(course.places[begin:] > course.places[begin])
    end = begin + int(growth_ticks[0]) if growth_ticks.size else len(course.second) - 1
    peak, fleets = (
        math.ceil(float(course.wanted.max())),
        [plan for plan in result.plans if plan.kind in TRANSCRIBING_KINDS],
    )
    reserve = plan_reserve(fleets, peak + MARGIN_STANDARD_DEVIATIONS * math.sqrt(peak))
    fronts = [
        (plan, _calculate_required_front_hosts(plan, peak * plan.call_share))
        for plan in result.plans
        if plan not in fleets
    ]
    fixed_hosts = {plan.name: min(hosts, plan.max_hosts) for plan, hosts in fronts}
    if reserve:
        reserve |= {name: hosts for name, hosts in fixed_hosts.items() if hosts > course.hosts[name][begin]}
    more_hosts = [max(0, reserve.get(plan.name, 0) - int(course.hosts[plan.name][begin])) for plan in result.plans]
    prices = [plan.usd_per_hour for plan in result.plans]
    usd = sum(count * (price or 0) for count, price in zip(more_hosts, prices, strict=True))
    return Shortfall(
        at_s=float(course.second[begin]),
        places=int(course.places[begin]),
        help_s=float(course.second[end] - course.second[begin]) if growth_ticks.size else None,
        wanted=int(course.wanted[end]),
        peak=peak,
        reserve=reserve,
        too_few=tuple(plan.name for plan, hosts in fronts if hosts > plan.max_hosts),
        hold_usd_per_hour=usd if reserve and all(prices) else None,
    )


def _calculate_required_front_hosts(plan: FleetPlan, calls: float) -> int:
    """Return the number of hosts for a number of calls, which the front distributes randomly.

    Agents and ASR pods share calls evenly.
    """
    parts = len(plan.groups)
    if plan.kind in {"agent", "asr"}:
        return parts * math.ceil((calls + MARGIN_STANDARD_DEVIATIONS * math.sqrt(calls)) / (plan.slots * parts))
    return parts * math.ceil(calls / (calculate_max_mean_calls(plan.slots) * parts))


def plan_reserve(fleets: list[FleetPlan], calls: float) -> dict[str, int]:
    """Return the number of hosts in each fleet for a number of calls, starting with the cheapest slots.

    The result is empty if the fleets' maximum is insufficient.
    """
    hosts = {plan.name: sum(group.min_hosts for group in plan.groups) for plan in fleets}
    missing = calls - sum(hosts[plan.name] * plan.slots for plan in fleets)
    for plan in sorted(fleets, key=lambda plan: (plan.usd_per_hour or math.inf) / max(plan.slots, 1)):
        if missing > 0 and plan.slots:
            added = min(math.ceil(missing / plan.slots), plan.max_hosts - hosts[plan.name])
            hosts[plan.name] += added
            missing -= added * plan.slots
    return hosts if missing <= 0 else {}


def apply_reserve(plans: tuple[FleetPlan, ...], reserve: Mapping[str, int]) -> tuple[FleetPlan, ...]:
    """Return the fleets with the reserve as their minimum, distributed evenly over the groups in each fleet."""

    def raise_minimum(plan: FleetPlan) -> FleetPlan:
        min_hosts = reserve.get(plan.name, 0) // len(plan.groups)
        groups = (replace(group, min_hosts=max(min_hosts, group.min_hosts)) for group in plan.groups)
        return replace(plan, groups=tuple(groups))

    return tuple(map(raise_minimum, plans))
