"""A day of a million calls, simulated in bulk and extrapolated from calls one by one: `python -m bench.simulate`.

The deployment is the shipped production file with its bounds and steps multiplied until a million calls have places.
Each contestant runs in a process of its own, so that peak memory is its own. Calls one by one are simulated for a small
load and a short while, and extrapolated in proportion to call-seconds: every call there is a process, so that cost and
calls grow together. Memory is extrapolated likewise, beyond what the interpreter takes.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import blueprint
from blueprint.file.model.scaling import ScalingRules
from ops.simulate.capacity import FleetPlan, Overrides, fleet_plans
from ops.simulate.policies import policies
from ops.simulate.report import summarize
from ops.simulate.run import Settings, Simulation
from ops.simulate.traces import Trace, diurnal

FILE = Path(__file__).parents[1] / "deployments/production-us-east-1.yaml"
PEAK = 1_000_000
CALL_S = 180.0
SMALL_PEAK, SMALL_S = 10_000, 600.0
TARGET_S, TARGET_MIB = 60, 1024


@dataclass(frozen=True)
class Run:
    """One simulation's cost."""

    seconds: float
    peak_mib: float
    calls: int
    call_seconds: float
    most_carried: int
    refused: int


def scaled(peak: float) -> tuple[FleetPlan, ...]:
    """Return the production file's fleets, with as many more hosts as the peak needs, and steps as much larger."""
    plans = fleet_plans(blueprint.load(FILE), Overrides({}, {}))
    factor = max(1, round(1.25 * peak / sum(plan.max_hosts * plan.places for plan in plans[1:])))
    return tuple(_times(plan, factor) for plan in plans)


def _times(plan: FleetPlan, factor: int) -> FleetPlan:
    groups = tuple(
        replace(group, min_hosts=group.min_hosts * factor, max_hosts=group.max_hosts * factor) for group in plan.groups
    )
    rules: ScalingRules = tuple(
        rule.model_copy(
            update={
                "steps": tuple(step.model_copy(update={"adjustment": step.adjustment * factor}) for step in rule.steps)
            }
        )
        for rule in plan.rules
    )
    return replace(plan, groups=groups, rules=rules)


def simulate(trace: Trace, *, one_by_one: bool) -> Run:
    """Simulate with the file's own policy, and measure."""
    plans = scaled(trace.peak)
    settings = Settings(
        zones=plans[1].groups[0].zones, call_s=CALL_S, cross_zone=False, seed=1, one_by_one=one_by_one, lead_in_s=0
    )
    start = time.perf_counter()
    result = Simulation(plans, policies(plans)[-1], trace, settings).run()
    seconds = time.perf_counter() - start
    return Run(
        seconds=seconds,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        calls=result.ledger.offered,
        call_seconds=float(result.course.carried.sum()) * result.tick_s,
        most_carried=int(result.course.carried.max()),
        refused=summarize(result).refused_calls,
    )


def bulk_day() -> Run:
    """Simulate the day of a million calls in bulk."""
    return simulate(diurnal(PEAK), one_by_one=False)


def small_load(*, one_by_one: bool) -> Run:
    """Simulate a steady small load."""
    return simulate(Trace("steady", (0.0, SMALL_S), (SMALL_PEAK, SMALL_PEAK)), one_by_one=one_by_one)


def small_in_bulk() -> Run:
    """Simulate a steady small load in bulk."""
    return small_load(one_by_one=False)


def small_one_by_one() -> Run:
    """Simulate a steady small load call by call."""
    return small_load(one_by_one=True)


def _alone(what: Callable[[], Run]) -> Run:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(what)


def main() -> None:
    """Measure and print."""
    console = Console()
    console.width = max(console.width, 100)
    with console.status("a day of a million calls, in bulk"):
        day = _alone(bulk_day)
    with console.status("a small load, both ways"):
        bulk, single = _alone(small_in_bulk), _alone(small_one_by_one)
    times = day.call_seconds / single.call_seconds
    alive = day.most_carried / single.most_carried
    grown = max(0.0, single.peak_mib - bulk.peak_mib)
    table = Table(title="simulating calls, each in a process of its own", title_justify="left")
    for heading in ("", "calls", "most at a time", "refused", "wall s", "peak MiB"):
        table.add_column(heading, justify="right" if heading else "left")
    minutes = f"{SMALL_S / 60:g} min"
    for name, run in {
        "day, in bulk": day,
        f"{minutes}, in bulk": bulk,
        f"{minutes}, one by one": single,
    }.items():
        table.add_row(
            name, f"{run.calls:,}", f"{run.most_carried:,}", f"{run.refused:,}", f"{run.seconds:,.1f}",
            f"{run.peak_mib:,.0f}",
        )  # fmt: skip
    table.add_row(
        "day, one by one (extrapolated)", f"{day.calls:,}", f"{day.most_carried:,}", "",
        f"{single.seconds * times:,.0f}", f"{bulk.peak_mib + grown * alive:,.0f}",
    )  # fmt: skip
    console.print(table)
    console.print(
        f"the day in bulk: {day.seconds:.1f} s, target at most {TARGET_S}; {day.peak_mib:.0f} MiB, target at most "
        f"{TARGET_MIB}; {single.seconds * times / day.seconds:,.0f} times as fast as one by one"
    )


if __name__ == "__main__":
    main()
