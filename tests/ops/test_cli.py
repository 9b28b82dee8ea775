"""Output of the `voice` command on a terminal and in a pipeline."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from voice_blueprint.checks import CHECKS
from voice_ops.cli import COMMANDS, app, load_command
from voice_ops.extras import MODULES_BY_EXTRA

ROOT = Path(__file__).parents[2]
EXTRA_MODULES = set().union(*MODULES_BY_EXTRA.values())


def voice(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_plan_shows_fleets_and_resources() -> None:
    result = voice("plan", ROOT / "tests/deployments/sandbox.yaml", "--resources")
    assert result.exit_code == 0, result.output
    # A bound with its source and its fleet.
    bounds = "(assumed): 0.28 s of", "(published):", "memory of 12 x"
    for expected in ("c8g.12xlarge", "12 x Inferentia2", "sandbox-network", "1×EC2::VPC", *bounds):
        assert expected in result.stdout


def test_plan_for_a_pipeline_is_json() -> None:
    result = voice("plan", ROOT / "tests/deployments/sandbox.yaml", "--json", "--resources")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["refused"] is False
    assert [fleet["name"] for fleet in report["fleets"]] == ["vad", "inf2", "trn1", "p5"]
    assert report["resources"]["sandbox-network"]["AWS::EC2::Subnet"] == 9


def test_resources_are_counted_if_a_stack_is_synthesized() -> None:
    result = voice("plan", ROOT / "tests/deployments/production-azure.yaml", "--resources")
    assert result.exit_code == 2
    assert "has no section `aws`" in result.stderr


def test_the_seed_is_refused_with_every_reason_at_once() -> None:
    result = voice("plan", ROOT / "tests/deployments/seed.yaml")
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
        assert expected in result.stderr
    assert "refused: " in result.stderr


def test_the_seed_is_refused_for_a_pipeline_too() -> None:
    result = voice("plan", ROOT / "tests/deployments/seed.yaml", "--json", "--resources")
    report = json.loads(result.stdout)
    assert result.exit_code == 2
    assert report["refused"] is True
    assert report["resources"] == {}
    blocking = [finding for finding in report["findings"] if finding["blocks"]]
    assert all(finding["line"] and finding["remedy"] and finding["source"] for finding in blocking)


FILE_COMMANDS = ["plan", "diagram", "sandbox", "preflight", "cost", "simulate", "status", "teardown", "drain"]


@pytest.mark.parametrize("command", FILE_COMMANDS)
@pytest.mark.parametrize("name", ["missing.yaml", "folder", "empty.yaml", "broken.yaml"])
def test_invalid_files_are_reported_in_one_line(command: str, name: str, tmp_path: Path) -> None:
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
    result = voice("sandbox", ROOT / "tests/deployments/seed.yaml")
    assert result.exit_code == 2
    assert "huge-pages-fit-memory" in result.stderr
    assert "bootstrap" not in result.output


def test_checks_lists_every_check_with_its_source() -> None:
    listed = json.loads(voice("checks", "--json").stdout)["checks"]
    assert [entry["id"] for entry in listed] == [check.id for check in CHECKS]
    assert all(entry["source"] and entry["about"] for entry in listed)
    assert "huge-pages-fit-memory" in voice("checks").stdout


def _commands() -> list[list[str]]:
    """Return all leaf commands."""
    found = []
    for name in COMMANDS:
        command = load_command(name)
        parts = command.commands if isinstance(command, TyperGroup) else {"": command}
        found += [[name, part] if part else [name] for part in parts]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_matches_their_help(name: str) -> None:
    about, *_ = (load_command(name).help or "").split("\n\n")
    assert COMMANDS[name] == about


def test_the_list_of_commands_matches_the_folders() -> None:
    assert {folder.parent.name for folder in (ROOT / "voice_ops").glob("*/command.py")} - {"demo"} == set(COMMANDS)


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)  # noqa: S603


def modules_loaded_by(*arguments: str) -> set[str]:
    """Return the modules in memory after a command, in a separate process."""
    program = "import sys\ntry: from voice_ops.main import main; main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = python(program, *arguments)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_help_imports_no_command() -> None:
    imported = modules_loaded_by("--help")
    assert "voice_ops.cli" in imported
    assert not imported & {"voice_blueprint", *EXTRA_MODULES}
    assert not [name for name in imported if name.endswith(".command")]


@pytest.mark.parametrize("file", ["production-us-east-1.yaml", "production-azure.yaml"])
def test_plan_imports_no_optional_dependency(file: str) -> None:
    assert not modules_loaded_by("plan", f"deployments/{file}") & EXTRA_MODULES


@pytest.mark.parametrize(("file", "extra"), [("production-us-east-1.yaml", "aws"), ("production-azure.yaml", "azure")])
def test_cost_does_not_import_the_sdk_of_the_other_cloud(file: str, extra: str) -> None:
    imported = modules_loaded_by("cost", f"deployments/{file}")
    assert imported & MODULES_BY_EXTRA[extra]
    of_pulumi = {"psutil"}  # OpenTelemetry, a dependency of Pulumi, imports it where it is installed
    assert not imported & EXTRA_MODULES - MODULES_BY_EXTRA[extra] - of_pulumi


def test_version_matches_the_package() -> None:
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    result = voice("--version")
    assert (result.exit_code, result.stdout) == (0, f"voice {pinned}\n")


def test_the_former_name_of_loadtest_is_refused_with_the_new_name() -> None:
    result = voice("bench", "http://localhost:8000")
    assert result.exit_code == 2
    assert "`voice bench` was renamed to `voice loadtest`" in result.stderr


@pytest.mark.parametrize("option", ["--utilisation=1.5", "--utilisation 1.5", "--utilization 1.5"])
def test_options_of_the_last_release_are_still_accepted(option: str) -> None:
    result = voice("cost", "deployments/sandbox.yaml", *option.split())
    assert result.exit_code == 2
    assert "--utilization" in result.stderr
    assert "less than or equal to 1" in result.stderr


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("aws_cdk", ["plan", "deployments/sandbox.yaml", "--resources"], "aws"),
        ("boto3", ["status", "deployments/sandbox.yaml"], "aws"),
        ("boto3", ["sandbox", "deployments/sandbox.yaml"], "sandbox"),
        ("pulumi", ["preview", "azure", "deployments/production-azure.yaml"], "azure"),
        ("moto", ["sandbox", "deployments/sandbox.yaml"], "sandbox"),
        ("numpy", ["call", "question.wav"], "call"),
        ("numpy", ["simulate", "deployments/sandbox.yaml"], "simulate"),
        ("aiohttp", ["loadtest", "http://localhost:8000", "--api", "chat"], "loadtest"),
    ],
)
def test_a_command_reports_its_missing_extra(missing: str, command: list[str], extra: str) -> None:
    program = (
        "import sys\nclass Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Absent())\nfrom voice_ops.main import main; main()"
    )
    done = python(program, *command)
    assert done.returncode == 2, done.stderr
    assert f"voice {command[0]} requires the extra `{extra}`: pip install 'voice-serve[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_explains_the_exit_codes() -> None:
    result = voice("--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_help_shows_an_example_and_the_exit_codes(command: list[str]) -> None:
    result = voice(*command, "--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout
    assert f"Example: voice {' '.join(command)}" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("voice pl", "plan"),
        ("voice preview ", "azure"),
        ("voice plan --res", "--resources"),
        ("voice init --cl", "--cloud"),
    ],
)
def test_a_shell_completes_commands_and_their_options(typed: str, offered: str) -> None:
    asked = {"_VOICE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(  # noqa: S603
        [Path(sys.executable).with_name("voice")],
        env=os.environ | asked,
        check=False,
        capture_output=True,
        text=True,
    )
    assert offered in done.stdout.split(), done.stderr


def test_an_unknown_option_exits_with_2() -> None:
    assert voice("plan", "--frobnicate").exit_code == 2
