"""Regions of one file: one after the other, and none behind the first that is taken back."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ops.cli import app
from ops.rollout import command
from sandbox.aws.cdk import CdkError
from tests.blueprint.documents import DEPLOYMENTS, edited

OTHERS = [{"region": region, "availability_zones": [f"{region}a"]} for region in ("us-west-2", "eu-west-1")]


@pytest.fixture
def file(tmp_path: Path) -> str:
    text = (DEPLOYMENTS / "small.yaml").read_text(encoding="utf-8")
    path = tmp_path / "three.yaml"
    path.write_text(edited({"aws.other_regions": OTHERS}, text), encoding="utf-8")
    return str(path)


@pytest.fixture
def rolled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Regions in the order of their rollouts; what asks an account and what deploys stands in."""
    order: list[str] = []

    def roll_out(account: SimpleNamespace, *_: object) -> str:
        order.append(account.region)
        return "half of the words are wrong" if account.region == "us-west-2" else ""

    monkeypatch.setattr(command, "sign_in", lambda _: None)
    monkeypatch.setattr(command, "templates", lambda _: {})
    monkeypatch.setattr(command, "Account", lambda of, *_: SimpleNamespace(region=of.aws.region, deployment=of))
    monkeypatch.setattr(command, "rolls", lambda account: [account.region])
    monkeypatch.setattr(command, "_show", lambda _: None)
    monkeypatch.setattr(command, "shortages", lambda _: [])
    monkeypatch.setattr(command, "unprepared", lambda *_: [])
    monkeypatch.setattr(command, "roll_out", roll_out)
    return order


def test_the_first_region_that_is_taken_back_ends_it(file: str, rolled: list[str]) -> None:
    result = CliRunner().invoke(app, ["rollout", file, "--deploy"])
    assert result.exit_code == 1
    assert rolled == ["us-east-1", "us-west-2"]
    said = " ".join(result.output.split())
    assert "us-east-1 is rolled out; the rollout was taken back: half of the words are wrong" in said


def test_an_alarm_in_one_region_ends_it_too(file: str, rolled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def taken_back(account: SimpleNamespace, *_: object) -> str:
        rolled.append(account.region)
        raise CdkError("alarm a fired")

    monkeypatch.setattr(command, "roll_out", taken_back)
    result = CliRunner().invoke(app, ["rollout", file, "--deploy"])
    assert (result.exit_code, rolled) == (1, ["us-east-1"])


def test_nothing_is_deployed_where_one_region_has_no_room(
    file: str, rolled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "shortages", lambda found: ["no room"] * (found == ["eu-west-1"]))
    result = CliRunner().invoke(app, ["rollout", file, "--deploy"])
    assert (result.exit_code, rolled, "no room" in result.output) == (1, [], True)


def test_one_region_can_be_named_and_a_probe_asks_for_it(file: str, rolled: list[str]) -> None:
    assert CliRunner().invoke(app, ["rollout", file, "--deploy", "--region", "eu-west-1"]).exit_code == 0
    assert rolled == ["eu-west-1"]
    refused = CliRunner().invoke(app, ["rollout", file, "--deploy", "--probe", "https://api.any.voice.example.com"])
    assert (refused.exit_code, rolled) == (2, ["eu-west-1"])
    assert "name it with --region" in " ".join(refused.output.split())
