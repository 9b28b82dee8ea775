"""What a person or a pipeline gets from the `voice` command."""

import json
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from blueprint.checks import CHECKS
from ops.cli import app

ROOT = Path(__file__).parents[2]


def voice(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_plan_shows_fleets_and_resources_of_a_sound_file() -> None:
    result = voice("plan", ROOT / "deployments/sandbox.yaml")
    assert result.exit_code == 0, result.output
    for expected in ("c8g.12xlarge", "12 x Inferentia2", "sandbox-network", "1×EC2::VPC"):
        assert expected in result.stdout


def test_plan_for_a_pipeline_is_json() -> None:
    result = voice("plan", ROOT / "deployments/sandbox.yaml", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["refused"] is False
    assert [fleet["fleet"] for fleet in report["fleets"]] == ["vad", "inf2", "trn1", "p5"]
    assert report["resources"]["sandbox-network"]["AWS::EC2::Subnet"] == 9


def test_the_seed_is_refused_with_every_reason_at_once() -> None:
    result = voice("plan", ROOT / "deployments/seed.yaml")
    assert result.exit_code == 2
    for expected in (
        "24576 huge pages x 2 MiB = 48 GiB > 32 GiB of c8g.4xlarge",
        "ENA Express is not supported on c8g.4xlarge",
        "ENA Express is not supported on inf2.48xlarge",
        "ENA Express is not supported on trn1.2xlarge",
        "deployments/seed.yaml:",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ena-express.html",
        "→",
    ):
        assert expected in result.stdout
    assert "nothing was synthesized" in result.stderr


def test_the_seed_is_refused_for_a_pipeline_too() -> None:
    result = voice("plan", ROOT / "deployments/seed.yaml", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 2
    assert report["refused"] is True
    assert report["resources"] == {}
    blocking = [finding for finding in report["findings"] if finding["blocks"]]
    assert all(finding["line"] and finding["remedy"] and finding["source"] for finding in blocking)


FILE_COMMANDS = ["plan", "diagram", "sandbox", "preflight", "cost", "simulate", "status", "teardown", "drain"]


@pytest.mark.parametrize("command", FILE_COMMANDS)
@pytest.mark.parametrize("name", ["missing.yaml", "folder", "empty.yaml", "broken.yaml"])
def test_bad_files_get_one_clear_line(command: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "broken.yaml").write_text("name: [x\n")
    host = ["i-0123456789abcdef0"] if command == "drain" else []
    result = voice(command, tmp_path / name, *host)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert str(tmp_path / name) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output


def test_a_refused_file_never_reaches_the_sandbox() -> None:
    result = voice("sandbox", ROOT / "deployments/seed.yaml")
    assert result.exit_code == 2
    assert "huge-pages-fit-memory" in result.stderr
    assert "bootstrap" not in result.output


def test_checks_lists_every_check_with_its_source() -> None:
    listed = json.loads(voice("checks", "--json").stdout)
    assert [entry["id"] for entry in listed] == [check.id for check in CHECKS]
    assert all(entry["source"] and entry["about"] for entry in listed)
    assert "huge-pages-fit-memory" in voice("checks").stdout


def _commands() -> list[list[str]]:
    """Every command that does something; groups only hold others."""
    tree = get_command(app)
    assert isinstance(tree, TyperGroup)
    found = []
    for name, command in tree.commands.items():
        parts = command.commands if isinstance(command, TyperGroup) else {"": command}
        found += [[name, part] if part else [name] for part in parts]
    return found


def test_help_says_what_the_exit_codes_mean() -> None:
    result = voice("--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_help_shows_an_example_and_the_exit_codes(command: list[str]) -> None:
    result = voice(*command, "--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout
    assert f"Example: voice {' '.join(command)}" in " ".join(result.stdout.split())


def test_an_unknown_option_exits_with_2() -> None:
    assert voice("plan", "--frobnicate").exit_code == 2
