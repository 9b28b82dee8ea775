"""What a real account gets is what was rehearsed: the production file deploys on the local AWS too."""

import pytest
from typer.testing import CliRunner

from ops.cli import app
from sandbox.aws.cdk import ROOT


@pytest.mark.sandbox
def test_the_production_file_is_rehearsed_but_for_its_teardown() -> None:
    result = CliRunner().invoke(app, ["sandbox", str(ROOT / "deployments/production-us-east-1.yaml")])
    assert result.exit_code == 0, result.output
    assert "0, 0, 0   2, 2, 2" in result.stdout
    assert "teardown is not rehearsed: a production deployment" in result.stdout
