"""Simulates a million concurrent calls in cells: `python -m bench.simulate`.

A cell is a deployment of the shipped production file, which serves 12,000 calls. The simulation covers a day of all
cells, and the loss of an account.
"""

import resource
import time
from pathlib import Path

import voice_blueprint
from bench.goals import Goal, report_goals
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import Cells
from voice_ops.output import err, out
from voice_ops.simulate.capacity import calculate_max_store_calls, create_fleet_plans
from voice_ops.simulate.cells import (
    CELL_TICK_S,
    TotalResults,
    combine_cells,
    count_lost_cells,
    create_cell_loss_trace,
    simulate_cells,
)
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.run import SimulationSettings
from voice_ops.simulate.traces import LoadTrace, create_design_day_trace

DEPLOYMENT_FILE = Path(__file__).parents[1] / "deployments/production-us-east-1.yaml"
PEAK_CALLS = 1_000_000
MAX_S, MAX_MIB = 30, 200
MAX_MISSED_PERCENT = 1.0
"""Maximum percentage of callers who are refused or cut off during the day."""
MIN_SERVED_PERCENT = 99.0
"""Minimum percentage of the peak that is served concurrently."""


def load_production_cell(peak: int) -> Deployment:
    """Return a cell from the production file for a load with the given peak."""
    deployment = voice_blueprint.load(DEPLOYMENT_FILE)
    load = resolve_design_load(deployment)
    cells = Cells(calls=calculate_peak_calls(load))
    scaled_load = load.model_copy(update={"calls": round(peak / load.peak_factor)})
    (cell,) = deployment.model_copy(update={"load": scaled_load, "cells": cells}).split_by_region()
    return cell


def simulate_all_cells(cell: Deployment, trace: LoadTrace, lost: int = 0) -> TotalResults:
    """Simulate all cells with the scaling rules in the file, and return the combined results."""
    plans, total = create_fleet_plans(cell, {}), cell.whole_deployment
    assert total is not None  # noqa: S101  it is a cell
    settings = SimulationSettings(
        zones=cell.aws.availability_zones,
        mean_call_s=60 * resolve_design_load(cell).minutes_each,
        cross_zone=cell.aws.edge.cross_zone,
        seed=1,
        store_call_limit=calculate_max_store_calls(cell),
        tick_s=CELL_TICK_S,
    )
    return combine_cells(
        simulate_cells(plans, create_configured_policy(plans), trace, settings), total.cell_count, trace, lost
    )


def main() -> None:
    """Simulate a day and the loss of an account, and compare the results and the cost with the goals."""
    cell = load_production_cell(PEAK_CALLS)
    lost = count_lost_cells(cell, "account-loss")
    with err.status("a day of a million calls, and the loss of an account"):
        start = time.process_time()
        day = simulate_all_cells(cell, create_design_day_trace(cell))
        total = cell.whole_deployment
        assert total is not None  # noqa: S101  it is a cell
        outage = simulate_all_cells(
            cell,
            create_cell_loss_trace(
                calculate_peak_calls(resolve_design_load(cell)), total.cell_count, lost, "account-loss"
            ),
            lost,
        )
        seconds = time.process_time() - start
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out.print(f"a day: {day}", soft_wrap=True)
    out.print(f"an account is lost: {outage}", soft_wrap=True)
    report_goals(
        (
            Goal("CPU", seconds, MAX_S, " s"),
            Goal("memory", peak_mib, MAX_MIB, " MiB"),
            Goal("missed on the day", 100 * day.missed_share, MAX_MISSED_PERCENT, " %"),
            Goal("carried at the peak", 100 * day.most / PEAK_CALLS, MIN_SERVED_PERCENT, " %", is_minimum=True),
            Goal(
                "calls that are interrupted by the loss of their account",
                outage.cut,
                1.05 * PEAK_CALLS * lost / total.cell_count,
            ),
        )
    )


if __name__ == "__main__":
    main()
