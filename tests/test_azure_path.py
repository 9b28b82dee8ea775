"""Commands of the Azure guide refer to deployed resources, and are in the right order."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import voice_blueprint
from tests.stacks.azure.manifests import DIGESTS, manifests, pods, production, workloads
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_blueprint import catalog, checks
from voice_blueprint.azure.contract import CLIENT_LABEL, NAMESPACE, ROUTER_HTTP
from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.engines.published.release import load_published_table
from voice_ops.cli import app
from voice_sandbox.azure.graph import Graph

GUIDE = (Path(__file__).parents[1] / "docs/guides/azure.md").read_text(encoding="utf-8")
DEPLOYED_GRAPH = production({"name": "mine", "azure.hub_token_secret": "hub-token"})
"""The guide's deployment, which it calls `mine`."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(DEPLOYED_GRAPH)


def match_in_guide(pattern: str) -> str:
    found = re.search(pattern, GUIDE, re.MULTILINE)
    assert found, pattern
    return found[1]


def test_names_of_bastion_and_jump_host_match_the_guide(graph: Graph) -> None:
    (bastion,) = graph.find_resources_of_type("network:BastionHost")
    (machine,) = graph.find_resources_of_type("compute:VirtualMachine")
    (group,) = graph.find_resources_of_type("resources:ResourceGroup")
    assert match_in_guide(r"bastion ssh --name (\S+)") == inputs(bastion)["bastionHostName"]
    assert match_in_guide(r"az vm show \S+ \S+ --name (\S+)") == inputs(machine)["vmName"]
    assert set(re.findall(r"--resource-group (\S+)", GUIDE)) == {inputs(group)["resourceGroupName"]}


def test_images_are_pulled_from_the_registry_of_the_guide(graph: Graph, tmp_path: Path) -> None:
    server = str(
        graph.outputs[match_in_guide(r"REGISTRY=\$\(pulumi -C stacks/voice_stacks/azure/cluster stack output (\w+)\)")]
    )
    file = tmp_path / "mine.yaml"
    file.write_text(DEPLOYED_GRAPH, encoding="utf-8")
    result = CliRunner().invoke(app, ["images", "import", str(file), "--from", "ghcr.io/you", "--registry", server])
    assert result.exit_code == 0, result.output
    imported = re.findall(
        r"^az acr import\b.*?--name (\S+) .*?--source \S+(@sha256:\S+) .*?--image ([^\s:]+):",
        result.stdout,
        re.DOTALL | re.MULTILINE,
    )
    pulled = {each["image"] for pod in pods(workloads(DEPLOYED_GRAPH)) for each in pod.containers}
    assert {f"{registry}.azurecr.io/{name}{digest}" for registry, digest, name in imported} == pulled


def test_kubectl_reaches_the_cluster_through_the_tunnel(graph: Graph) -> None:
    (made,) = graph.find_resources_of_type("containerservice:ManagedCluster")
    assert match_in_guide(r"get-credentials --resource-group \S+ --name (\S+)") == inputs(made)["resourceName"]


def test_every_machine_uses_the_same_backend() -> None:
    """Both stacks share a backend, since the workloads read the outputs of the cluster stack."""
    backends = re.findall(r"(?m)^pulumi login (\S+)", GUIDE)
    assert len(backends) == 2
    assert len(set(backends)) == 1


def test_the_secret_is_stored_under_the_name_that_jobs_read(graph: Graph) -> None:
    output = match_in_guide(r"VAULT=\$\(pulumi -C stacks/voice_stacks/azure/cluster stack output (\w+)\)")
    assert graph.outputs[output] == graph.outputs[ClusterOutput.VAULT_NAME]
    assert set(re.findall(r"--vault-name (\S+)", GUIDE)) == {'"$VAULT"'}
    (made,) = manifests(workloads(DEPLOYED_GRAPH), "SecretProviderClass")
    assert f"objectName: {match_in_guide(r'--name (hub-token)')}" in made["spec"]["parameters"]["objects"]


def test_the_transcript_is_requested_from_the_answering_model() -> None:
    found = workloads(DEPLOYED_GRAPH)
    (service,) = [
        each for each in manifests(found, "Service") if each["metadata"]["name"] == match_in_guide(r"service/(\S+)")
    ]
    assert service["metadata"]["namespace"] == match_in_guide(r"port-forward --namespace=(\S+)") == NAMESPACE
    assert service["spec"]["ports"][0]["port"] == int(match_in_guide(r"8080:(\d+)")) == ROUTER_HTTP.number
    model = match_in_guide(r"--form model=(\S+)")
    path = match_in_guide(rf"curl \S+ http://localhost:8080/{model}(\S+)")  # the router has one path for each model
    assert path in {each.path for each in load_published_table("vllm").endpoints}
    served = {argument for each in manifests(found, "Deployment")
              for container in each["spec"]["template"]["spec"]["containers"]
              for argument in container.get("command", ())}  # fmt: skip
    assert model in catalog.models()
    assert model in served
    assert CLIENT_LABEL in GUIDE


def test_commands_use_the_addresses_of_the_edge() -> None:
    """Uses the shipped file with callers and an external chat endpoint, whose key is a secret."""
    chat = {"kind": "endpoint", "url": "https://chat.callers.dev/v1", "model": "qwen3-8b", "key_secret": "chat-key"}
    text = edit_deployment({"images": DIGESTS, "azure.agents.chat": chat}, "production-azure")
    made, found = cluster(text), workloads(text)
    (edge,) = made.find_resources_of_type("network:ApplicationGateway")
    listening = {each["hostName"] for each in inputs(edge)["httpListeners"]}
    asked = re.findall(r"curl --fail https://([^/]+)(/\S+)", GUIDE)
    assert [path for _, path in asked] == [HEALTH_PATH] * 2
    assert {host for host, _ in asked} <= listening
    assert match_in_guide(r"^pulumi -C stacks/voice_stacks/azure/cluster stack output (\w+)$") in made.outputs
    deployments = {each["metadata"]["name"] for each in manifests(found, "Deployment")}
    named = re.findall(r"kubectl get deploy --namespace=(\S+) (.+)", GUIDE)
    assert {namespace for namespace, _ in named} == {NAMESPACE}
    tiers = {name for _, names in named for name in names.split()}
    assert {"gateway", "agent"} < tiers <= deployments
    secrets = set(re.findall(r"--name (\S+) --file", GUIDE)) - {"hub-token"}
    objects = "".join(each["spec"]["parameters"]["objects"] for each in manifests(found, "SecretProviderClass"))
    assert secrets == {"session-token-key", "chat-key"}
    assert all(f"objectName: {name}\n" in objects for name in secrets)


def test_the_callers_section_of_the_guide_matches_init(tmp_path: Path) -> None:
    """The section is therefore valid, and changes with the sizing that both use."""
    (shown,) = re.findall(r"^```yaml\n(azure:.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "mine.yaml"
    calls = match_in_guide(r"example is for (\d+)\s+concurrent\s+calls")
    result = CliRunner().invoke(
        app,
        ["init", str(file), "--cloud", "azure", "--region", "southcentralus", "--calls", calls, "--budget", "20000"],
    )
    assert result.exit_code == 0, result.output
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert yaml.safe_load(shown)["azure"] == {key: written["azure"][key] for key in ("cpu_pool", "callers")}
    for key in ("cpu_pool", "callers"):
        del written["azure"][key]
    written["azure"] |= yaml.safe_load(shown)["azure"]
    file.write_text(yaml.safe_dump(written), encoding="utf-8")
    assert not [finding for finding in checks.run_checks(voice_blueprint.load(file)) if finding.is_blocking]
