"""Changes since the last preview, and the state file of previews."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.azure.programs import CLUSTER, sample, workloads
from voice_sandbox.azure.cli_json import build_preview_json
from voice_sandbox.azure.diff import ChangeKind, Step, count_by_operation, diff_graphs
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import RunMode
from voice_sandbox.azure.state import get_state_file, load_graph, save_graph
from voice_sandbox.azure.values import Secret
from voice_sandbox.changes import OpType


def change_inputs(graph: Graph, name: str, kind: str, **inputs: object) -> Graph:
    found = graph.get_resource(name, kind)
    changed = replace(found, inputs={**found.inputs, **inputs})
    return replace(graph, resources=tuple(changed if r.urn == found.urn else r for r in graph.resources))


def step_for(steps: list[Step], urn: str) -> Step:
    return next(step for step in steps if step.urn == urn)


@pytest.fixture
def initial_graph() -> Graph:
    return sample(RunMode.PREVIEW).graph


def test_the_first_preview_creates_everything_and_the_second_nothing(initial_graph: Graph, tmp_path: Path) -> None:
    file = get_state_file(tmp_path, "dev", "sample-cluster")
    assert load_graph(file) is None
    assert count_by_operation(diff_graphs(load_graph(file), initial_graph)) == {"create": len(initial_graph)}
    save_graph(file, initial_graph)
    kept = load_graph(file)
    assert kept
    assert count_by_operation(diff_graphs(kept, initial_graph)) == {"same": len(initial_graph)}
    assert file == tmp_path / ".voice/azure/dev/sample-cluster.json"


def test_graphs_survive_a_round_trip_except_secrets(tmp_path: Path) -> None:
    for graph in (workloads(RunMode.PREVIEW), sample(RunMode.UP).graph):
        save_graph(tmp_path / "x.json", graph)
        assert "hunter2" not in (tmp_path / "x.json").read_text()
        kept = load_graph(tmp_path / "x.json")
        assert kept
        assert [r.urn for r in kept.resources] == [r.urn for r in graph.resources]
        for old, new in zip(kept.resources, graph.resources, strict=True):
            assert replace(old, inputs={}, outputs={}) == replace(new, inputs={}, outputs={})


@pytest.mark.parametrize("text", ["", "{", '{"version": 0}', '{"version": 1}', "[]"])
def test_a_corrupt_state_file_is_treated_as_missing(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    assert load_graph(tmp_path / "x.json") is None


def test_a_changed_secret_is_detected_but_not_shown(tmp_path: Path) -> None:
    graph = workloads(RunMode.PREVIEW)
    save_graph(tmp_path / "x.json", graph)
    after = change_inputs(graph, "token", "core/v1:Secret", stringData=Secret({"token": "hunter3"}))
    [step] = [step for step in diff_graphs(load_graph(tmp_path / "x.json"), after) if step.op is not OpType.SAME]
    assert (step.op, [change.path for change in step.changes]) == (OpType.UPDATE, ["stringData"])
    assert "hunter" not in repr(step.changes)


def test_another_vm_size_replaces_the_pool_and_nothing_else(initial_graph: Graph) -> None:
    steps = diff_graphs(initial_graph, sample(RunMode.PREVIEW, "Standard_NC48ads_A100_v4").graph)
    assert count_by_operation(steps) == {"same": len(initial_graph) - 1, "replace": 1}
    [change] = next(step for step in steps if step.op is OpType.REPLACE).changes
    assert (change.path, change.kind, change.requires_replacement) == ("vmSize", ChangeKind.UPDATE, True)
    assert (change.old, change.new) == ("Standard_NC96ads_A100_v4", "Standard_NC48ads_A100_v4")


def test_another_count_or_taint_updates_the_pool(initial_graph: Graph) -> None:
    after = change_inputs(
        initial_graph, "gpu", "containerservice:AgentPool", count=5, nodeTaints=["sku=gpu:NoSchedule", "a=b:NoExecute"]
    )
    steps = diff_graphs(initial_graph, after)
    assert count_by_operation(steps)["update"] == 1
    step = next(step for step in steps if step.op is OpType.UPDATE)
    assert [(c.path, c.kind) for c in step.changes] == [("count", ChangeKind.UPDATE), ("nodeTaints[1]", ChangeKind.ADD)]


def test_a_moved_cluster_includes_its_pools(initial_graph: Graph) -> None:
    steps = diff_graphs(
        initial_graph, change_inputs(initial_graph, "aks", "containerservice:ManagedCluster", location="northeurope")
    )
    replaced = {step.resource.name: step.replace_reason for step in steps if step.op is OpType.REPLACE}
    assert replaced == {
        "aks": "",
        "gpu": "resourceName comes from a resource that is replaced",
        "reader": "scope comes from a resource that is replaced",
    }


def test_resource_options_are_respected(initial_graph: Graph) -> None:
    after = change_inputs(initial_graph, "aks", "containerservice:ManagedCluster", tags={}, kubernetesVersion="1.34")
    cluster = after.get_resource("aks")

    def op(**options: tuple[str, ...]) -> OpType:
        chosen = tuple(replace(r, **options) if r is cluster else r for r in after.resources)  # type: ignore[arg-type]
        return step_for(diff_graphs(initial_graph, replace(after, resources=chosen)), cluster.urn).op

    assert op() is OpType.UPDATE
    assert op(ignore_changes=("tags", "kubernetesVersion")) is OpType.SAME
    assert op(replace_on_changes=("tags",)) is OpType.REPLACE


def test_removed_resources_are_deleted_last_with_dependents_first(initial_graph: Graph) -> None:
    after = replace(
        initial_graph, resources=tuple(r for r in initial_graph.resources if r.name not in {"aks", "gpu", "reader"})
    )
    steps = diff_graphs(initial_graph, after)
    gone = [step.resource.label for step in steps if step.op is OpType.DELETE]
    assert gone.index('containerservice:AgentPool "gpu"') < gone.index('containerservice:ManagedCluster "aks"')
    assert [step.op for step in steps[-len(gone) :]] == [OpType.DELETE] * 4


def test_an_alias_does_not_create_a_resource(initial_graph: Graph) -> None:
    cluster = initial_graph.get_resource("aks")
    renamed = replace(cluster, urn=f"{cluster.urn}-renamed", name="aks-renamed", aliases=(cluster.urn,))
    after = replace(initial_graph, resources=tuple(renamed if r is cluster else r for r in initial_graph.resources))
    assert step_for(diff_graphs(initial_graph, after), renamed.urn).op is OpType.SAME


def test_json_has_the_format_of_the_pulumi_cli() -> None:
    project = Project.load(CLUSTER, "dev")
    old, new = sample(RunMode.PREVIEW), sample(RunMode.PREVIEW, "Standard_NC48ads_A100_v4")
    document = json.loads(json.dumps(build_preview_json(project, new, diff_graphs(old.graph, new.graph))))
    assert document["config"] == {
        "sample-cluster:location": "westeurope",
        "sample-cluster:nodes": "2",
        "sample-cluster:token": "[secret]",
    }
    assert document["changeSummary"] == {"same": 6, "replace": 1}
    assert document["duration"] > 1_000_000
    steps = {step["urn"].rpartition("::")[2]: step for step in document["steps"]}
    pool = next(step for step in document["steps"] if step["op"] == "replace")
    assert pool["detailedDiff"] == {"vmSize": {"kind": "update-replace", "inputDiff": True}}
    assert pool["replaceReasons"] == ["vmSize"]
    assert pool["oldState"]["inputs"]["vmSize"] == "Standard_NC96ads_A100_v4"
    assert steps["aks"]["newState"]["inputs"]["tags"] == {"token": "[secret]"}
    assert steps["aks"]["newState"]["propertyDependencies"].keys() == {"identity", "resourceGroupName"}
    assert steps["aks"]["newState"]["custom"] is True
