"""What `voice gameday` plays, prints and refuses."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

import blueprint
from ops.cli import app
from ops.gameday import command
from ops.gameday.command import SCENARIOS, Row, Runbooks, runbooks
from ops.gameday.simulated import Effect, play
from tests.blueprint.documents import DEPLOYMENTS
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
