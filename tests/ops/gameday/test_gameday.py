"""Drills, output and refusals of `voice gameday`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from tests.blueprint.documents import DEPLOYMENTS, edit_document, load_text
from tests.contract.sources import deployment
from tests.excerpts import recorded, render_screen
from tests.nonempty import nonempty
from tests.synthesized import ROOT
from voice_ops.cli import app
from voice_ops.gameday import command
from voice_ops.gameday.command import RUNBOOKS_BY_SCENARIO, ScenarioResult, ScenarioRunbooks, list_runbook_pages
from voice_ops.gameday.simulated import MEAN_CALL_S, ScenarioEffect, simulate_scenarios
from voice_ops.simulate import run
from voice_ops.simulate.capacity import PEAK_FRACTION, TRANSCRIBING_KINDS, create_fleet_plans

SHIPPED_DEPLOYMENTS = sorted(file.stem for file in DEPLOYMENTS.glob("*.yaml"))


def gameday(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["gameday", *arguments])


@pytest.mark.parametrize("name", SHIPPED_DEPLOYMENTS)
def test_every_scenario_of_a_shipped_file_has_an_existing_runbook(name: str) -> None:
    of = voice_blueprint.load(DEPLOYMENTS / f"{name}.yaml")
    for scenario in RUNBOOKS_BY_SCENARIO:
        for page in nonempty(list_runbook_pages(of, scenario)):
            assert (ROOT / "docs/runbooks" / page).exists(), page


def test_losses_cost_calls_and_the_fleets_recover() -> None:
    found = simulate_scenarios(deployment("production-us-east-1"))
    assert found.keys() <= RUNBOOKS_BY_SCENARIO.keys()
    outage, quota = found["zone loss"], found["quota refusal"]
    assert isinstance(outage, ScenarioEffect)
    assert isinstance(quota, ScenarioEffect)
    assert outage.lost > 0
    assert "gateway-unhealthy" in outage.fired
    assert "asr-slots-exhausted" in quota.fired
    # A zone returns after an hour; without a quota for more hosts, excess calls are refused until the load drops. Calls
    # move to
    # the hosts of the other zones; if fewer are cut than calls vary by, the recovery takes 0 s.
    assert outage.recovers_s is not None
    assert outage.recovers_s < 3_600
    assert quota.lost > 1_000


def test_an_inapplicable_scenario_reports_the_reason() -> None:
    assert simulate_scenarios(deployment("small"))["spot wave"] == "the file has no spot fleet"


def in_two_regions(name: str, folder: Path) -> voice_blueprint.Deployment:
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a", "us-west-2b"]}
    text = (DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8")
    return load_text(edit_document({"aws.other_regions": [west]}, text), folder).split_by_region()[1]


def test_a_lost_region_loses_calls_until_dns_redirects(tmp_path: Path) -> None:
    """Half of all calls are in the region; new ones arrive until health checks and DNS caches (30 s each) expire."""
    small = in_two_regions("small", tmp_path)
    assert small.load is not None
    places = sum(
        plan.max_hosts * plan.slots for plan in create_fleet_plans(small, {}) if plan.kind in TRANSCRIBING_KINDS
    )
    found = simulate_scenarios(small)["region loss"]
    assert isinstance(found, ScenarioEffect)
    there = PEAK_FRACTION * places / 2
    assert found.lost >= there * (1 + 60 / MEAN_CALL_S) - 1
    assert found.recovers_s is not None
    assert 90 <= found.recovers_s <= 3_600
    assert "procedures/region-loss.md" in list_runbook_pages(small, "region loss")
    assert simulate_scenarios(deployment("small"))["region loss"] == "the file has one region"


def no_drills(_: object) -> Iterator[ScenarioResult]:
    return iter(())


def test_a_scenario_without_a_runbook_is_reported_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_run_drills", no_drills)
    monkeypatch.setitem(RUNBOOKS_BY_SCENARIO, "zone loss", ScenarioRunbooks(("an-alert-of-no-file",), ()))
    result = gameday("deployments/small.yaml")
    assert result.exit_code == 1
    assert "zone loss: no alert of this file has a runbook for it" in result.stdout


def test_a_fault_that_costs_calls_and_fires_no_alert_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_run_drills", no_drills)
    monkeypatch.setattr(run, "list_replayable_alerts", lambda *_: ())
    result = gameday("deployments/small.yaml")
    assert result.exit_code == 1
    assert "quota refusal: no alert with the runbook asr-slots-exhausted.md" in " ".join(result.stdout.split())


def test_a_failed_drill_is_reported_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_drill(_: object) -> Iterator[ScenarioResult]:
        yield ScenarioResult(
            "bad image", None, None, 3.0, "the local AWS", ("procedures/rollback.md",), ("hosts run what they ran",)
        )

    monkeypatch.setattr(command, "_run_drills", failing_drill)
    result = gameday("deployments/small.yaml", "--json")
    assert result.exit_code == 1
    *simulated, drilled = json.loads(result.stdout)["scenarios"]
    assert all(row["passed"] for row in simulated)
    assert (drilled["scenario"], drilled["claims"]) == ("bad image", ["hosts run what they ran"])


@pytest.mark.nightly
@pytest.mark.sandbox
def test_a_deployment_recovers_from_every_scenario() -> None:
    """On every change `test_screens.py` only compares the simulated losses with this screen."""

    def printed() -> str:
        result = gameday("deployments/sandbox.yaml")
        assert result.exit_code == 0, result.output
        return result.stdout

    screen = render_screen(printed)
    for scenario in RUNBOOKS_BY_SCENARIO:
        assert scenario in screen
    assert "✗" not in screen
    assert without_durations(screen) == without_durations(
        recorded("voice gameday deployments/sandbox.yaml").partition("── stderr")[0]
    )


def without_durations(screen: str) -> str:
    """Return a screen without the durations of drills on the local AWS."""
    return re.sub(r"\d+ s +✓(?=\n +by: the local AWS)", "N s ✓", screen).rstrip()
