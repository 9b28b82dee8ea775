"""The cluster program: refusals, behaviour without Azure, and project files."""

import re
from pathlib import Path

import pulumi
import pytest
import yaml

import voice_blueprint
from tests.blueprint.documents import ABSENT, load_text
from tests.nonempty import nonempty
from tests.stacks.azure.recorded import PROJECTS, cluster, edit_deployment, inputs
from voice_blueprint.azure import names as azure_names
from voice_blueprint.file.model.deployment import Deployment
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.recorder import RunMode

PROJECT = PROJECTS / "cluster"


def _refusal(deployment: str) -> str:
    with pytest.raises(pulumi.RunError) as refused:
        cluster(deployment)
    return str(refused.value)


def test_a_malformed_file_is_refused_with_its_line() -> None:
    said = _refusal(edit_deployment({"azure.pools.0.topology_policy": "best"}))
    assert re.search(r"deployment\.yaml:\d+: ", said)
    assert "topology_policy" in said


def test_a_size_that_azure_does_not_sell_is_refused() -> None:
    said = _refusal(edit_deployment({"azure.pools.0.vm_size": "Standard_NC96ads_A100_v5"}))
    assert "did you mean `Standard_NC96ads_A100_v4`?" in said


def test_no_resource_is_created_for_a_refused_file() -> None:
    said = _refusal(edit_deployment({"azure.pools.0.topology_policy": "single-numa-node"}))
    assert re.search(r"deployment\.yaml:\d+: \[[a-z-]+\] .*; ", said)


def test_a_file_without_azure_is_refused() -> None:
    said = _refusal(edit_deployment({"azure": ABSENT}, "both"))
    assert "has no section `azure`" in said


def test_a_preview_declares_what_an_up_creates() -> None:
    preview, up = cluster(edit_deployment({}), RunMode.PREVIEW), cluster(edit_deployment({}))
    assert {r.urn for r in preview.resources} == {r.urn for r in up.resources}
    assert preview.outputs.keys() == up.outputs.keys()


def test_the_stack_file_refers_to_a_shipped_deployment() -> None:
    settings = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert settings["name"] == azure_names.CLUSTER_PROJECT_NAME
    stacks = list(PROJECT.glob("Pulumi.*.yaml"))
    assert stacks
    for stack in stacks:
        config = yaml.safe_load(stack.read_text(encoding="utf-8"))["config"]
        assert {key.removeprefix(f"{settings['name']}:") for key in config} == set(settings["config"])
        file = PROJECT / config[f"{settings['name']}:deployment"]
        assert voice_blueprint.load(file).name == stack.name.split(".")[1]


def test_the_stack_uses_the_virtual_environment_of_the_repository() -> None:
    options = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text(encoding="utf-8"))["runtime"]["options"]
    assert (PROJECT / options["virtualenv"]).resolve() == PROJECTS.parents[2] / ".venv"


@pytest.fixture
def longest(tmp_path: Path) -> Deployment:
    return load_text(edit_deployment({"name": "a" + "-b" * 15}), tmp_path)


def test_names_of_the_longest_deployment_are_valid_in_azure(longest: Deployment) -> None:
    subscription = "00000000-0000-4000-8000-5ab5c0000001"
    assert re.fullmatch(r"[a-zA-Z0-9]{5,50}", azure_names.build_registry_name(longest, subscription))
    assert re.fullmatch(
        r"[a-zA-Z](?!.*--)[a-zA-Z0-9-]{1,22}[a-zA-Z0-9]", azure_names.build_vault_name(longest, subscription)
    )
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]{0,21}[a-zA-Z0-9]", azure_names.build_grafana_name(longest, subscription))
    assert len(azure_names.build_node_resource_group_name(longest)) <= 80


def test_names_differ_between_subscriptions(longest: Deployment) -> None:
    for name in (azure_names.build_registry_name, azure_names.build_vault_name, azure_names.build_grafana_name):
        assert name(longest, "one") != name(longest, "another")


def test_no_name_exceeds_the_azure_limit(longest: Deployment) -> None:
    graph: Graph = cluster(edit_deployment({"name": longest.name}))
    limits = {
        "containerservice:ManagedCluster": ("dnsPrefix", 54),
        "monitor:DataCollectionEndpoint": ("dataCollectionEndpointName", 44),
        "monitor:DataCollectionRule": ("dataCollectionRuleName", 64),
        "operationalinsights:Workspace": ("workspaceName", 63),
    }
    for kind, (field, limit) in nonempty(limits.items()):
        for resource in graph.find_resources_of_type(kind):
            assert len(inputs(resource)[field]) <= limit
