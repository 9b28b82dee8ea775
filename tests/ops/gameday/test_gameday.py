"""What `voice gameday` plays, prints and refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import blueprint
from ops.cli import app
from ops.gameday import command
from ops.gameday.command import SCENARIOS, Row, Runbooks, runbooks
from ops.gameday.simulated import CALL_S, Effect, play
from ops.simulate.capacity import PEAK_SHARE, RECOGNISES, fleet_plans
from tests.blueprint.documents import DEPLOYMENTS, edited, load_text
from tests.contract.sources import deployment
from tests.synthesized import ROOT

SHIPPED = sorted(file.stem for file in DEPLOYMENTS.glob("*.yaml"))


def gameday(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["gameday", *arguments])


@pytest.mark.parametrize("name", SHIPPED)
def test_every_scenario_of_a_shipped_file_has_a_runbook_that_is_written(name: str) -> None:
    of = blueprint.load(DEPLOYMENTS / f"{name}.yaml")
    for scenario in SCENARIOS:
        for page in runbooks(of, scenario):
            assert (ROOT / "docs/runbooks" / page).exists(), page


def test_losses_cost_calls_and_the_fleets_recover() -> None:
    found = play(deployment("production-us-east-1"))
    assert found.keys() <= SCENARIOS.keys()
    outage, quota = found["zone loss"], found["quota refusal"]
    assert isinstance(outage, Effect)
    assert isinstance(quota, Effect)
    assert outage.lost > 0
    assert outage.recovers_s
    # A zone is back after an hour; without a quota for more hosts the crowd is refused until it has gone.
    assert outage.recovers_s < 3_600
    assert quota.lost > 1_000


def test_what_cannot_happen_to_a_file_says_why() -> None:
    assert play(deployment("small"))["spot wave"] == "no fleet of the file is bought as spot"


def in_two(name: str, folder: Path) -> blueprint.Deployment:
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a", "us-west-2b"]}
    text = (DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8")
    return load_text(edited({"aws.other_regions": [west]}, text), folder).in_regions()[1]


def test_a_lost_region_costs_its_calls_and_those_that_come_before_its_name_leads_away(tmp_path: Path) -> None:
    """Half of all calls are there, and new ones come for 30 s of checks and half of the 60 s of a resolver."""
    small = in_two("small", tmp_path)
    assert small.load is not None
    places = sum(plan.max_hosts * plan.places for plan in fleet_plans(small, {}) if plan.kind in RECOGNISES)
    found = play(small)["region loss"]
    assert isinstance(found, Effect)
    there = PEAK_SHARE * places / 2
    assert found.lost >= there * (1 + 60 / CALL_S) - 1
    assert found.recovers_s is not None
    assert 90 <= found.recovers_s <= 3_600
    assert "procedures/region-loss.md" in runbooks(small, "region loss")
    assert play(deployment("small"))["region loss"] == "the file has one region"


def none_rehearsed(_: object) -> Iterator[Row]:
    return iter(())


def test_a_scenario_without_a_runbook_is_named_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_rehearsed", none_rehearsed)
    monkeypatch.setitem(SCENARIOS, "zone loss", Runbooks(("an-alert-of-no-file",), ()))
    result = gameday("deployments/small.yaml")
    assert result.exit_code == 1
    assert "zone loss: no alert of this file leads to a runbook for it" in result.stdout


def test_a_drill_that_goes_wrong_is_named_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> Iterator[Row]:
        yield Row(
            "bad image", None, None, 3.0, "the local AWS", ("procedures/rollback.md",), ("hosts run what they ran",)
        )

    monkeypatch.setattr(command, "_rehearsed", broken)
    result = gameday("deployments/small.yaml", "--json")
    assert result.exit_code == 1
    *simulated, drilled = json.loads(result.stdout)["scenarios"]
    assert all(row["passed"] for row in simulated)
    assert (drilled["scenario"], drilled["claims"]) == ("bad image", ["hosts run what they ran"])


@pytest.mark.nightly
@pytest.mark.sandbox
def test_a_file_lives_through_its_bad_day() -> None:
    result = gameday("deployments/sandbox.yaml")
    assert result.exit_code == 0, result.output
    for scenario in SCENARIOS:
        assert scenario in result.stdout
    assert "✗" not in result.stdout
