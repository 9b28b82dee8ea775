"""The shipped policy pack, a process to which Pulumi or the local engine connects."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pulumi
import pytest
import yaml

from tests.blueprint.documents import DEPLOYMENTS, load_text
from tests.stacks.azure import recorded
from tests.stacks.azure.policy.graphs import (
    CLUSTER,
    DIGESTS,
    Emitted,
    policy_resources,
    recorded_graph,
    violations,
    workloads,
)
from voice_blueprint import checks
from voice_blueprint.file.errors import DeploymentFileError
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.policy import PolicyPack
from voice_sandbox.azure.recorder import RunMode
from voice_stacks.azure.policy import pack
from voice_stacks.azure.policy.rules import Stack

FOLDER = Path(pack.__file__).parent
AZURE_FILES = sorted(
    file.stem for file in DEPLOYMENTS.glob("*.yaml") if "azure" in yaml.safe_load(file.read_text(encoding="utf-8"))
)


@pytest.fixture(scope="module")
def running() -> Iterator[PolicyPack]:
    with PolicyPack(FOLDER) as running:
        yield running


def test_every_rule_is_a_policy(running: PolicyPack) -> None:
    assert running.list_policy_names() == [rule.name for rule in pack.RULES]


def test_the_cluster_program_passes(running: PolicyPack) -> None:
    assert [
        found.message for found in running.check(recorded_graph("cluster", RunMode.PREVIEW)) if found.mandatory
    ] == []


def test_mistake_is_refused_with_its_resource_and_remedy(running: PolicyPack) -> None:
    graph = recorded_graph("cluster", RunMode.PREVIEW)
    resources = tuple(
        dataclasses.replace(r, inputs={**r.inputs, "vmSize": "Standard_NC96"}) if r.name == "cells" else r
        for r in graph.resources
    )
    found = running.check(Graph(graph.project, graph.stack, resources, graph.outputs))
    (violation,) = [each for each in found if each.policy == "vm-size-is-known"]
    assert violation.mandatory
    assert violation.resource == 'containerservice:AgentPool "cells"'
    assert "did you mean" in violation.message
    assert "correct the name" in violation.message


def test_workloads_pass_with_the_configuration_that_pulumi_passes() -> None:
    with PolicyPack(FOLDER, {"voice-workloads:deployment": str(DEPLOYMENTS / "cells.yaml")}) as configured:
        found = configured.check(recorded_graph("workloads", RunMode.PREVIEW))
    assert [violation.message for violation in found if violation.mandatory] == []


@pytest.mark.parametrize("name", AZURE_FILES)
def test_each_shipped_file_with_digests_passes(name: str, tmp_path: Path) -> None:
    """Regression: the coordinator of `hearing.yaml` was refused, so its deploy with the pack failed."""
    text = recorded.edit_deployment(DIGESTS, name)
    deployment = load_text(text, tmp_path)
    reported_by_plan = {found.check.id for found in checks.run_checks(deployment)}
    cluster = recorded.record(CLUSTER, text)
    found = [
        f"{rule.name}: {violation.message}"
        for graph in (cluster, workloads(text, cluster))
        for rule, violation in violations(Stack(tuple(policy_resources(graph)), deployment))
        if rule.name not in reported_by_plan
    ]
    assert found == []


@pytest.mark.parametrize("spec", [{"replicas": 2}, {"strategy": {"type": "RollingUpdate"}}])
def test_a_second_coordinator_is_refused(spec: dict[str, object], tmp_path: Path) -> None:
    text = recorded.edit_deployment(DIGESTS, "hearing")
    emitted = Emitted(policy_resources(workloads(text, recorded.record(CLUSTER, text))))
    emitted.props("Deployment", "lmcache-coordinator")["spec"].update(spec)
    found = violations(Stack(tuple(emitted.resources), load_text(text, tmp_path)))
    (violation,) = [each for rule, each in found if rule.name == "rollouts-keep-replicas"]
    assert "lmcache-coordinator may have two pods" in violation.message


def test_the_pack_has_a_valid_manifest() -> None:
    manifest = yaml.safe_load((FOLDER / "PulumiPolicy.yaml").read_text(encoding="utf-8"))
    assert manifest["runtime"]["name"] == "python"
    assert (FOLDER / manifest["runtime"]["options"]["virtualenv"]).resolve().name == ".venv"


def test_deployment_comes_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pack.load_configured_deployment() is None
    file = "../../../../tests/deployments/production-azure.yaml"
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"voice-workloads:deployment": file}))
    deployment = pack.load_configured_deployment()
    assert deployment
    assert deployment.source.file == DEPLOYMENTS / "production-azure.yaml"
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"voice-workloads:deployment": "nothing.yaml"}))
    with pytest.raises(DeploymentFileError):
        pack.load_configured_deployment()


def test_configuration_is_read_as_pulumi_passes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"a:b": "c"}))
    assert pulumi.runtime.get_config_env() == {"a:b": "c"}
