"""Rehearsal of both projects and the policy pack from preview to teardown, with the output of `voice`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
import yaml
from rich.console import Console
from typer.testing import CliRunner

from tests.sandbox.azure.programs import CLUSTER, POLICY, WORKLOADS, sample
from voice_blueprint import load
from voice_ops.cli import app
from voice_ops.findings import exit_on_outages
from voice_ops.plan.release import ReleaseComparison
from voice_ops.preview import command as preview
from voice_ops.preview import tree as azure_view
from voice_ops.progress import Progress
from voice_ops.sandbox import azure as azure_sandbox
from voice_sandbox.azure import state
from voice_sandbox.azure.diff import diff_graphs
from voice_sandbox.azure.errors import PolicyPackError
from voice_sandbox.azure.policy import PolicyViolation
from voice_sandbox.azure.recorder import RunMode
from voice_sandbox.rehearsals.azure import CreatedProject, Rehearsal

ROOT = Path(__file__).parents[3]
DEPLOYMENT = ROOT / "tests/deployments/sandbox.yaml"
CELLS = ROOT / "tests/deployments/cells.yaml"


def make_rehearsal(**config: str) -> Rehearsal:
    full = {f"sample-cluster:{key}": value for key, value in config.items()}
    return Rehearsal("dev", full, [CLUSTER, WORKLOADS], POLICY)


@pytest.fixture(scope="module")
def rehearsal_result() -> tuple[list[CreatedProject], list[PolicyViolation]]:
    with make_rehearsal() as rehearsal:
        return rehearsal.run(), rehearsal.find_violations()


def test_a_rehearsal_reports_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with make_rehearsal(protect="true") as rehearsal:
        assert azure_sandbox.rehearse_projects(rehearsal, Progress(Console()))
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
    with make_rehearsal(nodes="9") as rehearsal:
        assert not azure_sandbox.rehearse_projects(rehearsal, Progress(Console()))
    assert "✗ refused small-pools" in capsys.readouterr().out


def test_a_missing_policy_pack_fails_the_rehearsal(tmp_path: Path) -> None:
    with pytest.raises(PolicyPackError, match="which a policy pack requires"):
        Rehearsal("dev", {}, [CLUSTER], tmp_path)


def test_the_resource_tree_shows_parents_and_dependencies() -> None:
    graph = sample(RunMode.PREVIEW).graph
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(azure_view.create_resource_tree(graph, diff_graphs(None, graph), dependencies=True))
    lines = capture.get().splitlines()
    component = next(index for index, line in enumerate(lines) if "Pool gpu" in line)
    assert lines[component + 1].strip("│└─ ") == "+ containerservice:AgentPool gpu"
    assert 'after containerservice:ManagedCluster "aks"' in lines[component + 2]


def test_previews_are_reported_saved_and_compared(
    rehearsal_result: tuple[list[CreatedProject], list[PolicyViolation]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment, (done, violations) = load(DEPLOYMENT), rehearsal_result
    preview.print_preview(deployment, done, [], tmp_path, as_json=False, dependencies=False)
    assert "7 to create" in capsys.readouterr().out
    preview.print_preview(deployment, done, violations, tmp_path, as_json=False, dependencies=False)
    said = capsys.readouterr().out
    assert "7 unchanged" in said
    assert "! advice tagged" in said
    preview.print_preview(deployment, done, [], tmp_path, as_json=True, dependencies=False)
    document = json.loads(capsys.readouterr().out)
    assert document["projects"]["sample-workloads"]["changeSummary"] == {"same": 8}
    assert document["deployment"] == "sandbox"


def test_a_replacement_is_refused_unless_it_is_reported(
    rehearsal_result: tuple[list[CreatedProject], list[PolicyViolation]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment, (done, _) = load(DEPLOYMENT), rehearsal_result
    graph = done[0].preview.graph
    kept = state.get_state_file(tmp_path, deployment.name, done[0].project.name)
    smaller = tuple(
        replace(r, inputs={**r.inputs, "vmSize": "Standard_NC48ads_A100_v4"}) if "vmSize" in r.inputs else r
        for r in graph.resources
    )
    state.save_graph(kept, replace(graph, resources=smaller))
    before = kept.read_text(encoding="utf-8")
    with pytest.raises(typer.Exit) as caught:
        preview.print_preview(deployment, done, [], tmp_path, as_json=False, dependencies=False)
    assert caught.value.exit_code == 2
    said = capsys.readouterr().err
    assert 'containerservice:AgentPool "gpu": vmSize cannot change in place. Unavailable: the pods on the pool' in said
    assert "--accept-replace gpu" in said
    assert kept.read_text(encoding="utf-8") == before
    preview.print_preview(deployment, done, [], tmp_path, as_json=False, dependencies=False, accepted=["gpu"])
    assert kept.read_text(encoding="utf-8") != before


def with_spot_pool(rehearsal_result: CreatedProject) -> CreatedProject:
    """Return a rehearsal with a spot pool that has a setting which AKS refuses for spot pools."""
    values = {"scaleSetPriority": "Spot", "upgradeSettings": {"maxSurge": "0", "maxUnavailable": "1"}}
    runs = [
        replace(
            run,
            graph=replace(
                run.graph,
                resources=tuple(
                    replace(r, inputs={**r.inputs, **values}) if r.name == "gpu" and "vmSize" in r.inputs else r
                    for r in run.graph.resources
                ),
            ),
        )
        for run in (rehearsal_result.preview, rehearsal_result.up)
    ]
    return replace(rehearsal_result, preview=runs[0], up=runs[1])


def test_service_refusals_end_a_preview(
    rehearsal_result: tuple[list[CreatedProject], list[PolicyViolation]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment, (done, _) = load(DEPLOYMENT), rehearsal_result
    refused = [with_spot_pool(done[0]), *done[1:]]
    for _ in range(2):  # the next preview is not compared with a refused one
        with pytest.raises(typer.Exit) as caught:
            preview.print_preview(deployment, refused, [], tmp_path, as_json=False, dependencies=False)
        assert caught.value.exit_code == 2
        said = capsys.readouterr()
        assert "refused: 2 request(s) that Azure would refuse" in said.err
        for expected in (
            '✗ refused by Azure InvalidParameter containerservice:AgentPool "gpu"',
            "urn:pulumi:dev::sample-cluster::sample:cluster:Pool$azure-native:containerservice:AgentPool::gpu",
            'Spot pools can\'t set max surge: upgradeSettings.maxSurge is "0"; it must be omitted',
            "set surge_nodes of the pool to 0 (https://github.com/hashicorp/terraform-provider-azurerm/issues/19355)",
            'Spot pools can\'t set maxUnavailable: upgradeSettings.maxUnavailable is "1"',
        ):
            assert expected in said.out
    with pytest.raises(typer.Exit):
        preview.print_preview(deployment, refused, [], tmp_path, as_json=True, dependencies=False)
    answers = json.loads(capsys.readouterr().out)["refused"]
    assert [(each["refusal"], each["code"]) for each in answers] == [
        ("spot-max-surge", "InvalidParameter"),
        ("spot-max-unavailable", "InvalidParameter"),
    ]


def test_service_refusals_fail_a_rehearsal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with make_rehearsal() as rehearsal:
        run = rehearsal.run
        monkeypatch.setattr(rehearsal, "run", lambda: [with_spot_pool(each) for each in run()])
        assert not azure_sandbox.rehearse_projects(rehearsal, Progress(Console()))
    assert "2 request(s) refused" in capsys.readouterr().out


def test_a_plan_shows_refusals_of_the_preview(
    rehearsal_result: tuple[list[CreatedProject], list[PolicyViolation]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment, (done, _) = load(CELLS), rehearsal_result
    monkeypatch.setattr("voice_ops.preview.changes.rehearse_deployment", lambda _: rehearsal_result)
    with pytest.raises(typer.Exit):
        ReleaseComparison.from_record(deployment, tmp_path, [])  # the folder contains no record
    for each in done:
        state.save_graph(state.get_state_file(tmp_path, deployment.name, each.project.name), each.preview.graph)
    assert ReleaseComparison.from_record(deployment, tmp_path, []).outages == []
    graph = done[0].preview.graph
    smaller = tuple(
        replace(r, inputs={**r.inputs, "vmSize": "Standard_NC48ads_A100_v4"}) if "vmSize" in r.inputs else r
        for r in graph.resources
    )
    state.save_graph(
        state.get_state_file(tmp_path, deployment.name, done[0].project.name), replace(graph, resources=smaller)
    )
    found = ReleaseComparison.from_record(deployment, tmp_path, [])
    assert [(each.name, each.changes) for each in found.outages] == [("gpu", ("vmSize",))]
    assert "1 to replace" in found.summary
    with pytest.raises(typer.Exit) as caught:
        exit_on_outages(found.outages)
    assert caught.value.exit_code == 2
    accepted = ReleaseComparison.from_record(deployment, tmp_path, ["gpu"])
    assert (accepted.outages, accepted.is_refused) == ([], False)


def test_a_plan_refuses_a_change_that_azure_refuses(
    rehearsal_result: tuple[list[CreatedProject], list[PolicyViolation]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot be accepted, since Pulumi does not replace the resource."""
    deployment, (done, _) = load(CELLS), rehearsal_result
    monkeypatch.setattr("voice_ops.preview.changes.rehearse_deployment", lambda _: rehearsal_result)
    for each in done:
        state.save_graph(state.get_state_file(tmp_path, deployment.name, each.project.name), each.preview.graph)
    graph = done[0].preview.graph
    smaller = [{"name": "system", "mode": "System", "count": 2, "vmSize": "Standard_D4ds_v5"}]
    former = tuple(
        replace(r, inputs={**r.inputs, "agentPoolProfiles": smaller}) if "agentPoolProfiles" in r.inputs else r
        for r in graph.resources
    )
    state.save_graph(
        state.get_state_file(tmp_path, deployment.name, done[0].project.name), replace(graph, resources=former)
    )
    found = ReleaseComparison.from_record(deployment, tmp_path, ["aks"])
    (answer,) = found.refusals
    assert (found.outages, found.is_refused) == ([], True)
    assert answer.startswith(
        'containerservice:ManagedCluster "aks": PropertyChangeNotAllowed: Changing this property of an existing node '
        'pool is not allowed: agentPoolProfiles[0].vmSize was "Standard_D4ds_v5" and would become "Standard_D8ds_v5"; '
        "revert azure.system_pool.vm_size, or deploy a copy of the file with another name"
    )


