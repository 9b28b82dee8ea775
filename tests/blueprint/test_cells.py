"""Cells: copies of a deployment that share a load above the capacity of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import voice_blueprint
from tests.blueprint.documents import DEPLOYMENTS, load_text
from tests.synthesized import ROOT
from voice_blueprint import DeploymentFileError, checks
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad, Cells

PRODUCTION = voice_blueprint.load(ROOT / "deployments/production-us-east-1.yaml")


def with_cells(calls: int, of_cell: int, per_account: int = 10) -> Deployment:
    load = CallLoad(calls=calls, peak_factor=10, conversation_share=0.05)
    return PRODUCTION.model_copy(update={"load": load, "cells": Cells(calls=of_cell, per_account=per_account)})


@given(calls=st.integers(1, 10**7), of_cell=st.integers(1, 10**6), regions=st.integers(1, 5))
def test_all_cells_but_one_support_the_peak(calls: int, of_cell: int, regions: int) -> None:
    load = CallLoad(calls=calls, peak_factor=2)
    count = Cells(calls=of_cell).calculate_cell_count(load, regions)
    if count == 1:
        assert calculate_peak_calls(load) <= of_cell
        return
    assert count % regions == 0
    assert (count - 1) * of_cell >= calculate_peak_calls(load)
    assert (count - 1 - regions) * of_cell < calculate_peak_calls(load)


def test_a_cell_is_the_deployment_with_its_share_of_the_load() -> None:
    whole = with_cells(100_000, 12_000)
    (cell,) = whole.split_by_region()
    assert whole.cell_count == 85
    assert cell.whole_deployment is whole
    assert cell.cells is None
    assert cell.load
    assert 84 * cell.load.calls >= 100_000
    assert calculate_peak_calls(cell.load) <= 12_000
    assert cell.aws is PRODUCTION.aws
    assert cell.source is PRODUCTION.source


def test_a_load_that_fits_one_cell_has_no_second_cell() -> None:
    whole = with_cells(1_200, 12_000)
    assert (whole.cell_count, whole.cell.load) == (1, whole.load)


def test_checks_examine_a_single_cell() -> None:
    assert not [found for found in checks.run_checks(with_cells(100_000, 12_000)) if found.is_blocking]
    refused = [found.check.id for found in checks.run_checks(with_cells(100_000, 24_000)) if found.is_blocking]
    assert "load-fits-tiers" in refused


def test_cells_without_a_load_are_refused(tmp_path: object) -> None:
    text = (DEPLOYMENTS / "small.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("load:")]
    with pytest.raises(DeploymentFileError, match="`cells` requires `load`"):
        load_text("\n".join([*lines, "cells: {calls: 10}"]), tmp_path)  # type: ignore[arg-type]
