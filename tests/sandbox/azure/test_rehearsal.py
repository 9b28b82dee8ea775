"""Both projects and the policy pack, from preview to teardown, as `voice` prints them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from blueprint import load
from ops.cli import app
from ops.preview import command as preview
from ops.preview import tree as azure_view
from ops.progress import Progress
from ops.sandbox import azure as azure_sandbox
from sandbox.azure import state
from sandbox.azure.diff import compare
from sandbox.azure.errors import PolicyPackError
from sandbox.azure.policy import PolicyViolation
from sandbox.azure.recorder import Mode
from sandbox.azure.rehearsal import Rehearsal, Rehearsed
from tests.sandbox.azure.programs import CLUSTER, POLICY, WORKLOADS, sample

ROOT = Path(__file__).parents[3]
DEPLOYMENT = ROOT / "deployments/sandbox.yaml"


def rehearsal_of(**config: str) -> Rehearsal:
    full = {f"sample-cluster:{key}": value for key, value in config.items()}
    return Rehearsal("dev", full, [CLUSTER, WORKLOADS], POLICY)


@pytest.fixture(scope="module")
def rehearsed() -> tuple[list[Rehearsed], list[PolicyViolation]]:
    with rehearsal_of() as rehearsal:
        return rehearsal.run(), rehearsal.violations()


def test_a_rehearsal_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    with rehearsal_of(protect="true") as rehearsal:
        assert azure_sandbox.rehearse(rehearsal, Progress(Console()))
    said = capsys.readouterr().out
    for expected in (
        "sample-cluster             5",
        "sample-workloads           5",
        "3 policies: 0 refuse, 1 advise",
        "teardown: 9 deleted, none while something needs it; 1 kept",
        'kept: resources:ResourceGroup "group", protected',
    ):
        assert expected in said


def test_a_mandatory_policy_fails_a_rehearsal(capsys: pytest.CaptureFixture[str]) -> None:
    with rehearsal_of(nodes="9") as rehearsal:
        assert not azure_sandbox.rehearse(rehearsal, Progress(Console()))
    assert "✗ refused small-pools" in capsys.readouterr().out


def test_a_missing_policy_pack_is_no_rehearsal(tmp_path: Path) -> None:
    with pytest.raises(PolicyPackError, match="which make a policy pack"):
        Rehearsal("dev", {}, [CLUSTER], tmp_path)


def test_a_tree_shows_parents_and_dependencies() -> None:
    graph = sample(Mode.PREVIEW).graph
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(azure_view.tree(graph, compare(None, graph), dependencies=True))
    lines = capture.get().splitlines()
    component = next(index for index, line in enumerate(lines) if "Pool gpu" in line)
    assert lines[component + 1].strip("│└─ ") == "+ containerservice:AgentPool gpu"
    assert 'after containerservice:ManagedCluster "aks"' in lines[component + 2]


def test_previews_are_reported_kept_and_compared(
    rehearsed: tuple[list[Rehearsed], list[PolicyViolation]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment, (done, violations) = load(DEPLOYMENT), rehearsed
    preview.report(deployment, done, [], tmp_path, as_json=False, dependencies=False)
    assert "7 to create" in capsys.readouterr().out
    preview.report(deployment, done, violations, tmp_path, as_json=False, dependencies=False)
    said = capsys.readouterr().out
    assert "7 unchanged" in said
    assert "! advice tagged" in said
    preview.report(deployment, done, [], tmp_path, as_json=True, dependencies=False)
    document = json.loads(capsys.readouterr().out)
    assert document["projects"]["sample-workloads"]["changeSummary"] == {"same": 8}
    assert document["deployment"] == "sandbox"


def test_a_replacement_is_refused_unless_it_is_named(
    rehearsed: tuple[list[Rehearsed], list[PolicyViolation]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment, (done, _) = load(DEPLOYMENT), rehearsed
    graph = done[0].preview.graph
    kept = state.state_file(tmp_path, deployment.name, done[0].project.name)
    smaller = tuple(
        replace(r, inputs={**r.inputs, "vmSize": "Standard_NC48ads_A100_v4"}) if "vmSize" in r.inputs else r
        for r in graph.resources
    )
    state.save(kept, replace(graph, resources=smaller))
    before = kept.read_text(encoding="utf-8")
    with pytest.raises(typer.Exit) as caught:
        preview.report(deployment, done, [], tmp_path, as_json=False, dependencies=False)
    assert caught.value.exit_code == 2
    said = capsys.readouterr().err
    assert 'containerservice:AgentPool "gpu": vmSize cannot change in place. Away: what runs on the pool' in said
    assert "--accept-replace gpu" in said
    assert kept.read_text(encoding="utf-8") == before
    preview.report(deployment, done, [], tmp_path, as_json=False, dependencies=False, accepted=["gpu"])
    assert kept.read_text(encoding="utf-8") != before


def test_a_deployment_without_azure_has_nothing_to_preview() -> None:
    result = CliRunner().invoke(app, ["preview", "azure", str(DEPLOYMENT)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no azure section" in result.stderr


def test_help_shows_an_example_and_the_exit_codes() -> None:
    said = CliRunner().invoke(app, ["preview", "azure", "--help"]).stdout
    assert "Example: voice preview azure" in said
    assert "Exit codes" in said


def test_a_refused_preview_exits_with_2_and_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rehearsal_of(nodes="9") as rehearsal:
        done = rehearsal.run()
        violations = rehearsal.violations()
    with pytest.raises(typer.Exit) as caught:
        preview.report(load(DEPLOYMENT), done, violations, tmp_path, as_json=False, dependencies=False)
    assert caught.value.exit_code == 2
    captured = capsys.readouterr()
    assert "refused: 1 mandatory policy violation(s)" in captured.err
    assert "9.0 nodes > 2" in captured.out
    assert not (tmp_path / ".voice").exists()
