"""Permissions and connections of pods: no more than in the contract."""

from pathlib import Path
from typing import Any

import cel
import pytest

from tests.blueprint.documents import load_text
from tests.nonempty import nonempty
from tests.registry import SigningKey
from tests.stacks.azure.manifests import DIGESTS, Manifest, Pod, manifests, pods, production, workloads
from tests.stacks.azure.recorded import edit_deployment
from voice_blueprint.azure import contract as cluster_contract
from voice_blueprint.azure.contract import (
    CLIENT_LABEL,
    COMPONENT_LABEL,
    GPU_NAMESPACE,
    NAMESPACE,
    ClusterFlow,
    Component,
    build_cluster_flows,
)
from voice_blueprint.azure.ranges import calculate_infrastructure_ranges
from voice_blueprint.contract import network as cloud_contract
from voice_blueprint.contract.network import Port
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.signing import format_digest_manifest
from voice_constructs.azure.kubernetes.namespaces import POD_SECURITY_BY_NAMESPACE
from voice_constructs.azure.kubernetes.network_policies import NAMESPACE_BY_COMPONENT
from voice_sandbox.azure.graph import Graph

FILES = {
    "production": production(),
    "held back": edit_deployment({}),
    "peers": production({"azure.services.1.lmcache": {"l1_gib": 100, "peers": True}}),
    "callers": edit_deployment({"images": DIGESTS}, "production-azure"),
}


@pytest.fixture(scope="module", params=FILES)
def file(request: pytest.FixtureRequest) -> str:
    return FILES[request.param]


@pytest.fixture(scope="module")
def graph(file: str) -> Graph:
    return workloads(file)


@pytest.fixture(scope="module")
def azure(file: str, tmp_path_factory: pytest.TempPathFactory) -> Azure:
    return load_text(file, tmp_path_factory.mktemp("azure")).azure


@pytest.fixture
def flows(azure: Azure) -> tuple[ClusterFlow, ...]:
    return build_cluster_flows(
        callers=azure.callers is not None,
        agents=azure.agents is not None,
        archive=azure.archive is not None,
        peers=azure.has_peers,
    )


# --- Who may talk to whom --------------------------------------------------------------------------------


HTTPS = 443


def component_for(peer: Manifest, azure: Azure) -> Component:
    if "ipBlock" in peer:
        ranges = calculate_infrastructure_ranges(azure.network.cidr)
        known = {
            ranges.edge: Component.EDGE,
            ranges.endpoints: Component.STATE,
        }
        return known.get(peer["ipBlock"]["cidr"], Component.INTERNET)
    pod_labels = peer.get("podSelector", {}).get("matchLabels", {})
    if COMPONENT_LABEL in pod_labels:
        component = Component(pod_labels[COMPONENT_LABEL])
        namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        assert namespace == NAMESPACE_BY_COMPONENT[component]
        return component
    if pod_labels:
        assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}
        return {"ama-metrics": Component.MONITORING, "kube-dns": Component.DNS}[next(iter(pod_labels.values()))]
    assert peer["namespaceSelector"]["matchLabels"] == {CLIENT_LABEL: "true"}
    return Component.CLIENT


def flows_in(policies: list[Manifest], direction: str, azure: Azure) -> set[tuple[Component, Component, int, str]]:
    found = set()
    for policy in policies:
        for rule in policy["spec"].get(direction) or []:
            own = Component(policy["spec"]["podSelector"]["matchLabels"][COMPONENT_LABEL])
            assert policy["metadata"]["namespace"] == NAMESPACE_BY_COMPONENT[own]
            for peer in rule["from" if direction == "ingress" else "to"]:
                for port in rule["ports"]:
                    other = component_for(peer, azure)
                    if (other, port["port"]) == (Component.STATE, HTTPS):  # both are private endpoints
                        other = Component.ARCHIVE
                    ends = (other, own) if direction == "ingress" else (own, other)
                    found.add((*ends, port["port"], port["protocol"]))
    return found


def contract_flow(flow: ClusterFlow) -> tuple[Component, Component, int, str]:
    return flow.source, flow.destination, flow.port.number, flow.port.protocol.upper()


