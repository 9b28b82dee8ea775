"""A sample of cells represents all. A lost cell drops its calls, and other cells receive its callers."""

from dataclasses import replace

import pytest

import voice_blueprint
from bench.simulate import load_production_cell
from tests.ops.simulate.worlds import PRODUCTION, asr, steady, vad
from tests.ops.simulate.worlds import SETTINGS as FINE
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad, Cells
from voice_ops.simulate.cells import (
    CELL_LOSS_TRACE_NAMES,
    combine_cells,
    count_lost_cells,
    create_cell_loss_trace,
    simulate_cells,
)
from voice_ops.simulate.policies import create_configured_policy
from voice_ops.simulate.traces import FAILURE_DETECTION_S, REGION_LOST_S

PLANS = (vad(), asr(4, 8))
SETTINGS = replace(FINE, tick_s=10)
CELLS = 12


def test_a_sample_of_cells_represents_all() -> None:
    trace = steady(150, 1_800)
    few, all_of_them = (
        combine_cells(simulate_cells(PLANS, create_configured_policy(PLANS), trace, SETTINGS, count), CELLS, trace)
        for count in (3, CELLS - 1)
    )
    for figure in ("offered", "usd"):
        assert getattr(few, figure) == pytest.approx(getattr(all_of_them, figure), rel=0.05), figure
    assert few.most == pytest.approx((CELLS - 1) * 150, rel=0.15)
    assert all_of_them.most == pytest.approx((CELLS - 1) * 150, rel=0.1)
    assert few.cells == CELLS


def test_each_cell_has_its_own_callers() -> None:
    one, other = simulate_cells(PLANS, create_configured_policy(PLANS), steady(150), SETTINGS, 2)
    assert one.call_results.offered != other.call_results.offered


def test_calls_of_a_lost_cell_are_dropped_and_its_callers_use_other_cells() -> None:
    trace = create_cell_loss_trace(120, CELLS, 2, "cell-loss")
    assert trace.calls[0] == pytest.approx(120 * (CELLS - 1) / CELLS)
    assert trace.interpolate_calls(REGION_LOST_S + FAILURE_DETECTION_S) == pytest.approx(trace.calls[0])
    # Before the loss there are the calls of fewer cells.
    assert trace.peak * (CELLS - 2) == pytest.approx(trace.calls[0] * CELLS)
    found = combine_cells(simulate_cells(PLANS, create_configured_policy(PLANS), trace, SETTINGS), CELLS, trace, 2)
    assert found.cut == pytest.approx(2 * trace.calls[0], abs=1)
    assert found.refused >= 2 * trace.calls[0] / SETTINGS.mean_call_s * FAILURE_DETECTION_S
    assert found.missed_share < 0.05
    assert found.most == pytest.approx(CELLS * trace.calls[0], rel=0.1)


def test_each_cell_is_sized_for_the_loss_of_another() -> None:
    assert create_cell_loss_trace(120, CELLS, 1, "cell-loss").peak == pytest.approx(120)


def two_regions(per_account: int) -> Deployment:
    deployment = voice_blueprint.load(PRODUCTION)
    load = CallLoad(calls=10_000, peak_factor=10, conversation_share=0.05)
    return deployment.model_copy(update={"load": load, "cells": Cells(calls=12_000, per_account=per_account)})


@pytest.mark.parametrize(("name", "expected"), [("cell-loss", 1), ("account-loss", 4)])
def test_a_loss_removes_the_expected_number_of_cells(name: str, expected: int) -> None:
    assert two_regions(4).cell_count == 10
    assert count_lost_cells(two_regions(4).cell, name) == expected


@pytest.mark.parametrize(("per_account", "name"), [(10, "account-loss"), (4, "cell-region-loss")])
def test_a_loss_of_all_cells_is_refused(per_account: int, name: str) -> None:
    with pytest.raises(ValueError, match="all 10 cells are lost"):
        count_lost_cells(two_regions(per_account).cell, name)


@pytest.mark.parametrize("name", CELL_LOSS_TRACE_NAMES)
def test_a_file_without_cells_loses_none(name: str) -> None:
    with pytest.raises(ValueError, match="needs only one cell"):
        count_lost_cells(voice_blueprint.load(PRODUCTION), name)


def test_the_cell_bench_simulates_a_million_calls() -> None:
    cell = load_production_cell(1_000_000)
    assert cell.whole_deployment
    assert cell.whole_deployment.load
    assert cell.whole_deployment.load.calls * cell.whole_deployment.load.peak_factor == 1_000_000
    assert cell.whole_deployment.cell_count == 85
