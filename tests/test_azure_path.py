"""The operator's path of the Azure guide: what its commands name is deployed, and they come in order."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blueprint import catalog
from blueprint.azure.contract import CLIENT_LABEL, NAMESPACE, ROUTER_HTTP
from blueprint.azure.names import ClusterOutput
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.engines.published.release import published
from ops.cli import app
from sandbox.azure.graph import Graph
from tests.stacks.azure.manifests import DIGESTS, manifests, pod, production, workloads
from tests.stacks.azure.recorded import cluster, edited, inputs

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


def test_images_are_pulled_from_where_the_guide_brings_them(graph: Graph) -> None:
    server = str(graph.outputs[said(r"--registry \$\(pulumi stack output (\w+)\)")])
    digest = f"sha256:{'a' * 64}"
    result = CliRunner().invoke(app, ["images", "build-args", "router", "--registry", server, "--digest", digest])
    assert result.exit_code == 0, result.output
    imported = re.findall(r"--name (\S+).*--image (\S+):", result.stdout, re.DOTALL)
    pulled = pod(workloads(MINE), "router").containers[0]["image"].partition("@")[0]
    assert [f"{registry}.azurecr.io/{name}" for registry, name in imported] == [pulled]


def test_kubectl_is_led_to_the_cluster(graph: Graph) -> None:
    (made,) = graph.of_type("containerservice:ManagedCluster")
    assert said(r"get-credentials --resource-group \S+ --name (\S+)") == inputs(made)["resourceName"]


def test_every_machine_asks_the_same_backend() -> None:
    """The workloads read what the cluster's stack put out, so both stacks lie in one place."""
    backends = re.findall(r"\$ pulumi login (\S+)", GUIDE)
    assert len(backends) == 2
    assert len(set(backends)) == 1


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


def test_callers_and_agents_are_asked_where_the_edge_listens() -> None:
    """Of the shipped file with callers, whose chat engine is an endpoint here, so that its key is a secret."""
    chat = {"kind": "endpoint", "url": "https://chat.callers.dev/v1", "model": "qwen3-8b", "key_secret": "chat-key"}
    text = edited({"images": DIGESTS, "azure.agents.chat": chat}, "production-azure")
    made, found = cluster(text), workloads(text)
    (edge,) = made.of_type("network:ApplicationGateway")
    listening = {each["hostName"] for each in inputs(edge)["httpListeners"]}
    asked = re.findall(r"curl --fail https://([^/]+)(/\S+)", GUIDE)
    assert [path for _, path in asked] == [HEALTH_PATH] * 2
    assert {host for host, _ in asked} <= listening
    assert said(r"pulumi stack output (\w+) +# in stacks/azure/cluster") in made.outputs
    deployments = {each["metadata"]["name"] for each in manifests(found, "Deployment")}
    named = re.findall(r"kubectl get deploy --namespace=(\S+) (.+)", GUIDE)
    assert {namespace for namespace, _ in named} == {NAMESPACE}
    tiers = {name for _, names in named for name in names.split()}
    assert {"gateway", "agent"} < tiers <= deployments
    secrets = set(re.findall(r"--name (\S+) --file", GUIDE)) - {"hub-token"}
    objects = "".join(each["spec"]["parameters"]["objects"] for each in manifests(found, "SecretProviderClass"))
    assert secrets == {"session-token-key", "chat-key"}
    assert all(f"objectName: {name}\n" in objects for name in secrets)
