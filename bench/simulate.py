"""A day of a million calls, simulated: `python -m bench.simulate`.

The deployment is the shipped production file with its bounds and steps multiplied until a million calls have places.
"""

import resource
import time
from dataclasses import replace
from pathlib import Path

import blueprint
from ops.output import err, out
from ops.simulate.capacity import FleetPlan, fleet_plans
from ops.simulate.policies import own
from ops.simulate.run import Settings, Simulation
from ops.simulate.traces import diurnal

FILE = Path(__file__).parents[1] / "deployments/production-us-east-1.yaml"
PEAK = 1_000_000
CALL_S = 180.0
TARGET_S, TARGET_MIB = 60, 1024


def scaled(peak: float) -> tuple[FleetPlan, ...]:
    """Return the production file's fleets, with as many more hosts as the peak needs, and steps as much larger."""
    plans = fleet_plans(blueprint.load(FILE), {})
    factor = max(1, round(1.25 * peak / sum(plan.max_hosts * plan.places for plan in plans[1:])))
    return tuple(_times(plan, factor) for plan in plans)


def _times(plan: FleetPlan, factor: int) -> FleetPlan:
    groups = tuple(
        replace(group, min_hosts=group.min_hosts * factor, max_hosts=group.max_hosts * factor) for group in plan.groups
    )
    larger = [
        tuple(step.model_copy(update={"adjustment": step.adjustment * factor}) for step in rule.steps)
        for rule in plan.rules
    ]
    rules = (rule.model_copy(update={"steps": steps}) for rule, steps in zip(plan.rules, larger, strict=True))
    return replace(plan, groups=groups, rules=tuple(rules))


def main() -> None:
    """Simulate with the file's own policy, and print what it cost."""
    plans = scaled(PEAK)
    settings = Settings(zones=plans[1].groups[0].zones, call_s=CALL_S, cross_zone=False, seed=1, lead_in_s=0)
    with err.status("a day of a million calls"):
        start = time.perf_counter()
        result = Simulation(plans, own(plans), diurnal(PEAK), settings).run()
        seconds = time.perf_counter() - start
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out.print(
        f"{result.ledger.offered:,} calls, at most {int(result.course.carried.max()):,} at a time, "
        f"{result.ledger.refused:,} refused: {seconds:.1f} s, target at most {TARGET_S}; {peak_mib:.0f} MiB, "
        f"target at most {TARGET_MIB}",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
