"""checkov scans the production templates; every finding needs a reason in accepted.yaml.

checkov pins libraries that conflict with the project's, so `make test-nightly` creates a separate environment. On every
change cfn-lint and cdk-nag check the same templates (tests/stacks/aws/test_validated.py).
"""

import json
import subprocess
from pathlib import Path

import pytest

import voice_blueprint
from tests.blueprint.documents import parse_yaml
from voice_stacks.aws.app import create_app

ROOT = Path(__file__).parents[2]
CHECKOV = ROOT / ".tools/checkov/bin/checkov"

pytestmark = pytest.mark.nightly

Finding = tuple[str, str, str]
"""Check id, tier of the stack, resource."""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> set[Finding]:
    assert CHECKOV.exists(), "checkov is not installed: run `make .tools/checkov/.ready` once"
    deployment = voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")
    folder = tmp_path_factory.mktemp("templates")
    create_app(deployment, outdir=str(folder)).synth()
    done = subprocess.run(  # noqa: S603
        [CHECKOV, "--directory", folder, "--framework", "cloudformation", "--output", "json", "--skip-download"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 200, done.stderr
    assert report["summary"]["parsing_errors"] == 0
    return {
        (
            check["check_id"],
            Path(check["file_path"]).name.removesuffix(".template.json").removeprefix(f"{deployment.name}-"),
            check["resource"],
        )
        for check in report["results"]["failed_checks"]
    }


def accepted_findings() -> set[Finding]:
    entries = parse_yaml((Path(__file__).parent / "accepted.yaml").read_text(encoding="utf-8"))
    assert all(len(entry["reason"]) > 20 for entry in entries)
    return {(entry["check"], entry["stack"], entry["resource"]) for entry in entries}


def test_every_failed_check_has_a_documented_reason(findings: set[Finding]) -> None:
    assert findings - accepted_findings() == set()


def test_every_documented_reason_has_a_failed_check(findings: set[Finding]) -> None:
    assert accepted_findings() - findings == set()
