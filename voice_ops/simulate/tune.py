"""Searches by simulation for the cheapest minimums, thresholds and steps with an acceptable share of refused callers.

Each round tries every single change of every fleet, and keeps the change that avoids the most refused callers per USD.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rich.table import Table

from voice_blueprint.file.model.scaling import ScalingRule
from voice_ops.cost.prices import HOURS_PER_MONTH
from voice_ops.output import create_table
from voice_ops.simulate.capacity import FleetPlan
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import Simulation, SimulationSettings
from voice_ops.simulate.traces import LoadTrace

FleetPlans = tuple[FleetPlan, ...]

TICK_S = 10
"""Tick of the simulation, s: the minimum period of an alarm. A search simulates hundreds of hours."""
HOST_GROWTH_FACTOR = 1.25
"""Factor by which a minimum is increased."""
THRESHOLD_STEP, MIN_THRESHOLD = 10.0, 50.0
"""Step and minimum of thresholds, percent of the slots. A fleet that scales out below half of its slots is never
filled."""
MAX_ROUNDS = 20
DAYS_PER_MONTH = HOURS_PER_MONTH / 24


@dataclass(frozen=True)
class TuningResult:
    """Result of a set of plans.

    Attributes:
        change: Last change, in the notation of the deployment file.
        refused: Share of callers who gave up or were cut off, 0 to 1.
        usd_per_month: Minimums for the whole month, and additional hosts during the trace, once per day.
    """

    change: str
    plans: FleetPlans
    refused: float
    usd_per_month: float


def search_plans(
    plans: FleetPlans, trace: LoadTrace, settings: SimulationSettings, max_refused_share: float
) -> list[TuningResult]:
    """Return the outcome of each round, starting with the unchanged file.

    The last outcome is the first that meets the bound, or the best one.

    Args:
        max_refused_share: Maximum share of refused callers, 0 to 1.
    """

    def evaluate_candidate(change: str, candidate: FleetPlans) -> TuningResult:
        return evaluate_plans(change, candidate, trace, replace(settings, tick_s=TICK_S))

    path = [evaluate_candidate("the file", plans)]
    while path[-1].refused > max_refused_share and len(path) <= MAX_ROUNDS:
        now = path[-1]
        better = [
            outcome
            for outcome in (evaluate_candidate(*move) for move in iter_candidate_changes(now.plans))
            if outcome.refused < now.refused
        ]
        if not better:
            break
        path.append(max(better, key=_create_savings_ranker(now)))
    return path


def _create_savings_ranker(now: TuningResult) -> Callable[[TuningResult], float]:
    """Return a function that ranks outcomes by the number of avoided refusals per USD.

    Outcomes without additional cost rank first.
    """

    def rank(outcome: TuningResult) -> float:
        return (now.refused - outcome.refused) / max(1.0, outcome.usd_per_month - now.usd_per_month)

    return rank


def evaluate_plans(change: str, plans: FleetPlans, trace: LoadTrace, settings: SimulationSettings) -> TuningResult:
    """Simulate a trace with these plans, and calculate the share of refused callers and the cost."""
    result = Simulation(plans, create_configured_policy(plans), trace, settings).run()
    call_results, usd = result.call_results, 0.0
    for plan in plans:
        min_hosts = sum(group.min_hosts for group in plan.groups)
        beyond = float((result.time_series.hosts[plan.name] - min_hosts).clip(0).sum()) * result.tick_s / 3600
        usd += (min_hosts * HOURS_PER_MONTH + beyond * DAYS_PER_MONTH) * (plan.usd_per_hour or 0.0)
    return TuningResult(change, plans, (call_results.refused + call_results.cut) / max(1, call_results.offered), usd)


def iter_candidate_changes(plans: FleetPlans) -> Iterator[tuple[str, FleetPlans]]:
    """Yield each change to a single minimum or rule, with the changed plans."""
    for number, plan in enumerate(plans):
        for change, changed in _iter_fleet_variants(plan):
            yield change, (*plans[:number], changed, *plans[number + 1 :])


def _iter_fleet_variants(plan: FleetPlan) -> Iterator[tuple[str, FleetPlan]]:
    groups = tuple(
        replace(
            each, min_hosts=min(each.max_hosts, max(each.min_hosts + 1, round(each.min_hosts * HOST_GROWTH_FACTOR)))
        )
        for each in plan.groups
    )
    if groups != plan.groups:
        yield f"{plan.name}: min {groups[0].min_hosts}", replace(plan, groups=groups)
    for number, rule in enumerate(plan.rules):
        for change, changed in _iter_rule_variants(rule, plan.max_hosts // len(plan.groups)):
            rules = (*plan.rules[:number], changed, *plan.rules[number + 1 :])
            yield f"{plan.name}, {rule.name}: {change}", replace(plan, rules=rules)


def _iter_rule_variants(rule: ScalingRule, max_hosts: int) -> Iterator[tuple[str, ScalingRule]]:
    if not rule.adds_hosts:
        return
    if rule.metric == "SlotsTaken" and (threshold := rule.threshold - THRESHOLD_STEP) >= MIN_THRESHOLD:
        yield f"threshold {threshold:g}", rule.model_copy(update={"threshold": threshold})
    steps = tuple(step.model_copy(update={"adjustment": min(max_hosts, 2 * step.adjustment)}) for step in rule.steps)
    if steps != rule.steps:
        sizes = ", ".join(f"{step.adjustment}" for step in steps)
        yield f"steps of {sizes}", rule.model_copy(update={"steps": steps})


def create_tuning_table(path: list[TuningResult], max_refused_share: float) -> Table:
    """Create a table of the changes and their results, in the order of the search."""
    met = path[-1].refused <= max_refused_share
    caption = "set the last value of each fleet and rule in the file" if met else "no further change refuses less"
    table = create_table(
        f"at most {max_refused_share:.1%} refused", ["change"], ["refused", "USD a month"], caption=caption
    )
    for outcome in path:
        table.add_row(outcome.change, f"{outcome.refused:.2%}", f"{outcome.usd_per_month:,.0f}")
    return table
