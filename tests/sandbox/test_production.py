"""`voice sandbox` rehearses the files of production and staging."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import voice_blueprint
from tests.blueprint.documents import edit_document
from tests.excerpts import NARROW, compare, render_screen, screens
from voice_blueprint.shipped import ROOT
from voice_ops.cli import app
from voice_sandbox.rehearsals.aws import Rehearsal

pytestmark = [pytest.mark.sandbox]


def rehearse(file: Path) -> str:
    result = CliRunner().invoke(app, ["sandbox", str(file)])
    assert result.exit_code == 0, result.output
    return result.stdout


def rehearsal_screen(name: str) -> str:
    """Rehearse a shipped file, and return the output at the narrowest width."""
    return screens(
        f"voice sandbox deployments/{name}.yaml",
        {NARROW: render_screen(lambda: rehearse(ROOT / f"tests/deployments/{name}.yaml"))},
    )


@pytest.mark.nightly
def test_production_starts_without_hosts_and_scales_out() -> None:
    with Rehearsal(voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")) as rehearsal:
        rehearsal.bootstrap()
        rehearsal.cdk.deploy()
        assert [claim.text for claim in rehearsal.verify() if not claim.passed] == []
        outcomes = list(rehearsal.run_drills())
        assert [outcome.scenario.name for outcome in outcomes if not outcome.passed] == []
        vad = next(outcome for outcome in outcomes if outcome.scenario.fleet == "vad" and outcome.scenario.should_fire)
        assert (set(vad.capacities_before.values()), set(vad.capacities_after.values())) == ({0}, {1})


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "fleet", "also_kept"), [("production-us-east-1", "inf2", {"log group", "secret"}), ("small", "cpu", set())]
)
def test_a_deployment_passes_the_first_month_of_operations(name: str, fleet: str, also_kept: set[str]) -> None:
    """Covers a retried create, a rollback by an alarm, an AMI, password rotation, a restore, and teardown."""
    said = rehearse(ROOT / f"tests/deployments/{name}.yaml")
    for claim in (
        "a first deploy that fails",
        f"{name}-asr-{fleet} goes back",
        f"hosts of {name}-{fleet} run what they ran",
        f"every host of {name}-{fleet} is another one",
        "two passwords let each user in meanwhile, and one at the end",
        "no host is replaced",
        "its sessions are there",
        "each store has a final snapshot",
        "a repeated teardown succeeds",
        "a second deployment",
    ):
        assert f"✓ {claim}" in said
    kept = said.partition("only retained resources remain: ")[2].splitlines()[0]
    kinds = {kind.partition("×")[2] for kind in kept.split(", ")}
    assert kinds == {"bucket", "image repository", "key", "role"} | also_kept


@pytest.mark.nightly
def test_each_region_of_a_file_passes_a_month_of_operations(tmp_path: Path) -> None:
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
    file = tmp_path / "small.yaml"
    file.write_text(edit_document({"aws.other_regions": [west]}, (ROOT / "tests/deployments/small.yaml").read_text()))
    said = rehearse(file)
    for region, name in (("us-east-1", "small"), ("us-west-2", "small-us-west-2")):
        for step in (
            "digests",
            "a rollout that an alarm rolls back",
            "new passwords",
            "teardown",
            "a second deployment",
        ):
            assert f"✓ {region}: {step}" in said
        assert f"✓ every host of {name}-cpu is another one" in said
    assert said.count("✓ its sessions are there") == 2


def test_azure_is_rehearsed_including_its_teardown() -> None:
    screen = rehearsal_screen("production-azure")
    assert " 0 refuse" in screen
    assert "deleted, none while something needs it" in screen
    compare("rehearsal-azure", screen)


@pytest.mark.nightly
def test_a_rehearsal_prints_the_recorded_screen() -> None:
    """On every change `test_rehearsal.py` compares parts of this screen."""
    compare("rehearsal-aws", rehearsal_screen("sandbox"))
