"""What real accounts get is what was rehearsed: `voice sandbox` passes the files of production and staging too."""

import pytest
from typer.testing import CliRunner

import blueprint
from ops.cli import app
from sandbox.aws.cdk import ROOT
from sandbox.aws.rehearsal import Rehearsal

pytestmark = [pytest.mark.sandbox]


def rehearsed(name: str) -> str:
    result = CliRunner().invoke(app, ["sandbox", str(ROOT / f"deployments/{name}.yaml")])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.nightly
def test_production_comes_up_without_hosts_and_scales_from_there() -> None:
    with Rehearsal(blueprint.load(ROOT / "deployments/production-us-east-1.yaml")) as rehearsal:
        rehearsal.bootstrap()
        rehearsal.cdk.deploy()
        assert [claim.text for claim in rehearsal.claims() if not claim.holds] == []
        outcomes = list(rehearsal.drill())
        assert [outcome.scenario.name for outcome in outcomes if not outcome.passed] == []
        vad = next(outcome for outcome in outcomes if outcome.scenario.fleet == "vad" and outcome.scenario.fires)
        assert (set(vad.before.values()), set(vad.after.values())) == ({0}, {1})


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "fleet", "kept_too"), [("production-us-east-1", "inf2", {"log group", "secret"}), ("small", "cpu", set())]
)
def test_a_file_lives_through_what_its_first_month_brings(name: str, fleet: str, kept_too: set[str]) -> None:
    """A failed create and its retry, a rollout that an alarm takes back, an AMI, passwords, a restore, the end."""
    said = rehearsed(name)
    for claim in (
        "a first deploy that fails",
        f"{name}-asr-{fleet} goes back",
        f"hosts of {name}-{fleet} run what they ran",
        f"every host of {name}-{fleet} is another one",
        "two passwords let each user in meanwhile, and one at the end",
        "no host is replaced",
        "its sessions are there",
        "each store has left a last snapshot",
    ):
        assert f"✓ {claim}" in said
    kept = said.partition("all that is left is kept on purpose: ")[2].splitlines()[0]
    kinds = {kind.partition("×")[2] for kind in kept.split(", ")}
    assert kinds == {"bucket", "image repository", "key", "role"} | kept_too


def test_azure_is_rehearsed_to_its_teardown() -> None:
    said = rehearsed("production-azure")
    assert " 0 refuse" in said
    assert "deleted, none while something needs it" in said
