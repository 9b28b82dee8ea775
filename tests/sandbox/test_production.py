"""What real accounts get is what was rehearsed: `voice sandbox` passes the production files too."""

import pytest
from typer.testing import CliRunner

from ops.cli import app
from sandbox.aws.cdk import ROOT

pytestmark = [pytest.mark.sandbox]


def rehearsed(name: str) -> str:
    result = CliRunner().invoke(app, ["sandbox", str(ROOT / f"deployments/{name}.yaml")])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_aws_is_rehearsed_but_for_its_teardown() -> None:
    said = rehearsed("production-us-east-1")
    assert "0, 0, 0   1, 1, 1" in said
    assert "teardown is not rehearsed: a production deployment" in said


@pytest.mark.nightly
def test_a_first_step_on_cpus_is_rehearsed_too() -> None:
    said = rehearsed("small")
    assert "teardown is not rehearsed: a staging deployment" in said
    assert said.count("slots 100 %, busy 50 %     0        1       ✓") == 2


def test_azure_is_rehearsed_to_its_teardown() -> None:
    said = rehearsed("production-azure")
    assert " 0 refuse" in said
    assert "deleted, none while something needs it" in said