def test_network_policies_allow_exactly_the_flows_of_the_contract(
    graph: Graph, azure: Azure, flows: tuple[ClusterFlow, ...]
) -> None:
    policies = manifests(graph, "NetworkPolicy")
    received = {contract_flow(flow) for flow in flows if flow.destination in NAMESPACE_BY_COMPONENT}
    sent = {contract_flow(flow) for flow in flows if flow.source in NAMESPACE_BY_COMPONENT}
    assert flows_in(policies, "ingress", azure) == received
    assert flows_in(policies, "egress", azure) == sent


def test_connections_without_a_flow_are_refused(graph: Graph) -> None:
    closed = [each for each in manifests(graph, "NetworkPolicy") if not each["spec"]["podSelector"]]
    assert {each["metadata"]["namespace"] for each in closed} == {NAMESPACE, GPU_NAMESPACE}
    for policy in closed:
        assert sorted(policy["spec"]["policyTypes"]) == ["Egress", "Ingress"]
        assert not policy["spec"].get("ingress")
        assert not policy["spec"].get("egress")


def test_internet_rules_exclude_the_metadata_service_and_the_network(
    graph: Graph, azure: Azure, flows: tuple[ClusterFlow, ...]
) -> None:
    blocks = [
        (policy["spec"]["podSelector"]["matchLabels"][COMPONENT_LABEL], direction, peer["ipBlock"])
        for policy in manifests(graph, "NetworkPolicy")
        for direction, side in (("egress", "to"), ("ingress", "from"))
        for rule in policy["spec"].get(direction) or []
        for peer in rule[side]
        if "ipBlock" in peer
    ]
    public = [(component, way) for component, way, block in blocks if block["cidr"] == "0.0.0.0/0"]
    wanted = {(flow.source, "egress") for flow in flows if flow.destination is Component.INTERNET}
    wanted |= {(flow.destination, "ingress") for flow in flows if flow.source is Component.INTERNET}
    assert set(public) == {(each, way) for each, way in wanted if each is not Component.EDGE}
    network = azure.network
    inside = {"169.254.169.254/32", network.cidr, network.pod_cidr, network.service_cidr}
    assert all(set(block["except"]) == inside for _, _, block in blocks if block["cidr"] == "0.0.0.0/0")


def test_every_container_port_is_in_the_contract(graph: Graph, flows: tuple[ClusterFlow, ...]) -> None:
    known = {**vars(cluster_contract), **vars(cloud_contract)}
    contract_ports = {port.number for port in known.values() if isinstance(port, Port)}
    asked = {cloud_contract.VAD_HEALTH.number, cloud_contract.ENGINE_HEALTH.number}  # only by their node
    reached = {flow.port.number for flow in flows} | asked
    for each in nonempty(pods(graph)):
        for container in each.containers:
            opened = {port["containerPort"] for port in container.get("ports") or []}
            assert opened <= contract_ports & reached


def test_only_caller_endpoints_are_reachable_from_outside_the_cluster(graph: Graph, azure: Azure) -> None:
    opened = {each["metadata"]["name"]: each["spec"] for each in manifests(graph, "Service")}
    assert opened.pop("router")["type"] == "ClusterIP"
    for service in azure.services:
        assert opened.pop(f"engines-{service.name}")["clusterIP"] == "None"
    inside = {"lmcache-coordinator"} if azure.has_peers else set()
    assert {opened.pop(name)["type"] for name in inside} <= {"ClusterIP"}
    assert set(opened) == ({"agent", "gateway", "vad"} if azure.callers else set())
    assert {spec["externalTrafficPolicy"] for spec in opened.values()} <= {"Local"}, "pods see who sends"
    assert not manifests(graph, "Ingress")
    assert not any(each.spec.get("hostNetwork") or each.spec.get("hostPID") for each in pods(graph))
    (quota,) = manifests(graph, "ResourceQuota")
    assert quota["spec"]["hard"]["services.loadbalancers"] == str(len(opened))
    assert quota["spec"]["hard"]["services.nodeports"] == str(sum(len(spec["ports"]) for spec in opened.values()))


# --- What pods may do ------------------------------------------------------------------------------------


