"""`voice preflight`: exit codes, JSON, requests for increases, and errors without tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.blueprint.documents import DEPLOYMENTS
from tests.ops.preflight.aws_faults import fail
from tests.ops.preflight.conftest import AwsAccount, templates_of_sandbox
from voice_blueprint import Deployment
from voice_ops.cli import app
from voice_ops.preflight import command

SANDBOX = DEPLOYMENTS / "sandbox.yaml"
INF = "L-1945791B"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _one_synth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache the sandbox's templates, which are the same in every test of this module."""

    def templates(_: Deployment) -> dict[str, dict[str, Any]]:
        return templates_of_sandbox()

    monkeypatch.setattr(command, "synthesize_templates", templates)


def preflight(*arguments: str | Path, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["preflight", *map(str, arguments)], input=answer)


@pytest.mark.usefixtures("account")
def test_a_valid_account_exits_with_0() -> None:
    result = preflight(SANDBOX)
    assert result.exit_code == 0, result.output
    assert "Running On-Demand Inf" in result.stdout
    assert "→ set availability_zones of fleet trn1 to us-east-1c" in result.stdout
    assert result.stdout.rstrip().splitlines()[-1].endswith("1 warning")


def test_a_pipeline_gets_json(account: AwsAccount) -> None:
    account.set_quota(INF, 0)
    result = preflight(SANDBOX, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    (row,) = [row for row in report["answers"] if INF in row["asked"]]
    assert row == {
        "area": "AWS",
        "asked": f"quota: Running On-Demand Inf instances ({INF})",
        "status": "blocks",
        "found": "0 vCPU, 0 in use elsewhere",
        "needed": "384 at the minimum, 960 at the maximum",
        "remedy": "request 960 vCPU with `voice preflight FILE --request-increases`",
    }
    assert report["filed"] == []
    assert account.quotas.requests == []


def test_increases_are_filed_once(account: AwsAccount) -> None:
    account.set_quota(INF, 0)
    first = json.loads(preflight(SANDBOX, "--json", "--request-increases", "--yes").stdout)["filed"]
    assert [(each["desired"], each["answer"]) for each in first] == [(960, "filed request request-1")]
    second = preflight(SANDBOX, "--json", "--request-increases", "--yes")
    assert json.loads(second.stdout)["filed"] == []
    assert "no increase is required" in second.stderr
    assert len(account.quotas.requests) == 1


@pytest.mark.parametrize(("answer", "filed"), [("y\n", 1), ("n\n", 0)])
def test_increases_require_confirmation(account: AwsAccount, answer: str, filed: int) -> None:
    account.set_quota(INF, 0)
    result = preflight(SANDBOX, "--request-increases", answer=answer)
    assert "request 1 increase(s)?" in result.stderr
    assert len(account.quotas.requests) == filed


@pytest.mark.usefixtures("account")
def test_json_requires_yes() -> None:
    result = preflight(SANDBOX, "--json", "--request-increases")
    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert json.loads(result.stdout) == {
        "refused": True,
        "problems": ["--json cannot prompt; add --yes to request the increases"],
    }


@pytest.mark.usefixtures("account")
def test_a_refused_file_is_not_queried() -> None:
    result = preflight(DEPLOYMENTS / "seed.yaml")
    assert result.exit_code == 2
    assert "huge-pages-fit-memory" in result.stderr


@pytest.mark.usefixtures("account")
def test_expired_credentials_are_reported_and_exit_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, "sts", "ExpiredToken", status=403, xml=True)
    result = preflight(SANDBOX)
    assert result.exit_code == 1
    assert "the credentials have expired (ExpiredToken)" in " ".join(result.stdout.split())
    assert "→ sign in again, for example with `aws sso login`" in result.stdout
    assert "Traceback" not in result.output


def test_permissions_are_printed_without_credentials() -> None:
    result = preflight(SANDBOX, "--permissions")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["aws"]["deployer"]["Statement"][0]["Action"] == ["sts:AssumeRole"]
    assert len(printed["aws"]["cloudformation_execution"]) == 3


def test_without_credentials_the_skipped_queries_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    result = preflight(SANDBOX, "--json")
    assert result.exit_code == 1
    assert "no account was checked" in result.stderr
    answers = json.loads(result.stdout)["answers"]
    asked = {row["asked"]: row["status"] for row in answers}
    assert asked["digests of the images in the file"] == "fine"
    assert asked["service quotas and open requests"] == "not asked"
    assert len([status for status in asked.values() if status == "not asked"]) == 14
    increases = preflight(SANDBOX, "--request-increases", "--yes")
    assert increases.exit_code == 1
    assert "required increases are unknown: there is no result for service quotas" in increases.stderr


def test_help_shows_an_example_and_the_exit_codes() -> None:
    result = preflight("--help")
    assert "Example: voice preflight" in result.stdout
    assert "Exit codes" in result.stdout


@cache
def _sdk_modules() -> str:
    program = "import sys, voice_ops.cli; print(*sorted(name for name in sys.modules if name.startswith('azure')))"
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()


def test_the_command_line_starts_without_azures_sdks() -> None:
    assert _sdk_modules() == ""
