"""Templates of every deployable file pass AWS's schemas, cfn-lint and cdk-nag, and synthesis needs no environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import voice_blueprint
from tests.isolation import unshare
from voice_stacks.aws.app import create_app

ROOT = Path(__file__).parents[3]
STACK_COUNTS = {"sandbox": 12, "production-us-east-1": 11, "small": 8}


# Covers resources that exist only in the sandbox; the small file has fewer resources of the same types.
@pytest.fixture(
    scope="module",
    params=["production-us-east-1", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("sandbox", "small"))],
)
def templates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the templates of a synthesis that passes cdk-nag and CloudFormation's schemas."""
    folder = tmp_path_factory.mktemp(request.param)
    # Synthesized like by the CDK command line; cfn-lint recognizes CDK templates by their paths.
    context = {
        "deployment": f"deployments/{request.param}.yaml",
        "validate": "true",
        "aws:cdk:enable-path-metadata": True,
    }
    environment = {**os.environ, "CDK_CONTEXT_JSON": json.dumps(context), "CDK_OUTDIR": str(folder)}
    subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=environment, check=True)
    return sorted(folder.glob("*.template.json"))


def test_cdk_nag_and_the_schemas_report_nothing(templates: list[Path]) -> None:
    (stacks,) = (count for name, count in STACK_COUNTS.items() if templates[0].name.startswith(f"{name}-"))
    assert len(templates) == stacks


def test_cfn_lint_reports_nothing(templates: list[Path]) -> None:
    linted = subprocess.run(["cfn-lint", *templates], capture_output=True, text=True, check=False)  # noqa: S603, S607
    assert linted.stdout == ""
    assert linted.returncode == 0


def test_cdk_nag_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without acknowledgments cdk-nag reports findings."""
    for module in ("host", "state", "network"):
        monkeypatch.setattr(f"voice_constructs.aws.{module}.acknowledge", lambda *_: None)
    app = create_app(voice_blueprint.load(ROOT / "tests/deployments/small.yaml"), validate=True, outdir=str(tmp_path))
    with pytest.raises(RuntimeError, match=r"(?i)validation"):
        app.synth()


def test_synth_needs_no_credentials_no_network_and_no_home(tmp_path: Path) -> None:
    """Runs in a network namespace without a loopback address, with an empty home directory and environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    done = subprocess.run(  # noqa: S603
        [*unshare("--net"), sys.executable, "app.py"],
        cwd=ROOT,
        env={
            "PATH": path,
            "HOME": str(tmp_path),
            "CDK_CONTEXT_JSON": '{"deployment": "deployments/production-us-east-1.yaml"}',
            "CDK_OUTDIR": str(tmp_path / "out"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").glob("*.template.json"))) == 11


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ("{}", "no deployment file"),
        ('{"deployment": "deployments/none.yaml"}', "deployments/none.yaml: does not exist"),
        ('{"deployment": "deployments/seed.yaml"}', "deployments/seed.yaml:20: [huge-pages-fit-memory] 24576"),
    ],
)
def test_a_refused_file_stops_the_cdk_with_a_reason(context: str, expected: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**os.environ, "CDK_CONTEXT_JSON": context, "CDK_OUTDIR": str(tmp_path / "out")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("out/*.template.json"))


def test_a_bare_cdk_command_selects_no_file() -> None:
    """No default file is selected, since the names and the region of the sandbox may belong to another account."""
    cdk = ROOT / "node_modules/.bin/cdk"
    done = subprocess.run([cdk, "list", "--no-notices"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode != 0
    assert "no deployment file: run `cdk synth -c deployment=" in done.stderr
