"""Regions of a file are rolled out one after the other, until one is rolled back."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests.blueprint.documents import DEPLOYMENTS, edit_document
from voice_ops.cli import app
from voice_ops.rollout import aws as command
from voice_sandbox.rehearsals.cdk import CdkError

OTHER_REGIONS = [{"region": region, "availability_zones": [f"{region}a"]} for region in ("us-west-2", "eu-west-1")]


@pytest.fixture
def file(tmp_path: Path) -> str:
    text = (DEPLOYMENTS / "small.yaml").read_text(encoding="utf-8")
    path = tmp_path / "three.yaml"
    path.write_text(edit_document({"aws.other_regions": OTHER_REGIONS}, text), encoding="utf-8")
    return str(path)


@pytest.fixture
def rollout_order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the regions in the order of their rollouts; the account and the deploy are simulated."""
    order: list[str] = []

    def roll_out(account: SimpleNamespace, *_: object) -> str:
        order.append(account.region)
        return "the rollout was rolled back: half of the words are wrong" if account.region == "us-west-2" else ""

    monkeypatch.setattr(command, "create_deployment_session", lambda _: None)
    monkeypatch.setattr(command, "synthesize_templates", lambda _: {})
    monkeypatch.setattr(
        command,
        "Account",
        lambda of, *_: SimpleNamespace(region=of.aws.region, deployment=of, fetch_removed_stack_statuses=dict),
    )
    monkeypatch.setattr(command, "plan_rollouts", lambda account: [account.region])
    monkeypatch.setattr(command, "_print_rollouts", lambda _: None)
    monkeypatch.setattr(command, "find_quota_shortages", lambda _: [])
    monkeypatch.setattr(command, "find_missing_artifacts", lambda *_: [])
    monkeypatch.setattr(command, "deploy_and_monitor", roll_out)
    return order


def test_a_rollback_in_the_first_region_ends_the_rollout(file: str, rollout_order: list[str]) -> None:
    result = CliRunner().invoke(app, ["rollout", file, "--deploy"])
    assert result.exit_code == 1
    assert rollout_order == ["us-east-1", "us-west-2"]
    said = " ".join(result.output.split())
    assert "us-east-1 is rolled out; the rollout was rolled back: half of the words are wrong" in said


def test_an_alarm_in_one_region_ends_the_rollout(
    file: str, rollout_order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rolled_back_region(account: SimpleNamespace, *_: object) -> str:
        rollout_order.append(account.region)
        raise CdkError("alarm a fired")

    monkeypatch.setattr(command, "deploy_and_monitor", rolled_back_region)
    result = CliRunner().invoke(app, ["rollout", file, "--deploy"])
    assert (result.exit_code, rollout_order) == (1, ["us-east-1"])


def test_nothing_is_deployed_if_one_region_lacks_capacity(
    file: str, rollout_order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_quota_shortages", lambda found: ["no room"] * (found == ["eu-west-1"]))
    result = CliRunner().invoke(app, ["rollout", file, "--deploy"])
    assert (result.exit_code, rollout_order, "no room" in result.output) == (1, [], True)


def test_one_region_can_be_selected_and_a_probe_requires_it(file: str, rollout_order: list[str]) -> None:
    assert CliRunner().invoke(app, ["rollout", file, "--deploy", "--region", "eu-west-1"]).exit_code == 0
    assert rollout_order == ["eu-west-1"]
    refused = CliRunner().invoke(app, ["rollout", file, "--deploy", "--probe", "https://api.any.voice.example.com"])
    assert (refused.exit_code, rollout_order) == (2, ["eu-west-1"])
    assert "name it with --region" in " ".join(refused.output.split())