def required_pod_security(each: Pod) -> str:
    """Return the strictest Pod Security level that admits a pod.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    contexts = [container.get("securityContext", {}) for container in each.containers]
    volumes = {kind for volume in each.spec["volumes"] for kind in volume if kind != "name"}
    added = {name for context in contexts for name in context.get("capabilities", {}).get("add") or []}
    if "hostPath" in volumes or added or any(context.get("privileged") for context in contexts):
        return "privileged"
    pod_context = each.spec.get("securityContext", {})
    restricted = (
        all(context.get("allowPrivilegeEscalation") is False for context in contexts)
        and all(context.get("capabilities", {}).get("drop") == ["ALL"] for context in contexts)
        and pod_context.get("runAsNonRoot") is True
        and pod_context.get("seccompProfile", {}).get("type") == "RuntimeDefault"
        and volumes <= {"configMap", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret", "csi"}
    )
    return "restricted" if restricted else "baseline"


def test_namespaces_have_the_strictest_pod_security_of_their_pods(graph: Graph, azure: Azure) -> None:
    order = ["restricted", "baseline", "privileged"]
    for namespace in nonempty(manifests(graph, "Namespace")):
        name, labels = namespace["metadata"]["name"], namespace["metadata"]["labels"]
        inside = [each for each in pods(graph) if each.namespace == name]
        assert inside
        level = labels["pod-security.kubernetes.io/enforce"]
        assert level == max((required_pod_security(each) for each in inside), key=order.index)
        assert level == POD_SECURITY_BY_NAMESPACE[name][0]
        assert labels["pod-security.kubernetes.io/enforce-version"] == f"v{azure.kubernetes_version}"


def test_no_pod_has_a_service_account_token(graph: Graph) -> None:
    accounts = manifests(graph, "ServiceAccount")
    assert accounts
    assert {account["automountServiceAccountToken"] for account in accounts} == {False}
    assert {each.spec["automountServiceAccountToken"] for each in pods(graph)} == {False}
    assert not manifests(graph, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def test_only_daemons_of_gpu_nodes_access_the_host(graph: Graph) -> None:
    touching = {each.name for each in pods(graph) if required_pod_security(each) == "privileged"}
    assert touching == {Component.DEVICE_PLUGIN.value, Component.GPU_METRICS.value}


def test_every_container_has_a_read_only_root_file_system(graph: Graph) -> None:
    for each in nonempty(pods(graph)):
        if each.namespace == NAMESPACE:
            assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in each.containers)
            assert each.spec["securityContext"]["runAsUser"] == 10001


def test_images_are_referenced_by_digest(graph: Graph) -> None:
    images: list[Any] = [container["image"] for each in pods(graph) for container in each.containers]
    assert all(".azurecr.io/" in image and "@sha256:" in image for image in images)


# --- What they may run -----------------------------------------------------------------------------------


def is_admitted(graph: Graph, spec: Manifest) -> bool:
    """Return the API server's decision on a pod: the policy's CEL expressions are evaluated unchanged."""
    (policy,) = manifests(graph, "ValidatingAdmissionPolicy")
    (binding,) = manifests(graph, "ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    variables = {each["name"]: cel.evaluate(each["expression"]) for each in policy["spec"]["variables"]}
    seen = {"object": {"spec": spec}, "variables": variables}
    return all(cel.evaluate(each["expression"], seen) for each in policy["spec"]["validations"])


def test_only_signed_images_are_admitted(tmp_path: Path) -> None:
    key = SigningKey(tmp_path, "pipeline")
    signing = {"public_key": key.public, "signature": key.sign(format_digest_manifest(DIGESTS).encode())}
    graph = workloads(production({"image_signing": signing}))
    (policy,) = manifests(graph, "ValidatingAdmissionPolicy")
    assert policy["spec"]["failurePolicy"] == "Fail"
    matched = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchLabels"]
    for namespace in manifests(graph, "Namespace"):
        assert matched.items() <= namespace["metadata"]["labels"].items()
    specs = [pod.spec for pod in pods(graph)]
    assert len(specs) > 5
    for spec in specs:
        assert is_admitted(graph, spec)
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            for image in ("docker.io/evil:latest", f"{spec['containers'][0]['image'][:-1]}0"):
                assert not is_admitted(graph, {**spec, kind: [{**spec["containers"][0], "image": image}]})


def test_without_a_signing_key_no_policy_is_created(graph: Graph) -> None:
    assert not manifests(graph, "ValidatingAdmissionPolicy")
