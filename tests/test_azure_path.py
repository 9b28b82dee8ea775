"""The operator's path of the Azure guide: what its commands name is deployed, and they come in order."""

import re
from pathlib import Path

import pytest

from blueprint import catalog
from blueprint.azure.contract import CLIENT_LABEL, NAMESPACE, ROUTER_HTTP
from blueprint.azure.names import ClusterOutput
from blueprint.engines.published.release import published
from sandbox.azure.graph import Graph
from tests.stacks.azure.manifests import manifests, production, workloads
from tests.stacks.azure.recorded import cluster, inputs

GUIDE = (Path(__file__).parents[1] / "docs/guides/azure.md").read_text(encoding="utf-8")
MINE = production({"name": "mine", "azure.hub_token_secret": "hub-token"})
"""The guide's deployment: what it calls `mine`."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(MINE)


def said(pattern: str) -> str:
    found = re.search(pattern, GUIDE)
    assert found, pattern
    return found[1]


def test_steps_come_in_the_order_that_they_need() -> None:
    order = ["az login", "voice preflight deployments/mine.yaml  ", "stacks/azure/cluster", "voice images build-args",
             "az keyvault secret set", "az network bastion ssh", "stacks/azure/workloads",
             "port-forward", "/v1/audio/transcriptions"]  # fmt: skip
    places = [GUIDE.index(each) for each in order]
    assert places == sorted(places)


def test_bastion_and_jump_host_are_called_so(graph: Graph) -> None:
    (bastion,) = graph.of_type("network:BastionHost")
    (machine,) = graph.of_type("compute:VirtualMachine")
    (group,) = graph.of_type("resources:ResourceGroup")
    assert said(r"bastion ssh --name (\S+)") == inputs(bastion)["bastionHostName"]
    assert said(r"az vm show \S+ \S+ --name (\S+)") == inputs(machine)["vmName"]
    assert set(re.findall(r"--resource-group (\S+)", GUIDE)) == {inputs(group)["resourceGroupName"]}


def test_the_secret_goes_where_the_jobs_read_it(graph: Graph) -> None:
    output = said(r"--vault-name \$\(pulumi stack output (\w+)\)")
    assert graph.outputs[output] == graph.outputs[ClusterOutput.VAULT_NAME]
    (made,) = manifests(workloads(MINE), "SecretProviderClass")
    assert f"objectName: {said(r'--name (hub-token)')}" in made["spec"]["parameters"]["objects"]


def test_the_transcript_is_asked_of_what_answers() -> None:
    found = workloads(MINE)
    (service,) = [each for each in manifests(found, "Service") if each["metadata"]["name"] == said(r"service/(\S+)")]
    assert service["metadata"]["namespace"] == said(r"port-forward --namespace=(\S+)") == NAMESPACE
    assert service["spec"]["ports"][0]["port"] == int(said(r"8080:(\d+)")) == ROUTER_HTTP.number
    assert said(r"curl \S+ http://localhost:8080(\S+)") in {each.path for each in published("vllm").endpoints}
    model = said(r"--form model=(\S+)")
    served = {argument for each in manifests(found, "Deployment")
              for container in each["spec"]["template"]["spec"]["containers"]
              for argument in container.get("command", ())}  # fmt: skip
    assert model in catalog.models()
    assert model in served
    assert CLIENT_LABEL in GUIDE
