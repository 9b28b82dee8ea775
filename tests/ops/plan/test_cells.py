"""`voice plan` for more calls than a state store supports: cells, accounts, quotas and price."""

import json
import math

import pytest
from typer.testing import CliRunner

import voice_blueprint
from tests.synthesized import ROOT
from voice_blueprint.file.model.load import CallLoad, Cells
from voice_ops.cli import app
from voice_ops.cost.prices import HOURS_PER_MONTH
from voice_ops.needs import calculate_required_vcpus
from voice_ops.plan.cells import CellPlan, plan_cells
from voice_ops.simulate.capacity import create_fleet_plans

FILES = {"production-us-east-1": "us-east-1", "production-azure": "southcentralus"}


def plan_json(name: str, calls: int) -> dict[str, object]:
    done = CliRunner().invoke(app, ["plan", str(ROOT / f"deployments/{name}.yaml"), "--calls", str(calls), "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", FILES)
def test_a_million_calls_need_cells_of_the_designed_size(name: str) -> None:
    deployment = voice_blueprint.load(ROOT / f"deployments/{name}.yaml")
    assert deployment.load
    cells = plan_json(name, 1_000_000)["cells"]
    assert isinstance(cells, dict)
    peak = 1_000_000 * deployment.load.peak_factor
    own = deployment.load.calls * deployment.load.peak_factor
    assert cells["cells"] == math.ceil(peak / own) + 1
    assert cells["peak"] == peak
    assert own - 20 <= cells["cell_peak"] <= own
    assert cells["accounts"] == math.ceil(cells["cells"] / 10)
    assert cells["quotas"]


def test_a_load_that_a_larger_store_supports_needs_no_cells() -> None:
    assert "cells" not in plan_json("production-us-east-1", 1_200)


def plan(per_account: int = 10) -> CellPlan:
    deployment = voice_blueprint.load(ROOT / "deployments/production-us-east-1.yaml")
    load = CallLoad(calls=100_000, peak_factor=10, conversation_share=0.05)
    cells = Cells(calls=12_000, per_account=per_account)
    found = plan_cells(deployment.model_copy(update={"load": load, "cells": cells}))
    assert found
    return found


def test_quotas_cover_the_cells_of_one_account() -> None:
    deployment = voice_blueprint.load(ROOT / "deployments/production-us-east-1.yaml")
    one, ten = plan(1), plan(10)
    assert (one.account_cells, ten.account_cells, one.accounts, ten.accounts) == (1, 10, 85, 9)
    needs = {family: most for (family, _), (_, most) in calculate_required_vcpus(deployment).items()}
    vcpus = {quota.name: quota.needed for quota in one.quotas}
    assert sorted(needs.values()) == sorted(vcpus[quota.name] for quota in one.quotas if quota.code in {
        "L-1216C47A", "L-1945791B", "L-2C3B7624", "L-417A185B"})  # fmt: skip
    for alone, together in zip(one.quotas, ten.quotas, strict=True):
        of_account = "vCPU" in alone.name or "instances" in alone.name or alone.code in {
            "L-DF5E4CA3", "L-8BC498D4", "L-8A5B8E43", "L-0485CB21"}  # fmt: skip
        assert together.needed == pytest.approx((10 if of_account else 1) * alone.needed, rel=0.01), alone.name


def test_usd_is_the_list_price_of_all_hosts() -> None:
    plans = create_fleet_plans(voice_blueprint.load(ROOT / "deployments/production-us-east-1.yaml"), {})
    low, most = (
        85
        * HOURS_PER_MONTH
        * sum((each.usd_per_hour or 0) * sum(getattr(g, bound) for g in each.groups) for each in plans)
        for bound in ("min_hosts", "max_hosts")
    )
    assert plan().usd_per_month == pytest.approx((low, most))