@pytest.mark.nightly
def test_a_preview_against_a_recorded_release_exits_with_2_until_accepted(tmp_path: Path) -> None:
    file = tmp_path / "cells.yaml"
    assert CliRunner().invoke(app, ["preview", "azure", str(CELLS), "--state", str(tmp_path)]).exit_code == 0
    another = "cidr: 10.60.0.0/16\n    pod_cidr: 10.200.0.0/16"
    file.write_text(CELLS.read_text(encoding="utf-8").replace("cidr: 10.60.0.0/16", another), encoding="utf-8")
    command = ["plan", str(file), "--against", str(tmp_path)]
    planned = CliRunner().invoke(app, command)
    assert planned.exit_code == 2
    assert "networkProfile.podCidr cannot change in place. Unavailable: every service" in planned.stderr
    assert CliRunner().invoke(app, [*command, "--accept-replace", "cluster"]).exit_code == 0


def test_a_preview_without_a_release_shows_how_to_record_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["plan", str(DEPLOYMENT), "--against", str(tmp_path)])
    assert result.exit_code == 2
    assert "contains no recorded release of sandbox; `voice plan" in result.stderr


def test_a_deployment_without_azure_has_nothing_to_preview() -> None:
    result = CliRunner().invoke(app, ["preview", "azure", str(DEPLOYMENT)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no section `azure`" in result.stderr


def test_help_shows_an_example_and_the_exit_codes() -> None:
    said = CliRunner().invoke(app, ["preview", "azure", "--help"]).stdout
    assert "Example: voice preview azure" in said
    assert "Exit codes" in said


def test_a_refused_preview_exits_with_2_and_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with make_rehearsal(nodes="9") as rehearsal:
        done = rehearsal.run()
        violations = rehearsal.find_violations()
    with pytest.raises(typer.Exit) as caught:
        preview.print_preview(load(DEPLOYMENT), done, violations, tmp_path, as_json=False, dependencies=False)
    assert caught.value.exit_code == 2
    captured = capsys.readouterr()
    assert "refused: 1 mandatory policy violation(s)" in captured.err
    assert "9.0 nodes > 2" in captured.out
    assert not (tmp_path / ".voice").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["production-azure", "cells"])
def test_a_shipped_file_is_accepted_and_refused_after_a_disruptive_change(name: str, tmp_path: Path) -> None:
    """Tests of cluster edits cover each change; this test covers the command and its exit code."""
    shipped, changed = ROOT / f"tests/deployments/{name}.yaml", tmp_path / f"{name}.yaml"
    kept = ["--state", str(tmp_path)]
    clean = CliRunner().invoke(app, ["preview", "azure", str(shipped), *kept])
    assert clean.exit_code == 0, clean.output
    document = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    document["azure"]["network"] |= {"pod_cidr": "10.200.0.0/16"}
    document["azure"]["pools"][3]["vm_size"] = "Standard_NC40ads_H100_v5"
    changed.write_text(yaml.safe_dump(document), encoding="utf-8")
    refused = CliRunner().invoke(app, ["preview", "azure", str(changed), *kept])
    assert refused.exit_code == 2, refused.output
    for away in (
        "networkProfile.podCidr",
        'containerservice:AgentPool "a100": vmSize cannot change in place. Unavailable: the pods on the pool',
        "every service, until cluster, pools and engines are recreated: an hour or more",
        "--accept-replace a100",
    ):
        assert away in refused.stderr, away
    document["azure"]["access"] = {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}
    document["azure"]["network"] = {"cidr": "10.70.0.0/16"}
    changed.write_text(yaml.safe_dump(document), encoding="utf-8")
    refused = CliRunner().invoke(app, ["preview", "azure", str(changed), *kept, "--accept-replace", "cluster"])
    assert refused.exit_code == 2, refused.output
    for change in (
        "apiServerAccessProfile.enablePrivateCluster was true",
        'addressSpace.addressPrefixes was ["10.60.0.0/16"] and would become ["10.70.0.0/16"]',
        "revert azure.network.cidr, or deploy a copy of the file with another name",
    ):
        assert change in refused.stdout, change
