"""Simulation of a sample of cells, from which the results for all cells in a deployment are extrapolated.

Cells share nothing, and a router distributes callers randomly: it selects a cell by the hash of a session. Each cell is
therefore the same simulation with other callers, and a few of them represent all. The calls of a lost cell are cut off.
Its callers are refused until the router detects the loss, and then use the other cells.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from voice_blueprint.aws.edge import ALIAS_TTL_S
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.simulate.capacity import FleetPlan
from voice_ops.simulate.policies import Policy
from voice_ops.simulate.report import summarize_result
from voice_ops.simulate.run import DAY_TICK_S, PolicyResult, Simulation, SimulationSettings
from voice_ops.simulate.traces import FAILURE_DETECTION_S, REGION_LOST_S, REGION_RESTORED_S, LoadTrace

SIMULATED_CELL_COUNT = 3
"""Number of simulated cells, with different callers."""
CELL_LOSS_TRACE_NAMES = ("cell-loss", "account-loss", "cell-region-loss")
"""Values of ``--load`` for a loss at the peak: one cell, the cells in an account, or the cells in a region."""
CELL_TICK_S = DAY_TICK_S
"""Tick of a simulated cell, s, also for short traces. Results differ more between samples than between ticks of 1 s and
10 s."""
_DURATION_S = 120 * 60.0


@dataclass(frozen=True)
class TotalResults:
    """Results for the callers of all cells.

    Attributes:
        cells: Number of cells.
        lost: Number of lost cells.
        offered: Number of callers, including those of lost cells.
        refused: Callers who gave up, including those of a cell whose loss was not yet detected.
        cut: Calls that ended with their cell or host.
        most: Concurrent calls at the time of the maximum demand.
        usd: List price of the hosts during the trace.
    """

    cells: int
    lost: int
    offered: int
    refused: int
    cut: int
    most: int
    usd: float

    @property
    def missed_share(self) -> float:
        """Share of refused or cut-off callers, 0 to 1."""
        return (self.refused + self.cut) / max(1, self.offered)

    def __str__(self) -> str:
        lost = f", of which {self.lost:,} are lost" if self.lost else ""
        return (
            f"all {self.cells:,} cells{lost}: {self.offered:,} calls, at most {self.most:,} at a time, "
            f"{self.refused:,} refused and {self.cut:,} cut ({self.missed_share:.2%}), {self.usd:,.0f} USD"
        )


def count_lost_cells(deployment: Deployment, name: str) -> int:
    """Return the number of cells that are affected if the named component is lost.

    Raises:
        ValueError: The file has no cells, or the loss would affect all of them.
    """
    whole_deployment = deployment.whole_deployment
    if whole_deployment is None or not whole_deployment.cells or whole_deployment.cell_count == 1:
        raise ValueError(f"--load {name}: the load needs only one cell; set `cells` in the file")
    count, regions = (
        whole_deployment.cell_count,
        len(whole_deployment.file_regions) if whole_deployment.aws_section else 1,
    )
    lost = {
        "cell-loss": 1,
        "account-loss": min(whole_deployment.cells.per_account, count),
        "cell-region-loss": count // regions,
    }
    if lost[name] >= count:
        raise ValueError(f"--load {name}: all {count} cells are lost, so none can serve the calls")
    return lost[name]


def create_cell_loss_trace(peak: float, count: int, lost: int, name: str) -> LoadTrace:
    """Return the trace of a remaining cell while others are lost from minute 20 to minute 80.

    Args:
        peak: Calls of a cell while one is lost.
        count: Number of cells.
        lost: Number of lost cells.
    """
    before = peak * (count - 1) / count
    during = before * count / (count - lost)
    detected, restored = REGION_LOST_S + FAILURE_DETECTION_S, REGION_RESTORED_S
    points = {
        0.0: before,
        detected: before,
        detected + ALIAS_TTL_S: during,
        restored: during,
        restored + ALIAS_TTL_S: before,
        _DURATION_S: before,
    }
    return LoadTrace(name, tuple(points), tuple(points.values()))


def simulate_cells(
    plans: tuple[FleetPlan, ...],
    policy: Policy,
    trace: LoadTrace,
    settings: SimulationSettings,
    count: int = SIMULATED_CELL_COUNT,
) -> list[PolicyResult]:
    """Simulate ``count`` cells, each with different callers."""
    return [
        Simulation(plans, policy, trace, replace(settings, seed=settings.seed + number)).run()
        for number in range(count)
    ]


def combine_cells(results: Sequence[PolicyResult], count: int, trace: LoadTrace, lost: int = 0) -> TotalResults:
    """Extrapolate the results of the simulated cells to all cells.

    Args:
        results: Results of simulated cells with the trace.
        count: Number of cells; without a loss, all but one have the trace, and the last is spare.
        lost: Number of lost cells, whose calls the trace of the other cells contains as well.
    """
    unaffected = count - (lost or 1)

    def extrapolate(figure: Callable[[PolicyResult], float]) -> int:
        return round(unaffected / len(results) * sum(figure(result) for result in results))

    lost_calls = trace.calls[0] * lost
    undetected = lost_calls / results[0].mean_call_s * (FAILURE_DETECTION_S + ALIAS_TTL_S / 2)
    carried, requested = (
        np.mean([getattr(each.time_series, name) for each in results], axis=0) for name in ("carried", "wanted")
    )
    # Use the time of the maximum demand, not that of the sample's maximum, since many cells vary less in total. Lost
    # calls were served before the loss.
    busiest = np.flatnonzero(requested == requested.max())[-1]
    peak = max(unaffected * float(carried[busiest]), lost_calls + unaffected * float(carried[0]))
    return TotalResults(
        cells=count,
        lost=lost,
        offered=extrapolate(lambda result: result.call_results.offered) + round(lost_calls + undetected),
        refused=extrapolate(lambda result: result.call_results.refused) + round(undetected),
        cut=extrapolate(lambda result: result.call_results.cut) + math.ceil(lost_calls),
        most=round(peak),
        # Hosts of spare and of lost cells are charged as well.
        usd=count * float(np.mean([summarize_result(result).usd for result in results])),
    )
